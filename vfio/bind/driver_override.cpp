// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/driver_override.h"

#include <algorithm>

#include "hostfs/stuck_writes.h"

namespace ferry::vfio {
namespace {

Error still_read(const StuckWrite& act) {
  return {.code = make_error_code(Errc::stuck),
          .message = "an earlier act has not returned from the kernel: " + act.act,
          .hint = kLockedHint};
}

}  // namespace

void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline) {
  const auto stuck = stuck_writes(host).value_or(std::vector<StuckWrite>{});
  for (const PciAddress& address : functions) {
    const auto found = inventory.functions.find(address);
    if (found == inventory.functions.end()) continue;
    PciFunction& function = found->second;
    const auto hangs =
        std::ranges::find_if(stuck, [&](const StuckWrite& act) { return concerns(act, address.text()); });
    if (hangs != stuck.end()) {
      function.override_unread = true;
      if (is_read(*hangs) && !function.problem) function.problem = still_read(*hangs);
      continue;
    }
    auto text = reader.read(sysfs_path(address) / "driver_override", deadline);
    if (text) {
      if (*text != "(null)" && !text->empty()) function.driver_override = std::move(*text);
    } else if (!is_gone(text.error())) {
      function.override_unread = true;
      if (!function.problem) function.problem = std::move(text).error();
    }
  }
}

}  // namespace ferry::vfio
