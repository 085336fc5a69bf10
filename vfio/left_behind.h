// SPDX-License-Identifier: Apache-2.0
// Functions that Ferry bound to vfio along with an accelerator that has gone since: an audio function, or a
// member that --with took along, of a GPU that was unplugged.
#pragma once

#include <vector>

#include "vfio/inventory.h"
#include "vfio/move_record.h"
#include "vfio/pci_address.h"

namespace ferry {

/// A function of each unit that `record` has members of and that has no accelerator any more. The function
/// stands for its unit in MoveRequest::accelerators of an unbind with `recorded_only`. Left out are
/// accelerators' virtual functions, which are units of their own, and accelerators on request.
std::vector<PciAddress> left_behind(const Inventory& inventory, const AcceleratorRules& rules,
                                    const MoveRecord& record);

}  // namespace ferry
