// SPDX-License-Identifier: Apache-2.0
// All PCI functions of a host and their IOMMU groups, as one value: what every plan starts from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/pci_address.h"
#include "vfio/pci_function.h"

namespace ferry {

/// Which functions count as accelerators. Vendors and classes come from the policy and its data tables, never
/// from here.
struct AcceleratorRules {
  std::set<std::uint16_t> vendors;
  std::set<PciClass> classes;
  /// Classes of the same vendors that count only where a command asks for them.
  std::set<PciClass> on_request = {};
  /// Classes of all other vendors' functions. They count only where a command or a policy names them: in
  /// `named`, or their vendor in `named_vendors`.
  std::set<PciClass> of_other_vendors = {};
  std::set<PciAddress> named = {};
  std::set<std::uint16_t> named_vendors = {};
  /// Whether boards of its kind are known never to have virtual functions, whatever SR-IOV files they show (a
  /// T4). nullptr: that is known of none.
  bool (*never_has_virtual_functions)(const PciFunction&) = nullptr;
  /// The name of `vendors` in messages: "NVIDIA".
  std::string whose = {};

  /// An endpoint that is no virtual function: of `vendors` and `classes`, or one that is named and may be.
  bool match(const PciFunction& function) const {
    return match_unnamed(function) || (is_named(function) && match_by_name(function));
  }
  /// The same without those that are named: what `--all` and `devices: all` mean.
  bool match_unnamed(const PciFunction& function) const {
    return vendors.contains(function.vendor) && classes.contains(function.pci_class()) &&
           !function.is_bridge() && !function.is_virtual_function();
  }
  /// True if match() holds for a command that names the function.
  bool match_by_name(const PciFunction& function) const;
  /// A function that counts where it is named and nowhere else.
  bool only_by_name(const PciFunction& function) const { return match_by_name(function) && !match(function); }
  /// The rules of a command that asks for `wanted`: the same unless that is a class on request.
  AcceleratorRules asking_for(PciClass wanted) const;
  /// True for a function that only another vendor's name can make an accelerator.
  bool is_of_another_vendor(const PciFunction& function) const {
    return !vendors.contains(function.vendor) && match_by_name(function);
  }
  /// The rules of a command that asks for all that can be asked for of `vendors`.
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
  /// Names in sys/bus/pci/drivers: the drivers that are loaded.
  std::set<std::string> drivers;
  /// Groups without isolation: the host runs vfio in its unsafe no-IOMMU mode.
  bool unsafe_noiommu = false;
  /// The advice of `ferry doctor` for a host without an active IOMMU. Empty where there are groups.
  std::string iommu_cure = {};

  /// nullptr when the host has no such function.
  const PciFunction* find(const PciAddress& address) const;
  /// The members of a function's group; the function alone when it has none.
  std::vector<PciAddress> group_of(const PciFunction& function) const;
  bool has_iommu() const { return !groups.empty() && !unsafe_noiommu; }
};

/// Reads the host, driver_override apart (driver_override.h). One unreadable function never ends it: it
/// carries its `problem`. One that vanishes meanwhile is left out. Errors: the bus itself cannot be listed
/// (no sysfs at this root).
Result<Inventory> scan(const HostFs& host);

/// The same for the members of some groups and for `functions` alone: what one unit's move is read back by.
Result<Inventory> scan_members(const HostFs& host, const std::vector<std::uint32_t>& groups,
                               const std::vector<PciAddress>& functions);

/// The same, after a move: what a move does not change (all but read_binding()'s) is taken from `before`,
/// where that has the function.
Result<Inventory> scan_members_again(const HostFs& host, const std::vector<std::uint32_t>& groups,
                                     const std::vector<PciAddress>& functions, const Inventory& before);

/// Errc::unsupported, with what to do, on a host that cannot give anything to a VM.
Result<> require_iommu(const Inventory& inventory);

/// Whether `function` is a virtual function of an accelerator by `rules`, those that count on request
/// included.
bool is_accelerators_vf(const Inventory& inventory, const AcceleratorRules& rules,
                        const PciFunction& function);

/// Whether this driver is a vfio driver for `function`: vfio-pci, or one under which the function has a
/// vfio-dev entry (any variant driver, kernel 6.1 and newer).
bool on_vfio_driver(const PciFunction& function);

/// Whether its driver keeps the kernel from giving its IOMMU group to a VM: any but a vfio driver, pci-stub,
/// pcieport and one that leaves DMA to VFIO (PciFunction::leaves_dma); a bridge's too (shpchp). A driver that
/// leaves it and has no virtual functions shows that nowhere, and counts as one that does not.
bool blocks_viability(const PciFunction& function);

}  // namespace ferry
