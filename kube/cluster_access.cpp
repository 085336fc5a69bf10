// SPDX-License-Identifier: Apache-2.0
#include "kube/cluster_access.h"

#include <algorithm>
#include <arpa/inet.h>
#include <optional>

#include <fmt/format.h>

#include "common/text/text.h"
#include "kube/credential_file.h"

namespace ferry::kube {
namespace {

constexpr std::string_view kTls = "https://";
constexpr std::string_view kPlain = "http://";
constexpr std::uint16_t kTlsPort = 443;
constexpr std::uint16_t kPlainPort = 80;

bool is_plain(std::string_view text) {
  return std::ranges::none_of(text, [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7F;
  });
}

std::optional<std::uint16_t> port_of(std::string_view text) {
  const auto port = whole_number<std::uint16_t>(text);
  return port == 0 ? std::nullopt : port;
}

/// The bytes of an IP address, four or sixteen; empty: it is none.
std::string ip_bytes(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return {};  // inet_pton would stop there
  const std::string host(text);
  std::string bytes(sizeof(in6_addr), '\0');
  if (::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(sizeof(in_addr));
  if (::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) return bytes;
  return {};
}

struct HostAndPort {
  std::string host;
  std::string port;  // empty: none was given
};

// "host", "host:port", "[ipv6]", "[ipv6]:port"; an IPv6 address without brackets is a host.
std::optional<HostAndPort> split(std::string_view authority) {
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view host = authority.substr(1, end - 1);
    const std::string_view rest = authority.substr(end + 1);
    if (host.find(':') == std::string_view::npos || (!rest.empty() && !rest.starts_with(':')))
      return std::nullopt;
    if (rest == ":") return std::nullopt;
    return HostAndPort{.host = std::string(host), .port = std::string(rest.substr(rest.empty() ? 0 : 1))};
  }
  const auto colon = authority.find(':');
  if (colon == std::string_view::npos || !ip_bytes(authority).empty())
    return HostAndPort{.host = std::string(authority), .port = {}};
  if (colon + 1 == authority.size()) return std::nullopt;
  return HostAndPort{.host = std::string(authority.substr(0, colon)),
                     .port = std::string(authority.substr(colon + 1))};
}

tl::unexpected<Error> wrong(std::string_view url, std::string_view why) {
  return fail(Errc::usage, fmt::format("'{}' is not where a server is: {}", url, why),
              "write https://HOST:PORT");
}

// ---- NO_PROXY. libcurl 7.88 would not find fd00::1 in fd00::/8, nor an entry with a port or with "*.".

bool in_network(std::string_view network, std::string_view address) {
  const auto slash = network.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string base = ip_bytes(network.substr(0, slash));
  const auto bits = whole_number<unsigned>(network.substr(slash + 1));
  if (base.empty() || !bits || base.size() != address.size() || *bits > base.size() * 8) return false;
  for (unsigned bit = 0; bit < *bits; ++bit) {
    const unsigned mask = 0x80U >> bit % 8;
    if (((static_cast<unsigned char>(base[bit / 8]) ^ static_cast<unsigned char>(address[bit / 8])) & mask) !=
        0)
      return false;
  }
  return true;
}

bool is_exempt(const ServerAddress& server, std::string_view entry) {
  if (entry == "*") return true;
  const std::string address = ip_bytes(server.host);
  if (!address.empty() && in_network(entry, address)) return true;
  const auto parts = split(entry);
  if (!parts || parts->host.empty()) return false;
  if (!parts->port.empty() && port_of(parts->port) != server.port) return false;
  if (!address.empty()) return ip_bytes(parts->host) == address;

  // "example.com" matches itself and names below it, ".example.com" and "*.example.com" only names below it.
  std::string_view domain = parts->host;
  if (domain.starts_with("*.")) domain.remove_prefix(1);
  if (domain.starts_with('.')) return server.host.size() > domain.size() && server.host.ends_with(domain);
  return server.host == domain || server.host.ends_with("." + std::string(domain));
}

// The first of the two variables that is set and not empty.
Environment::const_iterator first_of(const Environment& environment, const char* name, const char* other) {
  for (const char* const each : {name, other})
    if (const auto found = environment.find(each); found != environment.end() && !found->second.empty())
      return found;
  return environment.end();
}

}  // namespace

bool is_host(std::string_view text) {
  const bool is_name = !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '.' || c == '_';
  });
  return is_name || !ip_bytes(text).empty();
}

Result<ServerAddress> ServerAddress::parse(std::string_view url) {
  ServerAddress out;
  std::string_view rest = url;
  if (rest.starts_with(kTls)) {
    rest.remove_prefix(kTls.size());
  } else if (rest.starts_with(kPlain)) {
    rest.remove_prefix(kPlain.size());
    out.tls = false;
  } else {
    return wrong(url, "it begins with neither https:// nor http://");
  }
  const std::string_view authority = rest.substr(0, rest.find('/'));
  rest.remove_prefix(authority.size());
  // The URL is not shown: it has a password in it.
  if (authority.find('@') != std::string_view::npos)
    return fail(Errc::usage, "a server's address has no credentials in it", "write https://HOST:PORT");
  if (!is_plain(rest) || rest.find_first_of("?#") != std::string_view::npos)
    return wrong(url, "its path has a query, a space or letters that are not ASCII");
  const auto parts = split(authority);
  const bool bare = !authority.starts_with('[') && parts && parts->host.find(':') != std::string::npos;
  if (!parts || bare || !is_host(parts->host))
    return wrong(url, "its host is neither a name nor an IP address");
  out.host = lower(parts->host);
  out.port = out.tls ? kTlsPort : kPlainPort;
  if (!parts->port.empty()) {
    const auto port = port_of(parts->port);
    if (!port) return wrong(url, "its port is not one of 1 to 65535");
    out.port = *port;
  }
  while (rest.ends_with('/')) rest.remove_suffix(1);
  out.path = rest;
  return out;
}

bool ServerAddress::is_loopback() const {
  constexpr char kLoopback = 127;
  const std::string address = ip_bytes(host);
  return host == "localhost" || address == ip_bytes("::1") ||
         (address.size() == sizeof(in_addr) && address.front() == kLoopback);
}

std::string ServerAddress::authority() const {
  const bool six = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", host, six ? "]" : "", port);
}

std::string ServerAddress::text() const {
  return fmt::format("{}{}{}", tls ? kTls : kPlain, authority(), path);
}

Result<std::string> proxy_url(std::string_view text) {
  // Go's clients let a socks5 proxy resolve names; libcurl names that socks5h.
  for (const auto& [scheme, ours] : {std::pair<std::string_view, std::string_view>{"http://", "http://"},
                                     {"https://", "https://"},
                                     {"socks5://", "socks5h://"},
                                     {"socks5h://", "socks5h://"}}) {
    if (!text.starts_with(scheme)) continue;
    std::string_view rest = text.substr(scheme.size());
    while (rest.ends_with('/')) rest.remove_suffix(1);
    const auto parts = split(rest.substr(rest.rfind('@') + 1));
    if (!is_plain(rest) || !parts || !is_host(parts->host) || (!parts->port.empty() && !port_of(parts->port)))
      break;
    return fmt::format("{}{}", ours, rest);
  }
  return fail(Errc::usage, "it is not the URL of a proxy", "write http://HOST:PORT, or https or socks5");
}

Result<std::string> proxy_of_environment(const ServerAddress& server, const Environment& environment) {
  const auto proxy = first_of(environment, "HTTPS_PROXY", "https_proxy");
  // Go's clients use no proxy for this machine itself.
  if (proxy == environment.end() || server.is_loopback()) return std::string();
  const auto exempt = first_of(environment, "NO_PROXY", "no_proxy");
  const std::string list = exempt == environment.end() ? std::string() : exempt->second;
  for (const std::string& word : words_between(list, ',')) {
    const std::string_view entry = trimmed(word, " ");
    if (!entry.empty() && is_exempt(server, lower(entry))) return std::string();
  }
  const bool has_scheme = proxy->second.find("://") != std::string::npos;
  auto url = proxy_url(has_scheme ? proxy->second : "http://" + proxy->second);
  if (!url) return fail(std::move(url).error().during(proxy->first));
  return url;
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kHost = "KUBERNETES_SERVICE_HOST";
constexpr const char* kPort = "KUBERNETES_SERVICE_PORT";

tl::unexpected<Error> invalid(Error error, std::string hint) {
  return fail(Errc::invalid_config, std::move(error.message), std::move(hint));
}

Result<std::string> text_in(const fs::path& file) {
  CredentialReader reader({.text = {}, .file = file});
  const auto text = reader.now();
  if (!text) return fail(text.error());
  return **text;
}

}  // namespace

Result<ClusterAccess> access_from_pod(const Environment& environment, const fs::path& service_account) {
  ClusterAccess out;
  const std::string host = value_of(environment, kHost);
  const bool six = host.find(':') != std::string::npos;
  auto server = ServerAddress::parse(
      fmt::format("https://{}{}{}:{}", six ? "[" : "", host, six ? "]" : "", value_of(environment, kPort)));
  if (!server || !server->path.empty())
    return fail(Errc::invalid_config,
                fmt::format("{}='{}' and {}='{}' are not where an API server is", kHost, host, kPort,
                            value_of(environment, kPort)),
                "Kubernetes sets both in each container");
  out.server = std::move(*server);
  auto proxy = proxy_of_environment(out.server, environment);
  if (!proxy) return invalid(std::move(proxy).error(), "correct the variable");
  out.proxy = std::move(*proxy);
  out.token.file = service_account / "token";
  out.authorities.file = service_account / "ca.crt";
  for (const fs::path& file : {out.token.file, out.authorities.file}) {
    if (auto text = text_in(file); !text)
      return invalid(std::move(text).error(), "the pod needs a service account whose token is mounted");
  }
  // The namespace file is not mounted everywhere, and only Ferry reads it, so it may be missing.
  out.default_namespace = text_in(service_account / "namespace").value_or("");
  return out;
}

Result<ClusterAccess> cluster_access(const AccessChoice& choice, const Environment& environment,
                                     const fs::path& service_account) {
  fs::path kubeconfig = choice.kubeconfig;
  const std::string list = kubeconfig.empty() ? value_of(environment, "KUBECONFIG") : std::string();
  for (const fs::path file : words_between(list, ':')) {
    std::error_code ignored;
    if (file.empty() || !fs::exists(file, ignored)) continue;
    if (!kubeconfig.empty())
      return fail(Errc::invalid_config,
                  fmt::format("KUBECONFIG names several files, {} and {}, and one is read here",
                              kubeconfig.string(), file.string()),
                  "name one, or write them into one: kubectl config view --flatten");
    kubeconfig = file;
  }
  if (kubeconfig.empty() && !list.empty())
    return fail(Errc::invalid_config, "none of the files in KUBECONFIG is there: " + list,
                "name one that is, or unset it");

  if (kubeconfig.empty()) {
    if (!value_of(environment, kHost).empty() && choice.context.empty())
      return access_from_pod(environment, service_account);
    const fs::path home = value_of(environment, "HOME");
    kubeconfig = home / ".kube" / "config";
    std::error_code ignored;
    if (home.empty() || !fs::exists(kubeconfig, ignored))
      return fail(Errc::usage, "no cluster is known: this is no pod, and there is no kubeconfig",
                  "name one with --kubeconfig or KUBECONFIG");
  }
  auto file = read_config_text(kubeconfig);
  if (!file) return fail(std::move(file).error());
  return access_from_kubeconfig(*file, choice.context, environment);
}

}  // namespace ferry::kube
