// SPDX-License-Identifier: Apache-2.0
// Virtual functions of GPUs that claims can have. From Ampere on NVIDIA's driver makes vGPUs on them, and a
// GPU that goes to a VM whole loses them. hostd enables them where claims may ask for vGPUs, and takes those
// that it has enabled away when the GPU leaves DRA. The caller holds the node's lock to change a GPU.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "host/claims/claim_record.h"
#include "host/gpu_conditions.h"
#include "host/node_apply.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"
#include "vgpu-dm/apply/apply.h"

namespace ferry::host {

/// Enables the virtual functions that a GPU had before a claim. A failure keeps no claim from its end.
/// Returns the error; empty: there was none.
std::string restore_functions(const NodeContext& context, const ClaimedGpu& gpu);
/// Records the virtual functions that the GPU lacks after its claim. A GPU that is gone lacks none. Empty
/// `reason`: a reason of an earlier claim stays.
void note_missing(const NodeContext& context, const ClaimedGpu& gpu, std::string reason, ClaimRecord& record);

struct FunctionsChange {
  vfio::PciAddress gpu;
  std::uint32_t number = 0;  ///< of functions to enable; 0: those that hostd has enabled are taken away
  bool restores = false;     ///< a claim has cost the GPU these functions; hostd has not made them
  std::string why = {};
};

/// The changes for GPUs without claims and vGPUs that are on a driver of the host. Such a GPU gets virtual
/// functions if DRA has it, it has none, and claims may ask for its vGPUs or an earlier claim has cost it
/// functions. It loses them if DRA has it no more, hostd has enabled them, and the policy makes no vGPUs of
/// it. A policy that binds it to vfio takes them away by itself. `dra`: Allocations::dra. Pure.
std::vector<FunctionsChange> functions_to_change(const ScannedNode& node,
                                                 const policy::ResolvedPolicy& resolved,
                                                 const std::set<vfio::PciAddress>& dra,
                                                 const GpusWithClaims& claims);

/// Changes the GPU, unless the record has a claim of it by now. The record has the GPU in `made_functions`
/// before the functions exist, and until they are gone. Errors: those of the record; Errc::refused with the
/// device user; those of the driver.
Result<> change_functions(const NodeContext& context, const FunctionsChange& change,
                          const std::set<std::string>& release);

/// Errc::not_found: the node has no such GPU any more.
tl::unexpected<Error> no_such_gpu(const vfio::PciAddress& gpu);

/// The result for a GPU; its notes are logged. Errc::not_found: it is gone.
Result<> check_outcome(const vgpu::VgpuOutcome& outcome, const vfio::PciAddress& gpu);
Result<> check_outcome(const vgpu::GpuOutcome& outcome);

}  // namespace ferry::host
