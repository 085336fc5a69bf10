// SPDX-License-Identifier: Apache-2.0
// Checks a profile against a host before it is applied, for authors of profiles.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

struct GpuCheck {
  unsigned index = 0;
  vfio::PciAddress gpu;
  bool matched = false;                ///< false: no item matches it
  std::string place = {};              ///< where the item in effect is written
  std::vector<TypeCount> wanted = {};  ///< names as the profile writes them
  std::vector<TypeCount> found = {};
  std::optional<Error> fault = {};  ///< the reason why it would not work; codes as GpuPlan::refusal
  /// Facts unknown until the driver offers types, and types that work here but never under NVIDIA's program.
  std::vector<std::string> notes = {};

  std::string label() const;  ///< see VgpuGpu::label
};

struct HostCheck {
  std::string profile;
  std::vector<GpuCheck> gpus;      ///< all GPUs, in order of index
  std::vector<std::string> notes;  ///< items that are in effect on no GPU

  bool works() const;
  /// True if no item matches a GPU here, so that no part of the profile was checked against this host.
  bool is_for_no_gpu() const;
  /// `done`, or `refused` for any fault, as applying the profile would give.
  ExitStatus status() const;
};

/// Follows the plan of an apply. GPUs whose drivers offer no types now are checked by the table of types.
HostCheck check_on_host(const Profile& profile, const VgpuView& view);

}  // namespace ferry::vgpu
