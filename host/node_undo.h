// SPDX-License-Identifier: Apache-2.0
// Inside this room: the undo across the stages of a policy. Each stage undoes what fails in it; what an
// earlier one has done to the same GPU, or to another of its IOMMU group, is undone here, by plans from a new
// scan: vGPUs come again under their UUIDs, groups go to vfio again as they were there.
//
// What a VM holds is not touched, and behind a write that has not returned nothing is written.
#pragma once

#include <vector>

#include "common/result.h"
#include "host/node_apply.h"
#include "policy/policy.h"
#include "vfio/inventory.h"
#include "vfio/move_record.h"

namespace ferry {

/// What a way back leads to.
struct BeforeStages {
  Inventory inventory;  ///< with the overrides of what the first stage may move
  MoveRecord record;
  WantedState wanted;  ///< all that the policy says
};

/// `going_back`: the GPUs that the first stage is asked for. Errors: the records cannot be listed.
Result<BeforeStages> before_stages(const NodeHost& host, const Inventory& inventory,
                                   const WantedState& wanted, const std::vector<PciAddress>& going_back);

/// Undoes what stages did to GPUs that a later stage could not bring to where they shall be, and says so in
/// `outcome`, the first error first: a GPU that could not be given away counts as failed, or refused, in the
/// stage that emptied it, and one that could not be divided in the stage that gave it back. Whether there was
/// anything: who let go for it is stopped then (VgpuHost::more_follows).
bool undo_half_done(const NodeHost& host, const BeforeStages& before, NodeOutcome& outcome);

}  // namespace ferry
