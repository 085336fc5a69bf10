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
#include <string_view>
#include <vector>

#include "common/process/this_process.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/image_reference.h"

namespace ferry::kata {

// Registry credentials in the format of Kubernetes Secrets. ABI: kubernetes.io/dockerconfigjson (`auths`,
// which has a map) and kubernetes.io/dockercfg (the map alone). The choice of a key for an image follows
// the kubelet.

struct RegistryCredentials {
  std::string username = {};
  std::string password = {};
  std::string identity_token = {};  ///< an OAuth2 refresh token; preferred to a password
  std::string registry_token = {};  ///< a ready bearer token, which skopeo takes from no file
  bool empty() const {
    return username.empty() && password.empty() && identity_token.empty() && registry_token.empty();
  }
  bool operator==(const RegistryCredentials&) const = default;
};

class DockerConfig {
 public:
  /// An empty text has no credentials. Errc::invalid_config names the key and the fault, never a secret.
  static Result<DockerConfig> parse(std::string_view text);

  /// The credentials of the longest matching key: "HOST", "HOST:PORT" or "HOST/PATH", with or without a
  /// scheme, "/v1/" and "/v2/". A '*' stands for letters within one label of a host. Empty: no key matches.
  RegistryCredentials credentials(std::string_view registry, std::string_view repository) const;

  /// True: a helper program (credsStore, credHelpers) has more credentials. Ferry does not ask it.
  bool names_helpers() const { return names_helpers_; }

 private:
  struct Entry {
    std::string host;
    std::string path;
    std::string key;
    RegistryCredentials credentials;
  };
  std::vector<Entry> entries_;  // sorted by precedence
  bool names_helpers_ = false;
};

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
