// SPDX-License-Identifier: Apache-2.0
// Compares a host with a policy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "vfio/pci/inventory.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::policy {

/// The mode of a GPU now: `passthrough` on a vfio driver, `vgpu` if it carries vGPUs, else `host`.
Mode mode_of(const mdev::VgpuGpu& gpu);

struct NodeVerdict {
  unsigned index = 0;
  vfio::PciAddress gpu;
  std::optional<Mode> wanted = {};  ///< absent: no item matches it, and any mode agrees
  Mode found = Mode::host;
  std::vector<vgpu::TypeCount> wanted_vgpus = {};
  std::vector<vgpu::TypeCount> found_vgpus = {};
  /// "GPU 0 (0000:17:00.0): wanted passthrough, found host (driver nvidia)"; empty where it agrees.
  std::string difference = {};
  bool agrees() const { return difference.empty(); }
  std::string label() const;  ///< see VgpuGpu::label
};

/// Gives a verdict for each GPU of the node, in order of index: the changes that apply_policy() would make.
/// For passthrough, the GPU's whole card must be on vfio drivers, or without any.
std::vector<NodeVerdict> judge_policy(const Policy& policy, const vfio::Inventory& inventory,
                                      const mdev::VgpuInventory& vgpus, const ModelNames& models = {});

}  // namespace ferry::policy
