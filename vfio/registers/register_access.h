// SPDX-License-Identifier: Apache-2.0
// Opens the registers of a GPU or NVSwitch on vfio-pci or without a driver, in a child of the host writer.
#pragma once

#include <memory>
#include <string>
#include <system_error>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_function.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/reading_record.h"
#include "vfio/registers/registers.h"

namespace ferry::vfio {

/// The code of the error of a Blackwell GPU whose registers cannot be read yet, as while it boots.
extern const std::error_code kFirewallUp;

/// The problem of a function whose kernel writes no config space and maps no memory of devices.
/// ABI: LOCKDOWN_PCI_ACCESS, drivers/pci/pci-sysfs.c.
inline constexpr const char* kLockedDown =
    "the kernel is locked down, as with Secure Boot, and maps no registers";

/// The reason that the errno of a failed mapping gives (MappedRegisters::map).
std::string why_not_mapped(const Error& error);

bool is_switch(const PciFunction& function);

/// Wakes a function, enables its memory range, and maps its registers. The caller undoes the changes that
/// this needs, by the record. Errors: std::errc::device_or_resource_busy, a user has opened it; kFirewallUp;
/// Errc::refused, its registers are not known or not free; others, it cannot be reached.
Result<std::unique_ptr<MappedRegisters>> open_registers(const HostFs& host, ReadingRecord& record,
                                                        const PciFunction& function,
                                                        MappedRegisters::Access access);

/// The word in config space that says more about a security fault, for a message; empty: it cannot be read.
std::string fault_detail(const HostFs& host, const PciAddress& address, ChipFamily family);

}  // namespace ferry::vfio
