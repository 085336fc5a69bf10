// SPDX-License-Identifier: Apache-2.0
#include "kubectl/published_classes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dra/names.h"
#include "dra/slices/resource_slice.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_reader.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_name.h"
#include "policy/accelerators.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

/// The options for names of the plugin that a pod runs. Absent: it runs none, or one with wrong options.
std::optional<plugin::NameRules> names_in(const json& pod) {
  for (const json& container : items_field(json_at(pod, "spec"), "containers")) {
    if (ferry_verb_in(container) != "plugin") continue;
    plugin::NameRules out;
    std::vector<std::string> aliases;
    CLI::App app;
    app.allow_extras();
    app.add_option("--alias", aliases)->allow_extra_args(false);
    app.add_option("--name-template", out.functions);
    app.add_option("--vgpu-name-template", out.vgpus);
    std::vector<std::string> words;
    for (const json& word : items_field(container, "args"))
      if (word.is_string()) words.push_back(word.get<std::string>());
    std::ranges::reverse(words);
    try {
      app.parse(words);
    } catch (const CLI::Error&) {
      return std::nullopt;  // such a plugin does not start either
    }
    for (const std::string& text : aliases)
      if (auto alias = plugin::parse_alias(text)) out.aliases.insert(std::move(*alias));
    return out;
  }
  return std::nullopt;
}

std::string attribute(const json& device, const char* name) {
  return text_field(field_at(device, {"attributes", name}), "string");
}

/// "0x10de" without its beginning.
std::string hex_of(const json& device, const char* name) {
  const std::string text = attribute(device, name);
  return text.starts_with("0x") ? text.substr(2) : text;
}

plugin::ResourceClass class_of(const json& device, const plugin::NameRules& names) {
  if (attribute(device, dra::kType) == dra::kVgpu)
    return {"vgpuType", attribute(device, "vgpuType"),
            fmt::format("{}/{}", policy::kResourceDomain, names.vgpu_part(attribute(device, "profile")))};
  const std::string vendor = hex_of(device, "vendorID");
  const std::string ids = fmt::format("{}:{}", vendor, hex_of(device, "deviceID"));
  const std::string product = attribute(device, "productName");
  std::string part = names.function_part(ids, product);
  if (part.empty()) part = hex_of(device, "deviceID");
  std::string domain;  // empty: Ferry has no name for the vendor's domain
  for (const policy::NamedVendor& one : policy::named_vendors())
    if (fmt::format("{:04x}", one.id) == vendor) domain = fmt::format("{}.com", one.name);
  return {"model", ids, fmt::format("{}/{}", domain, part)};
}

}  // namespace

PublishedClasses published_classes(const std::vector<json>& slices, const std::vector<json>& plugins) {
  std::map<std::string, plugin::NameRules> names;  // by node
  plugin::NameRules first;
  for (const json& pod : plugins)
    if (auto rules = names_in(pod)) {
      if (names.empty()) first = *rules;
      names.insert_or_assign(text_field(json_at(pod, "spec"), "nodeName"), std::move(*rules));
    }
  std::set<plugin::ResourceClass> classes;
  std::set<std::string> notes;
  for (const json& slice : slices) {
    const json& spec = json_at(slice, "spec");
    const auto of_node = names.find(text_field(spec, "nodeName"));
    for (const json& device : items_field(spec, "devices")) {
      // A virtual function that a VM gets whole has a claim, and no name of a resource.
      if (attribute(device, "vgpuType").find(':') != std::string::npos) continue;
      auto one = class_of(device, of_node == names.end() ? first : of_node->second);
      if (one.value.empty())
        notes.insert(fmt::format("a type of vGPUs without a short name is left out: {}", one.resource));
      else if (const auto name = plugin::ResourceName::parse(one.resource); !name)
        notes.insert(fmt::format("{} is left out: {}", one.value, name.error().message));
      else
        classes.insert(std::move(one));
    }
  }
  PublishedClasses out{.classes = {}, .notes = {notes.begin(), notes.end()}};
  out.classes = plugin::with_one_class_a_name({classes.begin(), classes.end()}, out.notes);
  return out;
}

}  // namespace ferry::kubectl
