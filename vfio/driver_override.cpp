// SPDX-License-Identifier: Apache-2.0
#include "vfio/driver_override.h"

#include <algorithm>

#include "common/stuck_writes.h"

namespace ferry {

void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline) {
  const auto stuck = stuck_writes(host).value_or(std::vector<StuckWrite>{});
  for (const PciAddress& address : functions) {
    const auto found = inventory.functions.find(address);
    if (found == inventory.functions.end()) continue;
    if (std::ranges::any_of(stuck, [&](const StuckWrite& write) { return concerns(write, address.text()); }))
      continue;
    PciFunction& function = found->second;
    auto text = reader.read(sysfs_path(address) / "driver_override", deadline);
    if (text) {
      if (*text != "(null)" && !text->empty()) function.driver_override = std::move(*text);
    } else if (!is_gone(text.error()) && !function.problem) {
      function.problem = std::move(text).error();
    }
  }
}

}  // namespace ferry
