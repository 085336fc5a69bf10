// SPDX-License-Identifier: Apache-2.0
// Which functions move together, and what each of them is to the move.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "vfio/inventory.h"
#include "vfio/move_plan.h"

namespace ferry {

/// True for another function of the accelerator's slot; bridges and virtual functions are none.
bool shares_slot(const PciFunction& accelerator, const PciFunction& function);

/// True for a function that the accelerator's card has besides it: audio, USB or UCSI in its slot, of the
/// same vendor or linked to it as a consumer. A card with another vendor's network or storage function in the
/// slot keeps that on the host.
bool is_companion(const PciFunction& accelerator, const PciFunction& function);

/// Functions that move together or not at all.
struct Unit {
  std::vector<PciAddress> accelerators;  ///< those asked for, in order of address
  std::set<PciAddress> functions;        ///< every member of every group concerned
};

/// The units around `accelerators`, which the inventory has: each one's group, and those of its companions
/// and of the functions of `with` in its slot. Units that share a function are one.
std::vector<Unit> units_of(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                           const std::set<PciAddress>& with);

/// The IOMMU groups of `functions`, in order.
std::vector<std::uint32_t> groups_of(const Inventory& inventory, const std::set<PciAddress>& functions);

/// What `function` is to the move of `unit`. `with` names foreign members that may be moved too.
MemberRole role_in(const Inventory& inventory, const Unit& unit, const std::set<PciAddress>& with,
                   const AcceleratorRules& rules, const PciFunction& function);

/// Whether a member of this role changes its driver.
bool moves(MemberRole role);

}  // namespace ferry
