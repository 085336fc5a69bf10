// SPDX-License-Identifier: Apache-2.0
// Checks if this host can divide its accelerators into vGPUs, and which change is needed if not.
//
// The checks write nothing. Each GPU's framework is the one that sysfs shows now: before virtual functions
// exist, it is not known which of two it will be.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "vfio/inventory.h"

namespace ferry {

/// The checks of the host, then the checks of each accelerator, sorted by address. Check IDs are stable;
/// their order is not.
std::vector<Check> vgpu_checks(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules);

}  // namespace ferry
