// SPDX-License-Identifier: Apache-2.0
// The first line is a server's address, the second a proxy, the rest what needs none.
#include "kube/cluster_access.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto [url, rest] = first_line(text);
  const auto [proxy, exempt] = first_line(rest);
  const auto server = kube::ServerAddress::parse(url);
  if (!server) return require(!server.error().hint.empty(), "a refusal says what to write");
  const auto again = kube::ServerAddress::parse(server->text());
  require(again.has_value() && *again == *server, "what we write we can read");
  require(kube::is_host(server->host), "its host is one");
  const auto chosen = kube::proxy_of_environment(
      *server, {{"HTTPS_PROXY", std::string(proxy)}, {"NO_PROXY", std::string(exempt)}});
  if (!chosen) return require(chosen.error().message.starts_with("HTTPS_PROXY: "), "it says which variable");
  require(chosen->empty() || !server->is_loopback(), "this machine is reached without a proxy");
  require(chosen->empty() || kube::proxy_url(*chosen).value_or("") == *chosen, "a proxy is a URL of one");
}
