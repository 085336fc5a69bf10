// SPDX-License-Identifier: Apache-2.0
// Writes the state of a node as a policy.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/claimable_gpus.h"
#include "common/result.h"
#include "mdev/gpu_management.h"
#include "policy/policy.h"
#include "vfio/judgement/finding.h"

namespace ferry::policy {

/// NVML's answers about GPUs, or its errors.
using ManagedGpus = std::map<vfio::PciAddress, Result<mdev::ManagedGpu>>;

/// True if an export needs NVML's answer about a GPU: if all its vGPUs have one size, only NVML tells whether
/// mixed sizes are on.
bool asks_library_to_export(const mdev::VgpuGpu& gpu);

struct ExportedPolicy {
  Policy policy;
  std::vector<std::string> notes;  ///< facts that the policy leaves out, each as a sentence
};

/// A policy that the node already agrees with: judge_policy() finds no difference, and applying it writes
/// nothing. It has one item for each set of equal GPUs, by their numbers. vGPUs without parameters have no
/// key for them, so that they stay as they are. The driver chooses placements. `release` has its default,
/// since no host shows it.
///
/// A GPU that no policy describes is left out, with a note: it or its vGPUs cannot be read, no driver has it,
/// its card is half on vfio, or vgpu::why_no_item(). Applying the policy leaves it alone.
///
/// GPUs of other vendors that VMs get whole are written if `named`, those of the node's policy, has them.
///
/// A GPU of `claimable` with `for_dra` has the allocation dra, without `allow`: the file does not show what
/// the policy allows.
///
/// Errors: see export_profile().
Result<ExportedPolicy> export_policy(const mdev::VgpuInventory& vgpus, const vfio::GpuFindings& findings,
                                     const std::string& name, const ManagedGpus& managed = {},
                                     const std::vector<api::ClaimableGpu>& claimable = {},
                                     const std::set<vfio::PciAddress>& named = {});

// Writes policies as a file.

/// The policies as a complete v2 file that read_policies() accepts. `release` and `foreign` are those of the
/// first policy: a file has one for all.
std::string policy_text(const PolicyFile& file);

}  // namespace ferry::policy
