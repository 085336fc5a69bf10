// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/docker_config.h"
#include "kata-manager/http.h"
#include "kata-manager/image_reference.h"

namespace ferry {

/// A server that is asked for an image, and how it wants to be asked.
struct RegistryEndpoint {
  std::string host;      ///< with its port, as it was written
  std::string base_url;  ///< "https://host/v2/repository", to which "/manifests/…" and "/blobs/…" are added
  HttpOrigin origin;
  RegistryCredentials credentials = {};
  // What it asked for, once it has.
  bool basic = false;
  std::string token = {};
};

/// The mirrors of an image's registry and then the registry, each with its own credentials.
/// Errc::usage: an endpoint is no URL of that form, or a registry is there twice.
Result<std::vector<RegistryEndpoint>> registry_endpoints(const ImageReference& reference,
                                                         std::span<const RegistryEndpoints> registries,
                                                         const DockerConfig& credentials);

}  // namespace ferry
