// SPDX-License-Identifier: Apache-2.0
// Brings a whole node to its policy in three stages. First the GPUs in mode host or vgpu come back from vfio,
// then vGPUs are created and deleted, then the GPUs in mode passthrough go to vfio. Each stage is planned
// from a new scan, unless only the last one has anything to do.
//
// Functions that went to vfio with a GPU that was unplugged later also come back, whatever the policy says.
// The refusal of one GPU does not keep other GPUs from their modes. GPUs that no item of the policy matches
// stay unchanged.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "policy/policy.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/pci/inventory.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/apply/apply.h"

namespace ferry::host {

/// The means to change a node. The caller holds the node's lock for apply_policy().
struct NodeContext {
  vfio::RebindContext rebind_context;
  vgpu::VgpuHost vgpu_host;
  policy::ModelNames models =
      {};  ///< gives the `model` of policies its meaning; without it policies match IDs only
  /// The GPUs that DRA has. They stay as they are, whatever the policy says.
  std::set<vfio::PciAddress> dra = {};
  policy::ResourceNames resources = {};

  HostFs& fs() const { return *rebind_context.host; }
};

/// `context` with the rules of a policy (rules_for()).
NodeContext context_for(NodeContext context, const policy::Policy& policy);

/// Finds requests that no change can fulfil, before anything is begun. Errc::refused: the policy passes a GPU
/// through, and puts another of its IOMMU group into another mode.
Result<> check_possible(const policy::ResolvedPolicy& resolved, const vfio::Inventory& inventory);

struct NodeProbes {
  vfio::UseProbe& for_rebinds;
  vfio::UseProbe& for_vgpus;   ///< strict: a deleted vGPU cannot be put back for a pod that was allocated it
  vfio::UseProbe& open_nodes;  ///< for periodic reports: looks for open nodes only, and asks no other program
};
/// Builds the context with these probes.
using MakeContext = std::function<Result<NodeContext>(const NodeProbes& uses)>;

struct NodePreview {
  vfio::RebindPreview unbound;  ///< the units of vfio::unfinished() come last
  /// A GPU that must come back from vfio first has only a note that its vGPUs are planned after that.
  vgpu::VgpuPlan vgpus;
  vfio::RebindPreview bound;
};

struct NodeOutcome {
  vfio::RebindOutcome unbound;
  vgpu::VgpuOutcome vgpus;
  vfio::RebindOutcome bound;
  std::optional<Error> error;  ///< a stage could not begin: this stage and those after it have done nothing
};

/// Plans the changes for the present host and writes nothing. `scanned`: its PCI functions, if the caller has
/// just scanned them; nullptr: they are scanned here. Errors: the host cannot be read, or the device users
/// cannot be found. Errc::refused: the policy puts GPUs of one
/// IOMMU group into two modes.
Result<NodePreview> preview_policy(const NodeContext& context, const policy::Policy& policy,
                                   const vfio::Inventory* scanned = nullptr);

/// Applies the policy. Errors as above, with nothing done; later errors are in NodeOutcome::error.
Result<NodeOutcome> apply_policy(const NodeContext& context, const policy::Policy& policy);

// Rolls back across the stages of a policy. Each stage rolls back its own failures. The work of an earlier
// stage on the same GPU, or on another of its IOMMU group, is rolled back here by plans from a new scan.
// vGPUs get their UUIDs again, and groups on vfio their previous drivers. Devices of a VM, and devices with a
// stuck write, are not written to.

/// The state before the stages, to which a rollback leads.
struct BeforeStages {
  vfio::Inventory inventory;  ///< with the driver overrides of the devices that the first stage may unbind
  vfio::UndoJournal journal;
  policy::ResolvedPolicy resolved;  ///< the complete policy for this node
};

/// `going_back`: the GPUs that the first stage is to take back. Errors: the undo journal cannot be listed.
Result<BeforeStages> before_stages(const NodeContext& context, const vfio::Inventory& inventory,
                                   const policy::ResolvedPolicy& resolved,
                                   const std::vector<vfio::PciAddress>& going_back);

/// Rolls back the work of stages on GPUs that a later stage could not bring to their modes, and reports it in
/// `outcome`, first error first. A GPU that could not go to vfio counts as failed or refused in the stage
/// that emptied it. A GPU that could not be divided counts so in the stage that took it back. True if there
/// was anything to roll back: the services quiesced for it must then be resumed (VgpuHost::more_follows).
bool undo_half_done(const NodeContext& context, const BeforeStages& before, NodeOutcome& outcome);

}  // namespace ferry::host
