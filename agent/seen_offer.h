// SPDX-License-Identifier: Apache-2.0
// The part of the plugin's file (kubevirt-plugin/offered_file.h) that is shown as metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/plugin_files.h"
#include "common/result.h"

namespace ferry {

struct SeenDevice {
  std::string id;  ///< an address, a UUID, or for Kata a number
  std::uint32_t iommu_group = 0;
  bool healthy = false;
  bool allocated = false;
  bool held_with_group = false;  ///< Unhealthy only because a pod has another device of its IOMMU group
  std::string pod = {};          ///< "namespace/name", who has it; empty: nobody, or it is not known
};

struct SeenResource {
  std::string name;
  bool registered = false;  ///< the kubelet reads its list
  std::vector<SeenDevice> devices = {};
};

struct SeenOffer {
  std::vector<SeenResource> resources;
  std::vector<std::string> not_offered;  ///< IDs
  bool stands_back = false;              ///< the kubelet is told of none: another's plugin serves the node
};

/// Keys that are not known are passed over: they are only ever added. Errc::malformed_host says where.
Result<SeenOffer> read_seen_offer(std::string_view text);

}  // namespace ferry
