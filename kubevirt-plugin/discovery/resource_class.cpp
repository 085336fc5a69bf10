// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/resource_class.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::plugin {

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
