// SPDX-License-Identifier: Apache-2.0
// All PCI functions of a host and their IOMMU groups: the input of every plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_function.h"
#include "vfio/pci/reserved_regions.h"

namespace ferry::vfio {

/// The rules that make a function an accelerator. Vendors and classes come from the policy and its data
/// tables, never from this folder.
struct AcceleratorRules {
  std::set<std::uint16_t> vendors;
  std::set<PciClass> classes;
  /// Classes of the same vendors that count only if a command asks for them.
  std::set<PciClass> on_request = {};
  /// Classes of all other vendors' functions. They count only if a command or a policy names them: in
  /// `named`, or their vendor in `named_vendors`.
  std::set<PciClass> of_other_vendors = {};
  std::set<PciAddress> named = {};
  std::set<std::uint16_t> named_vendors = {};
  /// True for a board that never has virtual functions, although it may show SR-IOV files (a T4). nullptr: no
  /// such board is known.
  bool (*never_has_virtual_functions)(const PciFunction&) = nullptr;
  /// The name of `vendors` in messages: "NVIDIA".
  std::string whose = {};

  /// True for a function of match_unnamed(), and for one that is named and may be named.
  bool match(const PciFunction& function) const {
    return match_unnamed(function) || (is_named(function) && match_by_name(function));
  }
  /// The same without named functions: the meaning of `--all` and `devices: all`.
  bool match_unnamed(const PciFunction& function) const {
    return vendors.contains(function.vendor) && classes.contains(function.pci_class()) &&
           !function.is_bridge() && !function.is_virtual_function();
  }
  /// True if match() holds for a command that names the function.
  bool match_by_name(const PciFunction& function) const;
  /// True for a function that would count if it were named, and does not count now.
  bool only_by_name(const PciFunction& function) const { return match_by_name(function) && !match(function); }
  /// The rules of a command that asks for class `asked`, which differ only if the class is on request.
  AcceleratorRules asking_for(PciClass asked) const;
  /// True for a function that only another vendor's name can make an accelerator.
  bool is_of_another_vendor(const PciFunction& function) const {
    return !vendors.contains(function.vendor) && match_by_name(function);
  }
  /// The rules of a command that asks for every class of `vendors`, also those on request.
  AcceleratorRules asking_for_all() const;

 private:
  bool is_named(const PciFunction& function) const {
    return named.contains(function.address) ||
           (!vendors.contains(function.vendor) && named_vendors.contains(function.vendor));
  }
};

struct Inventory {
  std::map<PciAddress, PciFunction> functions;
  /// Members of each IOMMU group, in order of address. Empty on a host without an active IOMMU.
  std::map<std::uint32_t, std::vector<PciAddress>> groups;
  /// Names in sys/bus/pci/drivers: the loaded drivers.
  std::set<std::string> drivers;
  /// True if groups isolate nothing: the host runs vfio in its unsafe no-IOMMU mode.
  bool unsafe_noiommu = false;
  /// The reserved regions of the groups that read_unit_facts() has read. A group without an entry is not
  /// known.
  std::map<std::uint32_t, std::vector<ReservedRegion>> reserved = {};
  std::map<std::uint32_t, Error> reserved_unread = {};  ///< the groups where it failed, with the file's path
  /// The paths of nodes that VMs need, as NodeIsThere takes them: "dev/vfio/12", kIommufd. Absent: not read.
  std::optional<std::set<std::string>> vm_nodes = {};
  /// True for a network function that manages the NVSwitches of its board (unit_facts.h). Of a function that
  /// may_manage_switches() and has no entry it is not known.
  std::map<PciAddress, bool> switch_management = {};
  /// The advice of `ferry doctor` for a host without an active IOMMU, also for functions that a device tree
  /// leaves without one. Empty for other hosts with groups.
  std::string iommu_cure = {};
  bool only_other_groups = false;  ///< there are IOMMU groups, and none has a PCI function

  /// nullptr when the host has no such function.
  const PciFunction* find(const PciAddress& address) const;
  /// The members of a function's group; the function alone when it has none.
  std::vector<PciAddress> group_of(const PciFunction& function) const;
  bool has_iommu() const { return !groups.empty() && !unsafe_noiommu; }
};

/// Reads the host, except for driver_override (driver_choice.h). An unreadable function gets a `problem`
/// and does not end the scan; a function that vanishes meanwhile is left out. Errors: the bus itself cannot
/// be listed (no sysfs at this root).
Result<Inventory> scan(const HostFs& host);

/// Reads only the members of some groups and `functions`, to verify the change of one unit.
Result<Inventory> scan_members(const HostFs& host, const std::vector<std::uint32_t>& groups,
                               const std::vector<PciAddress>& functions);

/// Reads them again after a change of drivers. Facts that such a change leaves (all but read_binding()'s)
/// come from `before`, if it has the function.
Result<Inventory> scan_members_again(const HostFs& host, const std::vector<std::uint32_t>& groups,
                                     const std::vector<PciAddress>& functions, const Inventory& before);

/// Errc::unsupported, with advice, on a host that can give no device to a VM.
Result<> require_iommu(const Inventory& inventory);

/// True for a virtual function of an accelerator, also of one that counts only on request or by name.
bool is_accelerators_vf(const Inventory& inventory, const AcceleratorRules& rules,
                        const PciFunction& function);

/// True if `function` is on a vfio driver: vfio-pci, or a driver under which the function has a vfio-dev
/// entry (any variant driver, kernel 6.1 and newer).
bool on_vfio_driver(const PciFunction& function);
/// True for a network function of the maker whose functions manage NVSwitches on some boards.
bool may_manage_switches(const PciFunction& function);

/// True if the function's driver keeps the kernel from giving its IOMMU group to a VM, also on a bridge
/// (shpchp). Only vfio drivers, pci-stub, pcieport and drivers with PciFunction::leaves_dma do not. A driver
/// that leaves DMA to VFIO cannot be seen to do so without virtual functions, and then counts as blocking.
bool blocks_viability(const PciFunction& function);

}  // namespace ferry::vfio
