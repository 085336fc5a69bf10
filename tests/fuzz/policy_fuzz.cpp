// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_export.h"
#include "policy/policy_yaml.h"
#include "tests/fuzz/fuzz.h"

// What is read of a policy file is what is read of it as we would write it.
void ferry::fuzz::one_input(std::string_view text) {
  const ConfigText source{.file = "policy.yaml", .text = std::string(text)};
  const auto file = policy::read_policies(source);
  if (!file) {
    require(file.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
    return require(file.error().message.starts_with("policy.yaml"), "a refusal says where");
  }
  const std::string written = policy::policy_text(*file);
  const auto again = policy::read_policies({.file = "again.yaml", .text = written});
  require(again.has_value(), "what we write we can read");
  require(again->policies.size() == file->policies.size(), "with all policies");
  require(policy::policy_text(*again) == written, "and write again");
}
