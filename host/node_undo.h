// SPDX-License-Identifier: Apache-2.0
// Inside this room: rolls back across the stages of a policy. Each stage rolls back its own failures. The
// work of an earlier stage on the same GPU, or on another of its IOMMU group, is rolled back here by plans
// from a new scan. vGPUs get their UUIDs again, and groups on vfio their previous drivers. Devices of a VM,
// and devices with a stuck write, are not written to.
#pragma once

#include <vector>

#include "common/result.h"
#include "host/node_apply.h"
#include "policy/policy.h"
#include "vfio/inventory.h"
#include "vfio/move_record.h"

namespace ferry {

/// The state before the stages, to which a rollback leads.
struct BeforeStages {
  Inventory inventory;  ///< with the driver overrides of the devices that the first stage may move
  MoveRecord record;
  WantedState wanted;  ///< the complete policy for this node
};

/// `going_back`: the GPUs that the first stage is to take back. Errors: the undo journal cannot be listed.
Result<BeforeStages> before_stages(const NodeHost& host, const Inventory& inventory,
                                   const WantedState& wanted, const std::vector<PciAddress>& going_back);

/// Rolls back the work of stages on GPUs that a later stage could not bring to their modes, and reports it in
/// `outcome`, first error first. A GPU that could not go to vfio counts as failed or refused in the stage
/// that emptied it. A GPU that could not be divided counts so in the stage that took it back. True if there
/// was anything to roll back: the services quiesced for it must then be resumed (VgpuHost::more_follows).
bool undo_half_done(const NodeHost& host, const BeforeStages& before, NodeOutcome& outcome);

}  // namespace ferry
