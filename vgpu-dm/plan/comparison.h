// SPDX-License-Identifier: Apache-2.0
// Compares a host with a profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

struct GpuComparison {
  unsigned index = 0;
  vfio::PciAddress gpu;
  bool agrees = false;
  std::vector<TypeCount> desired = {};
  std::vector<TypeCount> found = {};
  std::string difference =
      {};  ///< "GPU 0 (0000:17:00.0): expected 4 x T4-4Q, found none"; empty when it agrees
};

/// Compares each GPU of the node, in order of index. A GPU that no item matches does not agree, as
/// under NVIDIA's program: a profile that passes describes the whole node. (An item with `devices: all` and
/// `vgpu-devices: {}` in front covers the other GPUs.) A GPU that counts only by name agrees then.
std::vector<GpuComparison> judge(const Profile& profile, const mdev::VgpuInventory& inventory);

/// Errc::differs with every difference, or success; a node without GPUs agrees.
Result<> assert_profile(const Profile& profile, const mdev::VgpuInventory& inventory);

// Checks a profile against a host before it is applied, for authors of profiles.

struct HostCheck {
  std::string profile;
  /// The plans of all GPUs, in order of index. A refusal is the reason why the profile would not work there.
  /// The notes also name facts unknown until the driver offers types, and types that work here but never
  /// under NVIDIA's program.
  std::vector<GpuPlan> gpus;
  std::vector<std::string> notes;  ///< items that are in effect on no GPU

  bool works() const;
  /// True if nothing speaks against the profile, and whether it works shows only when its vGPUs are made.
  bool is_not_known() const;
  /// True if no item matches a GPU here, so that no part of the profile was checked against this host.
  bool is_for_no_gpu() const;
  /// `done`, or `refused` for any fault, as applying the profile would give.
  ExitStatus status() const;
};

/// Follows the plan of an apply. GPUs whose drivers offer no types now are checked by the table of types.
HostCheck check_on_host(const Profile& profile, const VgpuSnapshot& snapshot);

}  // namespace ferry::vgpu
