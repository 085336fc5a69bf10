// SPDX-License-Identifier: Apache-2.0
// Reads driver_override apart from all other facts. The kernel shows it under the device's lock
// (drivers/pci/pci-sysfs.c); a hanging driver keeps that lock, and the reader then hangs too.
#pragma once

#include <chrono>
#include <span>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "vfio/inventory.h"

namespace ferry {

/// Sets driver_override in each of `functions` that `inventory` has; each read waits up to `deadline`. A
/// missing attribute counts as unset. A failed read sets `override_unread`, and the reason as the function's
/// `problem`. A function with a stuck read or write (stuck_writes.h) is not read but set `override_unread`; a
/// stuck write sets no problem, since the plan reports it.
void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline = kReadDeadline);

}  // namespace ferry
