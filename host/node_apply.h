// SPDX-License-Identifier: Apache-2.0
// Brings a whole node to its policy in three stages, each with a new scan. First the GPUs in mode host or
// vgpu come back from vfio, then vGPUs are created and deleted, then the GPUs in mode passthrough go to vfio.
//
// Functions that went to vfio with a GPU that was unplugged later also come back, whatever the policy says.
// The refusal of one GPU does not keep other GPUs from their modes. GPUs that no item of the policy matches
// stay unchanged.
#pragma once

#include <optional>

#include "common/exit_status.h"
#include "common/result.h"
#include "policy/policy.h"
#include "vfio/move_apply.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/apply.h"

namespace ferry {

/// The caller holds the node's lock for apply_policy().
struct NodeHost {
  MoveContext moves;
  VgpuHost vgpus;
  ModelNames models = {};  ///< gives the `model` of policies its meaning; without it policies match IDs only
};

/// The host with the rules of a policy (rules_for()).
NodeHost host_for(NodeHost host, const Policy& policy);

/// The probes for device users.
struct NodeProbes {
  UseProbe& moves;
  UseProbe& vgpus;  ///< strict: a deleted vGPU cannot be put back for a pod that was allocated it
  UseProbe& open;   ///< for periodic reports: looks for open nodes only, and asks no other program
};

struct NodePreview {
  MovePreview given_back;  ///< left_behind() last
  VgpuPlan vgpus;          ///< a GPU that comes back first has only the note that its vGPUs are planned then
  MovePreview given_away;
};

struct NodeOutcome {
  MoveOutcome given_back;
  VgpuOutcome vgpus;
  MoveOutcome given_away;
  std::optional<Error> error;  ///< a stage could not begin: this stage and those after it have done nothing
};

/// Plans the changes for the present host and writes nothing. Errors: the host cannot be read, it has no
/// IOMMU although GPUs go to vfio, or the device users cannot be found. Errc::refused: the policy puts GPUs
/// of one IOMMU group into two modes.
Result<NodePreview> preview_policy(const NodeHost& host, const Policy& policy);

/// Applies the policy. Errors as above, with nothing done; later errors are in NodeOutcome::error.
Result<NodeOutcome> apply_policy(const NodeHost& host, const Policy& policy);

}  // namespace ferry
