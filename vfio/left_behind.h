// SPDX-License-Identifier: Apache-2.0
// What Ferry has moved with an accelerator that is no longer there: an audio function, or a member that
// --with took along, of a GPU that was unplugged.
#pragma once

#include <vector>

#include "vfio/inventory.h"
#include "vfio/move_record.h"
#include "vfio/pci_address.h"

namespace ferry {

/// One function of each unit that `record` has members of and that no accelerator stands for any more: it
/// stands for its unit in MoveRequest::accelerators, back, with `recorded_only`. Virtual functions of
/// accelerators, which move alone, and what is an accelerator only on request, are none.
std::vector<PciAddress> left_behind(const Inventory& inventory, const AcceleratorRules& rules,
                                    const MoveRecord& record);

}  // namespace ferry
