// SPDX-License-Identifier: Apache-2.0
// Internal: authentication, redirects and retries with one server (registry.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/fetch/http.h"

namespace ferry::kata {

// Registry credentials in the format of Kubernetes Secrets. ABI: kubernetes.io/dockerconfigjson (`auths`,
// which has a map) and kubernetes.io/dockercfg (the map alone). The choice of a key for an image follows
// the kubelet.

struct RegistryCredentials {
  std::string username = {};
  std::string password = {};
  std::string identity_token = {};  ///< an OAuth2 refresh token; preferred to a password
  std::string registry_token = {};  ///< a ready bearer token
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

struct RegistryQuestion {
  std::string path;  ///< appended to the endpoint's base_url
  std::vector<std::string> headers = {};
  std::uint64_t most_text = 64ULL << 10;
  std::function<Result<>(const HttpReply& head, std::string_view bytes)> body = {};
};

class RegistrySession {
 public:
  /// `endpoints`: only plain HTTP servers among these, and the loopback, may be reached without TLS.
  RegistrySession(HttpClient& http, const FetchPatience& patience,
                  std::function<void(std::chrono::milliseconds)> pause,
                  std::span<const RegistryEndpoint> endpoints);

  /// Returns one reply, after redirects and authentication. Any status is a reply.
  Result<HttpReply> ask_once(RegistryEndpoint& endpoint, const RegistryQuestion& question);

  /// Calls `once` until its answer is final or the retries are used up, then returns the last answer. A
  /// gain of a MiB (`have`) resets the retries.
  Result<HttpReply> patiently(const std::function<Result<HttpReply>()>& once,
                              const std::function<std::uint64_t()>& have = {});

 private:
  Result<bool> authenticate(RegistryEndpoint& endpoint, const HttpReply& refusal);
  Result<std::string> token(const RegistryEndpoint& endpoint, const std::string& realm,
                            const std::string& service, const std::string& scope);

  Result<> may_be_asked(const HttpOrigin& origin) const;

  HttpClient* http_;
  FetchPatience patience_;
  std::function<void(std::chrono::milliseconds)> pause_;
  std::vector<HttpOrigin> in_the_clear_;
};

/// An unexpected reply in words: "HTTP 404: MANIFEST_UNKNOWN: manifest unknown". Errc::not_found: 404;
/// Errc::failed: 401 and 403; Errc::unreachable: a retry may help; else Errc::malformed_host.
Error error_of(const HttpReply& reply, const RegistryEndpoint& endpoint);

}  // namespace ferry::kata
