// SPDX-License-Identifier: Apache-2.0
// Compares a host with a policy.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mdev/vgpu.h"
#include "policy/policy.h"
#include "vfio/judgement/finding.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::policy {

/// The mode of a GPU now: `passthrough` on a vfio driver, `vgpu` if it carries vGPUs, else `host`.
Mode mode_of(const mdev::VgpuGpu& gpu);

struct ModeComparison {
  unsigned index = 0;
  vfio::PciAddress gpu;
  std::optional<Mode> desired = {};  ///< absent: any mode agrees, since no item matches it, or it is for DRA
  bool for_dra = false;              ///< its item has Allocation::dra
  Mode found = Mode::host;
  std::vector<vgpu::TypeCount> desired_vgpus = {};
  std::vector<vgpu::TypeCount> found_vgpus = {};
  /// "GPU 0 (0000:17:00.0): expected passthrough, found host (driver nvidia)"; empty where it agrees.
  std::string difference = {};
  bool agrees() const { return difference.empty(); }
  std::string label() const;  ///< see VgpuGpu::label
};

/// Compares each GPU of the node, in order of index: the changes that apply_policy() would make. A GPU that
/// is on vfio differs from passthrough if a finding keeps it from `ready` (vfio/judgement/finding.h).
/// `findings` are those as if all were asked for.
std::vector<ModeComparison> judge_policy(const Policy& policy, const mdev::VgpuInventory& vgpus,
                                         const vfio::GpuFindings& findings, const ModelNames& models = {});

// Finds items of a file that match no GPU of a node. They are no error, since a file may be for many nodes,
// but they may be a typing mistake.

/// "policy.yaml:4: matches no GPU of this node", for each such item.
std::vector<std::string> items_without_gpu(const Policy& policy, const mdev::VgpuInventory& inventory,
                                           const ModelNames& models = {});
std::vector<std::string> items_without_gpu(const vgpu::Profile& profile,
                                           const mdev::VgpuInventory& inventory);

}  // namespace ferry::policy
