// SPDX-License-Identifier: Apache-2.0
// What is read of a kubeconfig is a way that we may go, and what is refused is so with its place.
#include "kube/cluster_access.h"
#include "tests/fuzz/fuzz.h"

namespace ferry::fuzz {
namespace {

Result<kube::ClusterAccess> read(std::string_view text) {
  const ConfigText source{.file = "folder/config", .text = std::string(text)};
  auto access = kube::access_from_kubeconfig(source, "", {{"HTTPS_PROXY", "proxy:3128"}});
  if (access) return access;
  require(access.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
  require(access.error().message.starts_with("folder/config:"), "a refusal says where");
  return access;
}

void check(const kube::ClusterAccess& access) {
  const kube::ServerAddress& server = access.server;
  require(server.tls || (server.is_loopback() && access.proxy.empty()), "only this machine goes without TLS");
  const auto again = kube::ServerAddress::parse(server.text());
  require(again.has_value() && *again == server, "a server's address is what it says");
  require(access.certificate.empty() == access.key.empty(), "a certificate has its key");
  require(access.token.empty() || access.username.empty(), "we are one user");
  require(access.token.text.find_first_of(" \r\n") == std::string::npos, "a token stands in a header");
}

}  // namespace
}  // namespace ferry::fuzz

void ferry::fuzz::one_input(std::string_view text) {
  const auto access = read(text);
  if (!access) return;
  check(*access);
  for (const kube::Credential* credential :
       {&access->authorities, &access->certificate, &access->key, &access->token})
    require(credential->text.empty() || credential->file.empty(), "a credential is in one place");
}
