// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/configured_runtime.h"

#include <utility>

#include "kata-manager/containerd/containerd_config.h"

namespace ferry::kata {

ConfiguredRuntime configured_runtime(const std::string& name, const std::filesystem::path& file,
                                     const TomlTable& entry) {
  ConfiguredRuntime out{{.name = name,
                         .shim = text_at(entry, {"runtime_path"}),
                         .configuration = text_at(entry, {"options", "ConfigPath"}),
                         .pod_annotations = texts_at(entry, {"pod_annotations"}),
                         .container_annotations = texts_at(entry, {"container_annotations"})},
                        file,
                        text_at(entry, {"runtime_type"})};
  if (auto snapshotter = text_at(entry, {"snapshotter"}); !snapshotter.empty())
    out.snapshotter = std::move(snapshotter);
  return out;
}

std::vector<UnmarkedRuntime> unmarked_runtimes(const TomlTable& root) {
  std::vector<UnmarkedRuntime> out;
  const TomlTable* plugins = find_table(root, {"plugins"});
  if (plugins == nullptr) return out;
  for (const auto& [id, section] : *plugins) {
    const TomlTable* runtimes = find_table(*plugins, {id, "containerd", "runtimes"});
    if (runtimes == nullptr) continue;
    for (const auto& [name, entry] : *runtimes) {
      if (!is_configuration_of_ferry(text_at(*runtimes, {name, "options", "ConfigPath"}))) continue;
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
