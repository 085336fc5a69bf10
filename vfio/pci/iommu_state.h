// SPDX-License-Identifier: Apache-2.0
// The kernel's IOMMUs, and the advice for a host on which none is active.
// ABI: Documentation/ABI/testing/sysfs-class-iommu, sysfs-kernel-iommu_groups;
// Documentation/admin-guide/kernel-parameters.rst; ACPI table signatures of the UEFI forum's list.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/kernel_options.h"

namespace ferry::vfio {

inline constexpr const char* kIommuTables = "sys/firmware/acpi/tables";
inline constexpr const char* kIommuUnits = "sys/class/iommu";
inline constexpr const char* kIommuGroups = "sys/kernel/iommu_groups";

/// The processor's maker decides which words the advice uses for the IOMMU's switch.
struct Processor {
  enum class Maker { intel, amd, arm, other };
  Maker maker = Maker::other;
  bool virtual_machine = false;  ///< this host is a VM itself
};

/// The advice how to switch an IOMMU on in the firmware.
std::string firmware_switch(const Processor& processor);

/// The tables of `names` that announce an IOMMU.
std::vector<std::string> iommu_tables(const std::vector<std::string>& names);

/// The kernel's facts about its IOMMUs, read once for all checks.
struct IommuState {
  Processor processor;
  Result<std::vector<std::string>> tables;
  Result<std::vector<std::string>> units;   ///< empty without the directory: a kernel without IOMMU drivers
  Result<std::vector<std::string>> groups;  ///< the same
  bool device_tree = false;                 ///< is_described_by_device_tree()
  bool active() const { return units && !units->empty() && groups && !groups->empty(); }
};

IommuState read_iommu_state(const HostFs& host);

/// True if a device tree describes the host, in place of ACPI's tables.
bool is_described_by_device_tree(const HostFs& host);

/// The advice for the most likely reason why no IOMMU is active.
std::string cure_of_inactive_iommu(const IommuState& state, const Result<KernelCommandLine>& command_line);

}  // namespace ferry::vfio
