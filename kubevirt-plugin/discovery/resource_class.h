// SPDX-License-Identifier: Apache-2.0
// DeviceClasses by which pods get devices of claims under the names that the device plugin has for such
// devices, as the chart's value dra.deviceClasses.more in its short form.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ferry::plugin {

struct ResourceClass {
  std::string key;    ///< "model" or "vgpuType"
  std::string value;  ///< "10de:26b9", "L40S-6Q"
  std::string resource;
  auto operator<=>(const ResourceClass&) const = default;
};

/// The sorted list in which each name stands once, since Kubernetes takes one class of a name. `notes` gets a
/// line for each entry that is left out.
std::vector<ResourceClass> with_one_class_a_name(std::vector<ResourceClass> classes,
                                                 std::vector<std::string>& notes);

/// The value for `helm upgrade -f`, as YAML and as JSON.
std::string device_classes_text(const std::vector<ResourceClass>& classes);
nlohmann::json device_classes_document(const std::vector<ResourceClass>& classes);

}  // namespace ferry::plugin
