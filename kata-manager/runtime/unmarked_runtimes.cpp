// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/unmarked_runtimes.h"

#include <utility>

#include "kata-manager/classes/runtime_handler.h"
#include "kata-manager/containerd/containerd_config.h"

namespace ferry::kata {
namespace {

bool has_configuration_of_ferry(const TomlTable& entry) {
  const TomlValue* path = find(entry, {"options", "ConfigPath"});
  const std::string* text = path == nullptr ? nullptr : path->string();
  return text != nullptr && is_configuration_of_ferry(*text);
}

}  // namespace

std::vector<UnmarkedRuntime> unmarked_runtimes(const TomlTable& root) {
  std::vector<UnmarkedRuntime> out;
  const TomlValue* plugins = find(root, {"plugins"});
  if (plugins == nullptr || plugins->table() == nullptr) return out;
  for (const auto& [id, section] : *plugins->table()) {
    const TomlValue* runtimes =
        section.table() == nullptr ? nullptr : find(*section.table(), {"containerd", "runtimes"});
    if (runtimes == nullptr || runtimes->table() == nullptr) continue;
    for (const auto& [name, entry] : *runtimes->table()) {
      if (entry.table() == nullptr || !has_configuration_of_ferry(*entry.table())) continue;
      UnmarkedRuntime found{
          .name = name, .entry = *entry.table(), .tables = {{"plugins", id, "containerd", "runtimes", name}}};
      if (find(root, {"plugins", kCriImages, "runtime_platforms", name}) != nullptr)
        found.tables.push_back({"plugins", kCriImages, "runtime_platforms", name});
      out.push_back(std::move(found));
    }
  }
  return out;
}

}  // namespace ferry::kata
