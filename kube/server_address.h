// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/environment.h"
#include "common/result.h"

namespace ferry {

/// Where an API server is.
struct ServerAddress {
  bool tls = true;
  std::string host;  ///< in lower case; IPv6 without brackets
  std::uint16_t port = 443;
  std::string path;  ///< what stands before the paths of the API: "/k8s/clusters/c-1"; no slash at its end
  bool operator==(const ServerAddress&) const = default;

  /// Of "https://HOST[:PORT][/PATH]". Errc::usage: which part is wrong.
  static Result<ServerAddress> parse(std::string_view url);
  /// This machine itself, by "localhost" or by number.
  bool is_loopback() const;
  std::string authority() const;  ///< "10.96.0.1:443", "[fd00::1]:443"
  std::string text() const;       ///< as parse() takes it
};

/// Whether a word can be a host: a name, or an IP address (IPv6 without brackets, without a zone).
bool is_host(std::string_view text);

/// A proxy as libcurl takes it. Errc::usage: no URL of http, https or socks5. What it says of an URL is never
/// the URL, which may have a password in it.
Result<std::string> proxy_url(std::string_view text);

/// The proxy that HTTPS_PROXY and NO_PROXY mean for a server, as the rest of Kubernetes reads them; empty:
/// none. For this machine itself there is none. Errors: as proxy_url(), with the variable's name.
///
/// ABI: golang.org/x/net/http/httpproxy, Config.
Result<std::string> proxy_of_environment(const ServerAddress& server, const Environment& environment);

}  // namespace ferry
