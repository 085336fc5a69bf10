// SPDX-License-Identifier: Apache-2.0
// Does a host agree with a policy?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "vfio/inventory.h"
#include "vgpu-dm/plan.h"

namespace ferry {

/// What a GPU is now: `passthrough` on a vfio driver, `vgpu` where it carries any, else `host`.
Mode mode_of(const VgpuGpu& gpu);

struct NodeVerdict {
  unsigned index = 0;
  PciAddress gpu;
  std::optional<Mode> wanted = {};  ///< absent: no item is for it, and it may be what it is
  Mode found = Mode::host;
  std::vector<TypeCount> wanted_vgpus = {};
  std::vector<TypeCount> found_vgpus = {};
  /// "GPU 0 (0000:17:00.0): wanted passthrough, found host (driver nvidia)"; empty where it agrees.
  std::string difference = {};
  bool agrees() const { return difference.empty(); }
  std::string label() const;  ///< as VgpuGpu::label
};

/// One verdict per GPU of the node, in order of index: what apply_policy() would change. Of a GPU that is to
/// be given away its whole card must be on vfio drivers, or without any.
std::vector<NodeVerdict> judge_policy(const Policy& policy, const Inventory& inventory,
                                      const VgpuInventory& vgpus, const ModelNames& models = {});

}  // namespace ferry
