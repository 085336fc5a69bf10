// SPDX-License-Identifier: Apache-2.0
// Can this host divide its accelerators into vGPUs, and if not, what would have to be changed where?
//
// Looks only. Each GPU's framework is what sysfs shows now: before its virtual functions exist, nobody can
// tell which of two it will be.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "vfio/inventory.h"

namespace ferry {

/// Those about the host first, then those of each accelerator, by address. Ids are stable, their order is
/// not.
std::vector<Check> vgpu_checks(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules);

}  // namespace ferry
