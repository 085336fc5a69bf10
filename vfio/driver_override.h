// SPDX-License-Identifier: Apache-2.0
// What functions' driver_override says, read apart from all else: the kernel shows it under the lock of the
// device (drivers/pci/pci-sysfs.c), which a driver that hangs keeps, and whoever reads it then hangs too.
#pragma once

#include <chrono>
#include <span>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "vfio/inventory.h"

namespace ferry {

/// Puts driver_override into each of `functions` that `inventory` has, each waited for up to `deadline`. No
/// such attribute is the same as unset. What cannot be read is marked `override_unread`, with the reason as
/// the function's `problem`; so is one that an act which hangs (stuck_writes.h) concerns, without being read,
/// and without a problem where that act is a write: of those the plan tells.
void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline = kReadDeadline);

}  // namespace ferry
