// SPDX-License-Identifier: Apache-2.0
// The facts about units of accelerators that a scan leaves out, since only a judgement needs them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/stuck_writes.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_address.h"

namespace ferry::vfio {

/// Reads, of the functions that count as accelerators by `rules` or could be named, and of their groups:
/// reserved regions, the firmware's framebuffer inside their BARs (proc/iomem), the nodes for VMs, and
/// whether network functions in their groups and slots manage NVSwitches. A fact that cannot be read stays
/// unknown. It wakes no function but one that may manage NVSwitches. Reading the regions takes a lock of the
/// group, so no thread that answers the kubelet may call it.
///
/// ABI: a ConnectX function that manages the NVSwitches of an NVLink 5 board has SW_MNG in its vital product
/// data (sysfs `vpd`, for root alone). Its reset resets the switches of all tenants.
void read_unit_facts(const HostFs& host, const AcceleratorRules& rules, Inventory& inventory);

/// Wakes those of `functions` that are asleep, and reads whether they answer (wake()).
void wake_sleepers(const HostFs& host, std::span<const PciAddress> functions, Inventory& inventory);

/// The functions that one of `writes` concerns, for Observed::stuck. Reads are left out.
std::set<std::string> stuck_functions(std::span<const StuckWrite> writes, const Inventory& inventory);

/// A number that a function's binding to its driver has: the inode of the link to the driver. Two bindings of
/// one boot differ in it. 0: the function has no driver, or it cannot be read.
/// ABI: drivers/base/dd.c, driver_sysfs_add(); fs/kernfs/dir.c since Linux 4.14.
std::uint64_t binding_of(const HostFs& host, const PciAddress& function);

/// For a process that scans often: reads a sleeping function once for each binding, and remembers the answer.
class BusMemory {
 public:
  /// Sets `bus` and `problem` of those of `functions` that are asleep.
  void look(const HostFs& host, std::span<const PciAddress> functions, Inventory& inventory);
  /// Forgets the functions that have answered: another look of this process contradicts one of them.
  void doubt();

 private:
  struct Seen {
    std::string ids;
    std::uint64_t binding = 0;
    BusLook bus = BusLook::asleep;
    std::optional<Error> problem;  ///< absent: it has answered
  };
  std::map<PciAddress, Seen> seen_;
};

}  // namespace ferry::vfio
