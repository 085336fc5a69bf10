// SPDX-License-Identifier: Apache-2.0
// The functions that change drivers together, and the role of each.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "vfio/pci/inventory.h"

namespace ferry::vfio {

enum class MemberRole {
  accelerator,  ///< of the request, also a virtual function: changes drivers
  companion,    ///< function of the accelerator's card, or linked to it: changes drivers
  taken_along,  ///< of the card, as --with says: changes drivers
  bridge,       ///< PCI bridge or port without a blocking driver: left alone
  bystander,    ///< foreign, without a driver or with one that does not block: left alone
  in_the_way,   ///< any other member: the unit is refused
};
std::string_view text(MemberRole role);

struct Member {
  PciAddress address;
  MemberRole role = MemberRole::in_the_way;
  std::string driver_before;  ///< empty: none
  std::string driver_after;   ///< empty: none; as before for a member that is left alone
  bool removed_next = false;  ///< RebindRequest::removed_next
};

/// True for another function of the accelerator's slot, except bridges and virtual functions.
bool shares_slot(const PciFunction& accelerator, const PciFunction& function);

/// True for a companion function: audio, USB or UCSI in the accelerator's slot, of the same vendor or linked
/// to it as a consumer. Another vendor's network or storage function in the slot stays with the host.
bool is_companion(const PciFunction& accelerator, const PciFunction& function);

/// True for audio, USB or UCSI that --with may name as part of the accelerator's card: in its slot, of any
/// vendor, or of its vendor in a slot of its own, behind a bridge of the card.
bool may_be_of_the_card(const PciFunction& accelerator, const PciFunction& function);

/// Functions that change drivers together or not at all.
struct Unit {
  std::vector<PciAddress> accelerators;  ///< the accelerators of the request, in order of address
  std::set<PciAddress> functions;        ///< every member of every group concerned
};

/// The units around `accelerators`, which the inventory must have. A unit has the accelerator's group, and
/// the groups of its companions and of those of `with` in its slot that may be of the card. Units that share
/// one are merged.
std::vector<Unit> units_of(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                           const std::set<PciAddress>& with);

std::vector<std::uint32_t> groups_of(const Inventory& inventory, const std::set<PciAddress>& functions);

/// `function` with its role in `unit`, and its present driver before and after. `with` names members that
/// are of the card, if they may be (may_be_of_the_card()).
Member member_of(const Inventory& inventory, const Unit& unit, const std::set<PciAddress>& with,
                 const AcceleratorRules& rules, const PciFunction& function);

bool changes_driver(MemberRole role);

/// Every function, except bridges, in the groups of `accelerators`, of their companions and of the functions
/// of `with` in their slots. Users of these functions can block a change.
std::vector<PciAddress> concerned(const Inventory& inventory, const std::vector<PciAddress>& accelerators,
                                  const std::set<PciAddress>& with = {});

/// The members that block a group by the kernel's own viability rule, judged from drivers alone. Allowed are
/// no driver, vfio drivers, and drivers that manage DMA themselves (pcieport, pci-stub, NVIDIA's for vGPU
/// hosts): blocks_viability().
std::vector<PciAddress> viability_blockers(const Inventory& inventory, std::uint32_t group);

}  // namespace ferry::vfio
