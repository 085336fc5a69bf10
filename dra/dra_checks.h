// SPDX-License-Identifier: Apache-2.0
// Checks that this host can give its GPUs to ResourceClaims, as far as the host shows it. The API server
// knows more: `kubectl ferry doctor`. The checks write nothing.
#pragma once

#include <vector>

#include "common/check.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/inventory.h"

namespace ferry::dra {

/// The checks of the host come first, then those of each accelerator, by address. Ids are stable; the order
/// of checks is not.
std::vector<Check> dra_checks(const HostFs& host, const vfio::Inventory& inventory,
                              const vfio::AcceleratorRules& rules);

}  // namespace ferry::dra
