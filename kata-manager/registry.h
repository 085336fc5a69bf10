// SPDX-License-Identifier: Apache-2.0
// A registry and its mirrors, asked for manifests and blobs.
// ABI: OCI distribution specification, "Pull"; distribution's token and OAuth2 authentication.
//
// - Credentials go to the registry that they are for, to the realm that it names itself, and nowhere else: a
//   redirect to another host carries none, and a challenge of that host is not answered.
// - From https nothing leads to plain http.
// - 408, 429, 5xx and broken connections are asked again, with growing pauses and as Retry-After says; blobs
//   go on where they were.
// - What a mirror cannot give, or gives with another digest, is asked of the next.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/blob_file.h"
#include "kata-manager/docker_config.h"
#include "kata-manager/http.h"
#include "kata-manager/image_reference.h"

namespace ferry {

struct RegistrySetup {
  ImageReference reference;
  DockerConfig credentials;
  std::vector<RegistryEndpoints> registries = {};
  HttpSetup http = {};
  ArtifactLimits limits = {};
  std::function<void(std::chrono::milliseconds)> pause = {};  ///< absent: really waits
};

class RegistryClient {
 public:
  /// Errc::usage: an endpoint cannot be read.
  static Result<RegistryClient> open(RegistrySetup setup);
  RegistryClient(RegistryClient&&) noexcept;
  RegistryClient& operator=(RegistryClient&&) noexcept;
  RegistryClient(const RegistryClient&) = delete;
  RegistryClient& operator=(const RegistryClient&) = delete;
  ~RegistryClient();

  struct Document {
    std::string bytes;
    std::string content_type;
    Digest digest;  ///< of the bytes; it is the one asked for, where one was
  };
  /// A manifest or an index, by tag or digest.
  Result<Document> manifest(const std::string& tag_or_digest);

  /// Fills the file up until it is whole. `told`: as bytes arrive; false ends it with Errc::failed.
  Result<> blob(BlobFile& into, const std::function<bool()>& told);

  /// Which mirrors failed, and why.
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  explicit RegistryClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ferry
