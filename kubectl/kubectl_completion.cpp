// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "kubectl/kubectl_program.h"

namespace ferry::kubectl {
namespace {

/// The names that the positional takes: NODE, NODE..., or NODE|vm... of `doctor`.
cli::Names names_of(const cli::OptionModel& positional, const cli::WordsBefore& before,
                    const AskForNames& ask) {
  const std::vector<std::string>& words = before.positionals;
  const bool is_target = positional.value.starts_with("NODE|vm");
  const bool is_vm = is_target && words.size() == 1 && words.front() == "vm";
  const bool is_node = positional.value.starts_with("NODE") && (!is_target || words.empty());
  if (!is_node && !is_vm) return {};
  cli::Names out;
  if (is_target && is_node) out["vm"] = "a VM, as NAMESPACE/NAME";
  for (std::string& name :
       ask({.kind = is_vm ? NameQuestion::Kind::vms : NameQuestion::Kind::nodes, .options = before.values}))
    out.emplace(std::move(name), "");
  return out;
}

}  // namespace

bool is_kubectl_completion(std::string_view name) {
  return std::filesystem::path(name).filename() == "kubectl_complete-ferry";
}

std::string kubectl_completion(const cli::CommandModel& root, const std::vector<std::string>& words,
                               const AskForNames& ask) {
  return cli::completions(root, words,
                          [&ask](const cli::OptionModel& option, const cli::WordsBefore& before) {
                            return names_of(option, before, ask);
                          });
}

}  // namespace ferry::kubectl
