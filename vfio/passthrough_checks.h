// SPDX-License-Identifier: Apache-2.0
// Can this host give its accelerators to VMs whole, and if not, what would have to be changed where?
//
// Looks only: nothing is written, no module loaded, no device node opened; reading the link of a function
// that sleeps wakes it for a moment. Whether there is an IOMMU is sysfs's to say; the kernel's command line
// only explains why there is none.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "vfio/inventory.h"

namespace ferry {

/// Those about the host first, then those of each accelerator, by address. Ids are stable, their order is
/// not.
std::vector<Check> passthrough_checks(const HostFs& host, const Inventory& inventory,
                                      const AcceleratorRules& rules);

}  // namespace ferry
