// SPDX-License-Identifier: Apache-2.0
// Inside this room: how one server is talked to, whatever it is asked for (registry.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kata-manager/http.h"
#include "kata-manager/registry_endpoint.h"

namespace ferry {

struct RegistryQuestion {
  std::string path;  ///< behind the endpoint's base_url
  std::vector<std::string> headers = {};
  std::uint64_t most_text = 64ULL << 10;
  std::function<Result<>(const HttpReply& head, std::string_view bytes)> body = {};
};

class RegistrySession {
 public:
  /// `endpoints`: those of them that speak plain HTTP may be led to without TLS, and the loopback.
  RegistrySession(HttpClient& http, const FetchPatience& patience,
                  std::function<void(std::chrono::milliseconds)> pause,
                  std::span<const RegistryEndpoint> endpoints);

  /// One answer, past redirects and after the authentication that was asked for. Any status is an answer.
  Result<HttpReply> ask_once(RegistryEndpoint& endpoint, const RegistryQuestion& question);

  /// Calls `once` until it gives an answer that no time would mend, or the patience is over: then the last
  /// one. What has grown by a MiB in between (`have`) counts as a new beginning.
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

/// An answer that is not what was asked for, in words: "HTTP 404: MANIFEST_UNKNOWN: manifest unknown".
/// Errc::not_found: 404; Errc::failed: 401 and 403; Errc::unreachable: what time may mend; else
/// Errc::malformed_host.
Error error_of(const HttpReply& reply, const RegistryEndpoint& endpoint);

}  // namespace ferry
