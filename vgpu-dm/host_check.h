// SPDX-License-Identifier: Apache-2.0
// What of a profile a host could not do: for who writes profiles, before one is applied.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/exit_status.h"
#include "common/result.h"
#include "vgpu-dm/plan.h"
#include "vgpu-dm/profile.h"

namespace ferry {

struct GpuCheck {
  unsigned index = 0;
  PciAddress gpu;
  bool matched = false;                ///< false: no item is for it
  std::string place = {};              ///< of the item that holds
  std::vector<TypeCount> wanted = {};  ///< names as the profile writes them
  std::vector<TypeCount> found = {};
  std::optional<Error> fault = {};  ///< why it would not work; codes as GpuPlan::refusal
  /// What cannot be told before its driver offers types, and what works here and nowhere under NVIDIA's
  /// program.
  std::vector<std::string> notes = {};

  std::string label() const;  ///< as VgpuGpu::label
};

struct HostCheck {
  std::string profile;
  std::vector<GpuCheck> gpus;      ///< all GPUs, in order of index
  std::vector<std::string> notes;  ///< items that no GPU is left to

  bool works() const;
  /// No item is for any GPU here, so that nothing of the profile was held against this host.
  bool is_for_no_gpu() const;
  /// `done`, or `refused`, as applying it would be, whatever the reason.
  ExitStatus status() const;
};

/// By the plan that applying it would follow; of GPUs whose drivers offer nothing now by the table of types.
HostCheck check_on_host(const Profile& profile, const VgpuView& view);

}  // namespace ferry
