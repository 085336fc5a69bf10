// SPDX-License-Identifier: Apache-2.0
// What is read of a kubeconfig is a way that we may go, and what is refused is so with its place.
#include <algorithm>

#include "kube/cluster_access.h"
#include "kube/exec_credential.h"
#include "tests/fuzz/fuzz.h"

namespace ferry::fuzz {
namespace {

Result<kube::ClusterAccess> read(std::string_view text, kube::AccessFor reader) {
  const ConfigText source{.file = "folder/config", .text = std::string(text)};
  auto access = kube::access_from_kubeconfig({source}, "", {{"HTTPS_PROXY", "proxy:3128"}}, reader);
  if (access) return access;
  require(access.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
  require(access.error().message.starts_with("folder/config:"), "a refusal says where");
  return access;
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

void check(const kube::ClusterAccess& access) {
  const kube::ServerAddress& server = access.server;
  require(server.tls || (server.is_loopback() && access.proxy.empty()), "only this machine goes without TLS");
  const auto again = kube::ServerAddress::parse(server.text());
  require(again.has_value() && *again == server, "a server's address is what it says");
  require(access.certificate.empty() == access.key.empty(), "a certificate has its key");
  require(access.token.empty() || access.username.empty(), "we are one user");
  require(access.token.text.find_first_of(" \r\n") == std::string::npos, "a token stands in a header");
  for (const std::string& header : access.impersonation) {
    require(header.starts_with("Impersonate-") && header.find(": ") != std::string::npos,
            "a header has a value");
    require(!has_control(header), "a header is one line");
  }
  if (!access.exec) return;
  require(access.token.empty() && access.certificate.empty() && access.username.empty(),
          "a program is for a user without credentials");
  require(!access.exec->command.empty() && !has_control(access.exec->command), "a program has a name");
  require(access.exec->program.empty() == (access.exec->command.find('/') == std::string::npos),
          "a path is no name in PATH");
  for (const std::string& word : access.exec->arguments)
    require(word.find('\0') == std::string::npos, "an argument is whole");
  require(!kube::exec_info(*access.exec, false, "").empty(), "a program is given its information");
}

}  // namespace
}  // namespace ferry::fuzz

void ferry::fuzz::one_input(std::string_view text) {
  const auto person = read(text, kube::AccessFor::person);
  if (person) check(*person);
  const auto service = read(text, kube::AccessFor::service);
  if (!service) return;
  check(*service);
  require(person.has_value(), "a person may have all that a service may");
  require(!service->exec && !service->insecure && service->impersonation.empty(),
          "a service runs no program, verifies the server and is itself");
  for (const kube::Credential* credential :
       {&service->authorities, &service->certificate, &service->key, &service->token})
    require(credential->text.empty() || credential->file.empty(), "a credential is in one place");
}
