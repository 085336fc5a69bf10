// SPDX-License-Identifier: Apache-2.0
// A whole node by policy: GPUs that shall be the host's or carry vGPUs come back from vfio, vGPUs are made
// and taken away, and GPUs that shall be given away whole go to vfio, in this order, each stage from a new
// scan.
//
// What one GPU is refused keeps no other from being as it shall be. GPUs that no item of the policy matches
// are left as they are.
#pragma once

#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "policy/policy.h"
#include "vfio/move_apply.h"
#include "vgpu-dm/apply.h"

namespace ferry {

/// The caller holds the node's lock for apply_policy().
struct NodeHost {
  MoveContext moves;
  VgpuHost vgpus;
};

struct NodePreview {
  MovePreview given_back;
  VgpuPlan vgpus;  ///< of a GPU that comes back first, only that its vGPUs are planned then
  MovePreview given_away;
};

struct NodeOutcome {
  MoveOutcome given_back;
  VgpuOutcome vgpus;
  MoveOutcome given_away;
};

/// What would be done as the host is now; writes nothing. Errors: the host cannot be read, has no IOMMU where
/// GPUs shall be given away, or nobody could be asked who uses them.
Result<NodePreview> preview_policy(const NodeHost& host, const Policy& policy);

/// Does it. Errors: as above, at whatever stage; what the stages before it have done stays.
Result<NodeOutcome> apply_policy(const NodeHost& host, const Policy& policy);

}  // namespace ferry
