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

/// Puts driver_override into each of `functions` that `inventory` has, each waited for up to `deadline`. One
/// whose driver hangs has its `problem` set and stays without; so does one that a write which hangs
/// (stuck_writes.h) concerns, unread and with no problem: that is told by who planned it. No such attribute
/// is the same as unset.
void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline = kReadDeadline);

}  // namespace ferry
