// SPDX-License-Identifier: Apache-2.0
#include "policy/kubernetes_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

// A file that is read as a Node object, and as one that holds profiles or policies.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static const std::filesystem::path path = tree.path() / "object.yaml";
  tree.file("object.yaml", text);
  const auto says_where = [](const Error& error) {
    require(error.code == Errc::invalid_config, "a refusal is an invalid configuration");
    require(error.message.find("object.yaml") != std::string::npos, "a refusal says where");
  };
  if (const auto profiles = policy::read_profile_file(path); !profiles) says_where(profiles.error());
  if (const auto policies = policy::read_policy_file(path); !policies) says_where(policies.error());
  const auto node = policy::read_node_object(path);
  if (!node) return says_where(node.error());
  const auto name = policy::profile_name(*node, std::nullopt);
  if (!name) return says_where(name.error());
  require(!name->empty() && node->labels.at(policy::kVgpuConfigLabel) == *name, "the label is the name");
}
