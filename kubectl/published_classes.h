// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry kubevirt-cr --device-classes`: the chart's dra.deviceClasses.more for all devices that the
// nodes publish for claims. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kubevirt-plugin/discovery/resource_class.h"

namespace ferry::kubectl {

struct PublishedClasses {
  std::vector<plugin::ResourceClass> classes;  ///< sorted, each once
  std::vector<std::string> notes;              ///< devices that are left out, and why
};

/// The names follow the options of the node's plugin, as its pod has them. `slices`: the ResourceSlices of
/// Ferry's driver. `plugins`: the pods of plugins; a node without one gets the names of the first.
PublishedClasses published_classes(const std::vector<nlohmann::json>& slices,
                                   const std::vector<nlohmann::json>& plugins);

}  // namespace ferry::kubectl
