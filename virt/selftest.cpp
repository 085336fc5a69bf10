// SPDX-License-Identifier: Apache-2.0
#include "virt/selftest.h"

#include <algorithm>

namespace ferry::virt {

bool SelftestReport::passed() const {
  return !devices.empty() && std::ranges::all_of(devices, [](const SelftestDevice& device) {
    return device.seen_as.has_value();
  });
}

}  // namespace ferry::virt
