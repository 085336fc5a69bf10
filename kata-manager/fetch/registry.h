// SPDX-License-Identifier: Apache-2.0
// A client of a registry and its mirrors, for manifests and blobs. ABI: OCI distribution specification,
// "Pull"; distribution's token and OAuth2 authentication.
//
//  - Credentials go only to their registry and to the realm that it names. A redirect to another host
//    carries none, and that host's challenge is not answered.
//  - No https server can lead to plain http.
//  - 408, 429, 5xx and broken connections are retried, with growing pauses and Retry-After; a blob resumes.
//  - If a mirror fails or has another digest, the next server is asked.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/fetch/blob_file.h"
#include "kata-manager/fetch/docker_config.h"
#include "kata-manager/fetch/http.h"

namespace ferry::kata {

struct RegistrySetup {
  ImageReference reference;
  DockerConfig credentials;
  std::vector<RegistryEndpoints> registries = {};
  HttpSetup http = {};
  ArtifactLimits limits = {};
  std::function<void(std::chrono::milliseconds)> pause = {};  ///< absent: sleeps
};

class RegistryClient {
 public:
  /// Errc::usage: an endpoint cannot be parsed.
  static Result<RegistryClient> open(RegistrySetup setup);
  RegistryClient(RegistryClient&&) noexcept;
  RegistryClient& operator=(RegistryClient&&) noexcept;
  RegistryClient(const RegistryClient&) = delete;
  RegistryClient& operator=(const RegistryClient&) = delete;
  ~RegistryClient();

  struct Document {
    std::string bytes;
    std::string content_type;
    Digest digest;  ///< of the bytes; equals a requested digest
  };
  /// A manifest or an index, by tag or digest.
  Result<Document> manifest(const std::string& tag_or_digest);

  /// Downloads until the file is whole. `told`: called as bytes arrive; false ends it with Errc::failed.
  Result<> blob(BlobFile& into, const std::function<bool()>& told);

  /// The mirrors that failed, and why.
  const std::vector<std::string>& notes() const;

 private:
  struct State;
  explicit RegistryClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ferry::kata
