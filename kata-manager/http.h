// SPDX-License-Identifier: Apache-2.0
// One HTTP request at a time, by libcurl. What is asked again, where a redirect may lead and who gets
// credentials is decided above (registry.h): nothing of that is left to the library.
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

#include "common/result.h"
#include "kata-manager/artifacts.h"

namespace ferry {

struct HttpReply {
  int status = 0;
  std::multimap<std::string, std::string> headers;  ///< names in lower case
  std::string text;                                 ///< the body, where nobody else took it
  std::chrono::seconds retry_after{0};              ///< as the server asks for; 0: it does not
  /// The first of that name, which is in lower case; empty if there is none.
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::string username = {};              ///< with a password: sent as Basic
  std::string password = {};
  std::optional<std::string> form = {};   ///< sent by POST; absent: GET
  std::uint64_t most_text = 64ULL << 10;  ///< bytes of HttpReply::text; more is Errc::refused
  /// Takes the body of a 200 or 206 as it comes; an error from it ends the request and is given back.
  std::function<Result<>(const HttpReply& head, std::string_view bytes)> body = {};
};

struct HttpSetup {
  FetchPatience patience = {};
  std::string authorities = {};            ///< PEM, trusted beside those of the system
  std::string proxy = {};                  ///< as in FetchRequest
  std::vector<std::string> no_proxy = {};  ///< as in FetchRequest
};

class HttpClient {
 public:
  explicit HttpClient(HttpSetup setup);
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  HttpClient(HttpClient&&) = delete;
  HttpClient& operator=(HttpClient&&) = delete;
  ~HttpClient();

  /// Errc::unreachable: no connection, cut off, or too slow, so that asking again may help. Errc::failed: the
  /// server's certificate is not trusted, or the request cannot be made.
  Result<HttpReply> perform(const HttpRequest& request);

 private:
  struct Easy;
  HttpSetup setup_;
  std::unique_ptr<Easy> easy_;
};

/// A URL's parts that decide who is talked to.
struct HttpOrigin {
  std::string scheme;  ///< "http", "https"
  std::string host;    ///< with brackets around IPv6
  std::string port;    ///< always there
  bool operator==(const HttpOrigin&) const = default;

  /// Errc::malformed_host: no URL of HTTP, or one with credentials in it.
  static Result<HttpOrigin> of(const std::string& url);
  bool is_loopback() const;
  std::string text() const { return scheme + "://" + host + ":" + port; }
};

/// Where a Location header leads, seen from `base`. Errors as of HttpOrigin::of().
Result<std::string> resolve_url(const std::string& base, const std::string& location);

}  // namespace ferry
