// SPDX-License-Identifier: Apache-2.0
// The parts of passthrough_checks(), by topic.
#pragma once

#include <vector>

#include "common/check.h"
#include "common/host_fs.h"
#include "vfio/device_facts.h"
#include "vfio/inventory.h"
#include "vfio/kernel_command_line.h"

namespace ferry::checks {

/// Whether the host isolates devices: firmware, IOMMU, interrupts, what weakens them.
std::vector<Check> of_isolation(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules,
                                const Result<KernelCommandLine>& command_line);
/// The advice for a host without an active IOMMU, by its processor, firmware tables and command line.
std::string cure_of_inactive_iommu(const HostFs& host);
/// Whether vfio is there to take devices, and who else lays hands on drivers.
std::vector<Check> of_vfio_setup(const HostFs& host, const Inventory& inventory,
                                 const std::vector<PciAddress>& accelerators,
                                 const Result<KernelCommandLine>& command_line);
/// Whether each accelerator can leave: its group, its virtual functions. In order of `accelerators`.
std::vector<Check> of_groups(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules,
                             const std::vector<PciAddress>& accelerators);
/// Whether the bridges above it keep its group from being its card alone.
std::vector<Check> of_acs(const HostFs& host, const Inventory& inventory, const PciFunction& function);
/// Whether the host's own console is drawn on it.
std::vector<Check> of_display(const HostFs& host, const PciFunction& function, const DeviceFacts& facts);
/// Whether a VM would find it in good order: reset, power, BARs, link, NUMA.
std::vector<Check> of_condition(const HostFs& host, const PciFunction& function, const DeviceFacts& facts);

/// Whether its BARs are as large as they could be, and whether a guest's firmware could draw on it.
std::vector<Check> of_bars(const HostFs& host, const PciFunction& function, const DeviceFacts& facts);

/// Why `attribute` is absent in `facts`, when it is there and could not be read; "" otherwise.
std::string trouble_with(const DeviceFacts& facts, std::string_view attribute);

}  // namespace ferry::checks
