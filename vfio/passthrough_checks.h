// SPDX-License-Identifier: Apache-2.0
// Checks that this host can give its accelerators to VMs, and names the changes that it needs.
//
// The checks write nothing, load no module and open no device node; reading the link of a sleeping function
// wakes it for a moment. sysfs decides if there is an IOMMU; the kernel's command line only explains why.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "vfio/inventory.h"

namespace ferry {

/// The checks of the host come first, then those of each accelerator, by address. Ids are stable; the order
/// of checks is not.
std::vector<Check> passthrough_checks(const HostFs& host, const Inventory& inventory,
                                      const AcceleratorRules& rules);

}  // namespace ferry
