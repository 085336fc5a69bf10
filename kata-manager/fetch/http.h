// SPDX-License-Identifier: Apache-2.0
// Single HTTP requests, by libcurl. Retries, redirects and credentials are decided by the caller
// (registry.h), not by libcurl.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry {
class CurlRequest;
}

namespace ferry::kata {

struct HttpReply {
  int status = 0;
  std::multimap<std::string, std::string> headers;  ///< names in lower case
  std::string text;                                 ///< the body, unless `body` took it
  std::chrono::seconds retry_after{0};              ///< from Retry-After; 0: none
  /// The first header of that lower-case name; empty: none.
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::string username = {};              ///< sent as Basic, with `password`
  std::string password = {};
  std::optional<std::string> form = {};   ///< sent by POST; absent: GET
  std::uint64_t most_text = 64ULL << 10;  ///< limit of HttpReply::text in bytes; beyond: Errc::refused
  /// Takes the body of a 200 or 206 in pieces. Its error ends the request and is returned.
  std::function<Result<>(const HttpReply& head, std::string_view bytes)> body = {};
};

class HttpClient : Pinned {
 public:
  /// Takes patience, authorities and proxies from `settings`, which must outlive this object.
  explicit HttpClient(const FetchRequest& settings);
  ~HttpClient();

  /// Errc::unreachable: no connection, cut off, or too slow, so a retry may help. Errc::failed: the
  /// server's certificate is not trusted, or the request cannot be made.
  Result<HttpReply> perform(const HttpRequest& request);

 private:
  const FetchRequest& settings_;
  std::unique_ptr<CurlRequest> curl_;
};

/// The parts of a URL that identify the server.
struct HttpOrigin {
  std::string scheme;  ///< "http", "https"
  std::string host;    ///< with brackets around IPv6
  std::string port;    ///< never empty
  bool operator==(const HttpOrigin&) const = default;

  /// Errc::malformed_host: not an HTTP URL, or it has credentials.
  static Result<HttpOrigin> of(const std::string& url);
  bool is_loopback() const;
  std::string text() const { return scheme + "://" + host + ":" + port; }
};

/// Resolves a Location header against `base`. Errors: as HttpOrigin::of().
Result<std::string> resolve_url(const std::string& base, const std::string& location);

/// A challenge of a WWW-Authenticate header. Scheme and parameter names are in lower case.
struct AuthChallenge {
  std::string scheme;  ///< "bearer", "basic"
  std::map<std::string, std::string> parameters;
};

/// The challenges of one header, up to the first that cannot be parsed. ABI: RFC 9110, 11.6.1.
std::vector<AuthChallenge> parse_auth_challenges(std::string_view header);

}  // namespace ferry::kata
