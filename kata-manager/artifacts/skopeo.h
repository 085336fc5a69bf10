// SPDX-License-Identifier: Apache-2.0
// Pulls by skopeo(1), a child process. If this process is root, skopeo can write one folder only; else it has
// the rights of this process's user. Skopeo decides about TLS, redirects and tokens; the caller decides which
// manifest and which blobs are the right ones.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/process/this_process.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/docker_config.h"
#include "kata-manager/artifacts/image_reference.h"

namespace ferry::kata {

/// A server for an image, with its credentials.
struct RegistryEndpoint {
  std::string host;           ///< with its port, as given
  std::string location;       ///< the host, and the path in front of repositories
  bool in_the_clear = false;  ///< it may be reached without TLS
  RegistryCredentials credentials = {};
};

/// The mirrors of an image's registry, then the registry, each with its own credentials. Errc::usage: an
/// endpoint is no such URL, or a registry is listed twice.
Result<std::vector<RegistryEndpoint>> registry_endpoints(const ImageReference& reference,
                                                         const FetchRequest& request,
                                                         const DockerConfig& credentials);

/// The servers as skopeo reads them. ABI: containers-registries.conf(5), version 2.
std::string registries_conf(std::span<const RegistryEndpoint> endpoints);

/// The credentials as skopeo reads them. Errc::invalid_config: a form of them that it takes from no file.
/// ABI: containers-auth.json(5).
Result<std::string> auth_file(std::span<const RegistryEndpoint> endpoints);

class Skopeo {
 public:
  /// `folder`: an empty folder in which skopeo works. If this process is root, the folder becomes that of a
  /// user without rights, as whom skopeo runs. `endpoints`: registry_endpoints().
  static Result<Skopeo> prepare(UniqueFd folder, const ImageReference& reference,
                                std::span<const RegistryEndpoint> endpoints, const FetchRequest& request);

  struct Document {
    std::string bytes;
    Digest digest;  ///< of the bytes; equals a requested digest
  };
  /// A manifest or an index, by tag or digest. Errc::not_found: the registry does not have it;
  /// Errc::unreachable: no registry answers, or skopeo is missing; Errc::failed: refused credentials, an
  /// unknown authority, another digest.
  Result<Document> manifest(const std::string& tag_or_digest) const;

  /// Copies the image of that manifest, and returns the folder of its blobs: files that are named by the
  /// hexadecimal digits of their digests, and that nothing has checked since skopeo wrote them. `most`: bytes
  /// of the largest blob. Errors: as manifest().
  Result<UniqueFd> copy(const Digest& manifest, std::uint64_t most) const;

 private:
  struct Limits {
    std::uint64_t file_bytes;
    std::size_t output_bytes;
    std::chrono::milliseconds time;
  };
  Skopeo(UniqueFd folder, std::string repository, const FetchRequest& request)
      : folder_(std::move(folder)),
        repository_(std::move(repository)),
        request_(&request),
        // The caller ends this process at the deadline, which counts from its start.
        until_(std::chrono::steady_clock::now() + std::chrono::milliseconds(request.deadline) * 9 / 10) {}
  Result<std::string> run(const std::vector<std::string>& words, const Limits& limits) const;
  Result<std::string> run_once(const std::vector<std::string>& words, const Limits& limits) const;
  std::string image(const std::string& tag_or_digest) const;

  UniqueFd folder_;
  std::string repository_;
  const FetchRequest* request_;
  std::chrono::steady_clock::time_point until_;
  UniqueFd credentials_;
  Environment environment_;
};

}  // namespace ferry::kata
