// SPDX-License-Identifier: Apache-2.0
// Properties of a GPU's vGPUs beside types and counts, for commands that write them to a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mdev/vgpu.h"
#include "vgpu-dm/apply/vgpu_params.h"

namespace ferry::vgpu {

struct CarriedExtras {
  /// True if time-sliced vGPUs have several framebuffer sizes, as far as sizes are known. If false, mixed
  /// sizes may still be on: only NVML tells (ManagedGpu::mixed_sizes).
  bool several_sizes = false;
  /// Plug-in parameters by the type's short name, if all vGPUs of the type have the same. Types without
  /// parameters are left out.
  std::map<std::string, VgpuParams> params;
  /// Parameters that cannot be written once for their type, each as a sentence.
  std::vector<std::string> unsaid;
};
CarriedExtras extras_of(const mdev::VgpuGpu& gpu);

/// Facts about these GPUs that a v1 file cannot express, each as a sentence; empty: none.
std::vector<std::string> unsaid_by_v1(const mdev::VgpuInventory& inventory);

}  // namespace ferry::vgpu
