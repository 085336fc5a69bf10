// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/configured_runtime.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "kata-manager/containerd/containerd_config.h"

namespace ferry::kata {
namespace {

std::string text_at(const TomlTable& entry, std::initializer_list<std::string_view> keys) {
  const TomlValue* value = find(entry, keys);
  return value != nullptr && value->string() != nullptr ? *value->string() : std::string();
}

std::vector<std::string> texts_at(const TomlTable& entry, std::string_view key) {
  const TomlValue* value = find(entry, {key});
  std::vector<std::string> out;
  if (value == nullptr || value->array() == nullptr) return out;
  for (const TomlValue& text : *value->array())
    out.push_back(text.string() != nullptr ? *text.string() : std::string());
  return out;
}

}  // namespace

ConfiguredRuntime configured_runtime(const std::string& name, const std::filesystem::path& file,
                                     const TomlTable& entry) {
  return {.name = name,
          .file = file,
          .type = text_at(entry, {"runtime_type"}),
          .shim = text_at(entry, {"runtime_path"}),
          .configuration = text_at(entry, {"options", "ConfigPath"}),
          .snapshotter = text_at(entry, {"snapshotter"}),
          .pod_annotations = texts_at(entry, "pod_annotations"),
          .container_annotations = texts_at(entry, "container_annotations")};
}

RuntimeHandler handler_of(const ConfiguredRuntime& placed) {
  RuntimeHandler out{.name = placed.name,
                     .shim = placed.shim,
                     .configuration = placed.configuration,
                     .pod_annotations = placed.pod_annotations,
                     .container_annotations = placed.container_annotations};
  if (!placed.snapshotter.empty()) out.snapshotter = placed.snapshotter;
  return out;
}

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
