// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/runtime_class.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/labels.h"
#include "common/config/config_tree.h"
#include "common/text/text.h"

namespace ferry::kata {
namespace {

using nlohmann::json;
using Words = std::map<std::string, std::string>;

constexpr const char* kApi = "node.k8s.io/v1";
constexpr const char* kManagedBy = "app.kubernetes.io/managed-by";

Words ready_selector(KataKind kind) {
  switch (kind) {
    case KataKind::gpu:
    case KataKind::vgpu:
      return {};
    case KataKind::snp:
      return {{api::kCcReadyLabel, "true"}, {"amd.feature.node.kubernetes.io/snp", "true"}};
    case KataKind::tdx:
      return {{api::kCcReadyLabel, "true"}, {"intel.feature.node.kubernetes.io/tdx", "true"}};
  }
  return {};
}

/// Quoted if YAML would not read the text as the same string.
std::string word(const std::string& text) {
  const auto is_safe = [](char c) {
    return is_alphanumeric(c) || c == '.' || c == '/' || c == '-' || c == '_';
  };
  const bool plain =
      !text.empty() && text.front() != '-' && std::ranges::all_of(text, is_safe) && is_plain_string(text);
  return plain ? text : json(text).dump();
}

std::string lines(const Words& words, std::string_view indent) {
  std::string out;
  for (const auto& [key, value] : words) out += fmt::format("{}{}: {}\n", indent, word(key), word(value));
  return out;
}

}  // namespace

std::uint64_t guest_memory_mib(const KataClass& kata) {
  const TomlTable* hypervisors = find_table(kata.configuration, {"hypervisor"});
  if (hypervisors == nullptr) return kGuestMemoryMib;
  for (const auto& [name, settings] : *hypervisors) {
    const auto memory = integer_at(*hypervisors, {name, "default_memory"});
    if (memory && *memory > 0) return static_cast<std::uint64_t>(*memory);
  }
  return kGuestMemoryMib;
}

std::vector<RuntimeClass> runtime_classes(const KataClass& kata) {
  const std::string memory = fmt::format("{}Mi", guest_memory_mib(kata) + kBesideGuestMib);
  std::vector<RuntimeClass> all;
  for (const std::string& handler : kata.handlers())
    all.push_back({.handler = handler,
                   .node_selector = kata.node_selector.value_or(ready_selector(kata.kind)),
                   .overhead = kata.overhead.value_or(Words{{"cpu", "1"}, {"memory", memory}})});
  return all;
}

std::string runtime_classes_yaml(std::span<const RuntimeClass> classes) {
  std::string out;
  for (const RuntimeClass& one : classes) {
    if (!out.empty()) out += "---\n";
    out += fmt::format(
        "apiVersion: {0}\nkind: RuntimeClass\nmetadata:\n  name: {1}\n  labels:\n    {2}: ferry\nhandler: "
        "{1}\n",
        kApi, word(one.handler), kManagedBy);
    if (!one.overhead.empty()) out += "overhead:\n  podFixed:\n" + lines(one.overhead, "    ");
    if (!one.node_selector.empty())
      out += "scheduling:\n  nodeSelector:\n" + lines(one.node_selector, "    ");
  }
  return out;
}

std::string runtime_classes_json(std::span<const RuntimeClass> classes) {
  json items = json::array();
  for (const RuntimeClass& one : classes) {
    json object = {{"apiVersion", kApi},
                   {"kind", "RuntimeClass"},
                   {"metadata", {{"name", one.handler}, {"labels", {{kManagedBy, "ferry"}}}}},
                   {"handler", one.handler}};
    if (!one.overhead.empty()) object["overhead"]["podFixed"] = one.overhead;
    if (!one.node_selector.empty()) object["scheduling"]["nodeSelector"] = one.node_selector;
    items.push_back(std::move(object));
  }
  constexpr int kIndent = 2;
  return json{{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}}.dump(kIndent) + "\n";
}

}  // namespace ferry::kata
