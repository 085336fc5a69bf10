// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "common/check.h"
#include "hostfs/host_fs.h"
#include "vfio/judgement/finding.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {

/// Checks that NVIDIA's CC manager does not reset GPUs under VMs. It does so for a change of the Node's label
/// nvidia.com/cc.mode, and looks at no VM. Absent: it does not serve this host.
std::optional<Check> cc_manager_check(const HostFs& host, const Inventory& inventory,
                                      const GpuFindings& findings);

}  // namespace ferry::vfio
