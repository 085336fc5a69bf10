// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/placed_runtime.h"

#include <initializer_list>
#include <string_view>

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

PlacedRuntime placed_runtime(const std::string& name, const std::filesystem::path& file,
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

RuntimeHandler handler_of(const PlacedRuntime& placed) {
  RuntimeHandler out{.name = placed.name,
                     .shim = placed.shim,
                     .configuration = placed.configuration,
                     .pod_annotations = placed.pod_annotations,
                     .container_annotations = placed.container_annotations};
  if (!placed.snapshotter.empty()) out.snapshotter = placed.snapshotter;
  return out;
}

}  // namespace ferry::kata
