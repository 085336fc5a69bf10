// SPDX-License-Identifier: Apache-2.0
// The functions that change drivers together, and the role of each.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {

/// True for another function of the accelerator's slot, except bridges and virtual functions.
bool shares_slot(const PciFunction& accelerator, const PciFunction& function);

/// True for a companion function: audio, USB or UCSI in the accelerator's slot, of the same vendor or linked
/// to it as a consumer. Another vendor's network or storage function in the slot stays with the host.
bool is_companion(const PciFunction& accelerator, const PciFunction& function);

/// Functions that change drivers together or not at all.
struct Unit {
  std::vector<PciAddress> accelerators;  ///< the accelerators of the request, in order of address
  std::set<PciAddress> functions;        ///< every member of every group concerned
};

/// The units around `accelerators`, which the inventory must have. A unit has the accelerator's group, and
/// the groups of its companions and of functions of `with` in its slot. Units that share one are merged.
std::vector<Unit> units_of(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                           const std::set<PciAddress>& with);

std::vector<std::uint32_t> groups_of(const Inventory& inventory, const std::set<PciAddress>& functions);

/// `function` with its role in `unit`, and its present driver before and after. `with` names foreign members
/// that may change drivers too.
Member member_of(const Inventory& inventory, const Unit& unit, const std::set<PciAddress>& with,
                 const AcceleratorRules& rules, const PciFunction& function);

bool changes_driver(MemberRole role);

}  // namespace ferry::vfio
