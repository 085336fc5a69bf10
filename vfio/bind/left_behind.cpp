// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/left_behind.h"

#include <set>

#include "vfio/bind/move_plan.h"

namespace ferry::vfio {

std::vector<PciAddress> left_behind(const Inventory& inventory, const AcceleratorRules& rules,
                                    const MoveRecord& record) {
  std::set<PciAddress> reached;
  const auto reach = [&](const PciAddress& address) {
    for (const PciAddress& member : concerned(inventory, {address}, record.gone_along()))
      reached.insert(member);
  };
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match_by_name(function) || is_accelerators_vf(inventory, rules, function)) reach(address);
  }
  std::vector<PciAddress> out;
  for (const auto& [address, function] : inventory.functions) {
    if (reached.contains(address) || function.is_bridge() || !record.speaks_of(function)) continue;
    const auto found = record.members.find(address);
    const bool another_card = found != record.members.end() && found->second.ids != function.ids();
    if (another_card) continue;
    out.push_back(address);
    reach(address);
  }
  return out;
}

}  // namespace ferry::vfio
