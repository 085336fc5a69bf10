// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/environment.h"
#include "common/result.h"

namespace ferry {

/// The address of an API server.
struct ServerAddress {
  bool tls = true;
  std::string host;  ///< in lower case; IPv6 without brackets
  std::uint16_t port = 443;
  std::string path;  ///< prefix of the API's paths: "/k8s/clusters/c-1"; no slash at its end
  bool operator==(const ServerAddress&) const = default;

  /// Parses "https://HOST[:PORT][/PATH]". Errc::usage: the error names the wrong part.
  static Result<ServerAddress> parse(std::string_view url);
  /// True: this machine itself, by "localhost" or a loopback address.
  bool is_loopback() const;
  std::string authority() const;  ///< "10.96.0.1:443", "[fd00::1]:443"
  std::string text() const;       ///< in parse()'s form
};

/// True: a word can be a host, by name or IP address (IPv6 without brackets, without a zone).
bool is_host(std::string_view text);

/// A proxy in libcurl's form. Errc::usage: no URL of http, https or socks5. The error never has the URL,
/// which may have a password in it.
Result<std::string> proxy_url(std::string_view text);

/// The proxy for a server by HTTPS_PROXY and NO_PROXY, as the rest of Kubernetes reads them; empty: none.
/// This machine itself has none. Errors: as in proxy_url(), with the variable's name.
///
/// ABI: golang.org/x/net/http/httpproxy, Config.
Result<std::string> proxy_of_environment(const ServerAddress& server, const Environment& environment);

}  // namespace ferry
