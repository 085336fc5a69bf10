// SPDX-License-Identifier: Apache-2.0
// Checks that this host can give its accelerators to VMs, and names the changes that it needs.
//
// The checks write nothing, load no module and open no device node; reading the link of a sleeping function
// wakes it for a moment. sysfs decides if there is an IOMMU; the kernel's command line only explains why.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/check.h"
#include "hostfs/host_fs.h"
#include "vfio/judgement/judge.h"
#include "vfio/pci/device_facts.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/kernel_options.h"

namespace ferry::vfio {

/// The checks of the host come first, then those of each accelerator, by address: one for each check of the
/// rules (finding.h), and those of facts that keep no VM from it. The last are the checks of the rules for a
/// function on a vfio driver that counts only where it is named, if `findings` has it (judge_all()). Ids are
/// stable; the order of checks is not.
std::vector<Check> passthrough_checks(const HostFs& host, const Inventory& inventory,
                                      const AcceleratorRules& rules, const GpuFindings& findings);

/// Checks that NVIDIA's CC manager does not reset GPUs under VMs. It does so for a change of the Node's label
/// nvidia.com/cc.mode, and looks at no VM. Absent: it does not serve this host.
std::optional<Check> cc_manager_check(const HostFs& host, const Inventory& inventory,
                                      const GpuFindings& findings);

}  // namespace ferry::vfio

// The parts of passthrough_checks(), by topic.
namespace ferry::vfio::checks {

/// Isolation of devices: firmware, IOMMU, interrupts, and settings that weaken them.
std::vector<Check> of_isolation(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules,
                                const Result<KernelCommandLine>& command_line);
/// Availability of vfio, and other programs that set drivers.
std::vector<Check> of_vfio_setup(const HostFs& host, const Inventory& inventory,
                                 const std::vector<PciAddress>& accelerators,
                                 const Result<KernelCommandLine>& command_line);
/// The checks that the judgement of an accelerator's unit decides.
std::vector<Check> of_rules(const Inventory& inventory, const AcceleratorRules& rules,
                            const PciFunction& function, const std::vector<Finding>& findings);
/// Bridges above the function that put more than its card into its group.
Check bridge_check(const HostFs& host, const Inventory& inventory, const PciFunction& function);
/// Use of the function by the host's own console.
Check console_check(const HostFs& host, const PciFunction& function);
/// Condition of the function for a VM: reset, power, BARs, link, NUMA.
std::vector<Check> of_condition(const HostFs& host, const PciFunction& function, const DeviceFacts& facts);

/// Sizes of the function's BARs, which a guest cannot change.
Check bar_size_check(const HostFs& host, const PciFunction& function, const DeviceFacts& facts);
/// The ROM with which a guest's firmware draws on the function.
Check rom_check(const PciFunction& function, const DeviceFacts& facts);

/// The reason why an existing `attribute` could not be read and is absent in `facts`; "" otherwise.
std::string trouble_with(const DeviceFacts& facts, std::string_view attribute);

}  // namespace ferry::vfio::checks
