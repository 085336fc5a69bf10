// SPDX-License-Identifier: Apache-2.0
// A whole node by policy: GPUs that shall be the host's or carry vGPUs come back from vfio, vGPUs are made
// and taken away, and GPUs that shall be given away whole go to vfio, in this order, each stage from a new
// scan.
//
// What went to vfio with a GPU that has been unplugged since comes back too, whatever the policy says.
//
// What one GPU is refused keeps no other from being as it shall be. GPUs that no item of the policy matches
// are left as they are.
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
  ModelNames models = {};  ///< what policies mean by `model`; without it only IDs
};

/// The host with the rules of a policy (rules_for()).
NodeHost host_for(NodeHost host, const Policy& policy);

/// Who is asked who holds what.
struct NodeProbes {
  UseProbe& moves;
  UseProbe& vgpus;  ///< cautious: what is taken away cannot be put back for a pod that was given it
  UseProbe& open;   ///< for news alone, so now and then: who has nodes open, and nobody is asked
};

struct NodePreview {
  MovePreview given_back;  ///< left_behind() last
  VgpuPlan vgpus;          ///< of a GPU that comes back first, only that its vGPUs are planned then
  MovePreview given_away;
};

struct NodeOutcome {
  MoveOutcome given_back;
  VgpuOutcome vgpus;
  MoveOutcome given_away;
  std::optional<Error> error;  ///< a stage could not be begun: it and those after it have done nothing
};

/// What would be done as the host is now; writes nothing. Errors: the host cannot be read, has no IOMMU where
/// GPUs shall be given away, nobody could be asked who uses them; or Errc::refused: the policy wants GPUs of
/// one IOMMU group in two places.
Result<NodePreview> preview_policy(const NodeHost& host, const Policy& policy);

/// Does it. Errors as above, with nothing done; what goes wrong later is NodeOutcome::error.
Result<NodeOutcome> apply_policy(const NodeHost& host, const Policy& policy);

}  // namespace ferry
