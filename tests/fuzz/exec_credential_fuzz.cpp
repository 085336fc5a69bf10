// SPDX-License-Identifier: Apache-2.0
// The output of a program that logs in is credentials that can be sent, or refused without being shown.
#include "kube/credential_file.h"
#include "kube/exec_credential.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  static_cast<void>(kube::parse_rfc3339(text));
  for (const char* version : {"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}) {
    const auto credential = kube::parse_exec_credential(text, version);
    if (!credential) {
      require(credential.error().code == Errc::failed && !credential.error().message.empty(),
              "a refusal has a reason");
      continue;
    }
    require(credential->certificate.empty() == credential->key.empty(), "a certificate has its key");
    require(!credential->token.empty() || !credential->certificate.empty(), "there is a credential");
    const auto word = kube::token_of(credential->token);
    require(credential->token.empty() || (word.has_value() && *word == credential->token),
            "a token stands in a header");
  }
}
