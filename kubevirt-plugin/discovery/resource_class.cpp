// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/resource_class.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::plugin {

std::vector<ResourceClass> with_one_class_a_name(std::vector<ResourceClass> classes,
                                                 std::vector<std::string>& notes) {
  std::ranges::sort(classes);
  std::map<std::string, std::string> values;  // by name
  std::erase_if(classes, [&](const ResourceClass& one) {
    const std::string& first = values.emplace(one.resource, one.value).first->second;
    if (first == one.value) return false;
    notes.push_back(
        fmt::format("{} is left out: {} is the name of {}, too; an alias (plugin.aliases) tells them apart",
                    one.value, one.resource, first));
    return true;
  });
  return classes;
}

std::string device_classes_text(const std::vector<ResourceClass>& classes) {
  std::string out = "dra:\n  deviceClasses:\n    more:\n";
  for (const ResourceClass& one : classes)
    out += fmt::format("    - {{{}: \"{}\", extendedResourceName: {}}}\n", one.key, one.value, one.resource);
  return out;
}

nlohmann::json device_classes_document(const std::vector<ResourceClass>& classes) {
  auto more = nlohmann::json::array();
  for (const ResourceClass& one : classes)
    more.push_back({{one.key, one.value}, {"extendedResourceName", one.resource}});
  return {{"dra", {{"deviceClasses", {{"more", std::move(more)}}}}}};
}

}  // namespace ferry::plugin
