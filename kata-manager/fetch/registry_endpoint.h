// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/fetch/docker_config.h"
#include "kata-manager/fetch/http.h"

namespace ferry::kata {

/// A server for an image, with its credentials and authentication.
struct RegistryEndpoint {
  std::string host;      ///< with its port, as given
  std::string base_url;  ///< "https://host/v2/repository", a prefix of "/manifests/…" and "/blobs/…"
  HttpOrigin origin;
  RegistryCredentials credentials = {};
  // The authentication that the server asked for.
  bool basic = false;
  std::string token = {};
};

/// The mirrors of an image's registry, then the registry, each with its own credentials. Errc::usage: an
/// endpoint is no such URL, or a registry is listed twice.
Result<std::vector<RegistryEndpoint>> registry_endpoints(const ImageReference& reference,
                                                         std::span<const RegistryEndpoints> registries,
                                                         const DockerConfig& credentials);

}  // namespace ferry::kata
