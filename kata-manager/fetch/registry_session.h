// SPDX-License-Identifier: Apache-2.0
// Internal: authentication, redirects and retries with one server (registry.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kata-manager/fetch/http.h"
#include "kata-manager/fetch/registry_endpoint.h"

namespace ferry::kata {

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
