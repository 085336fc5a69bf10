// SPDX-License-Identifier: Apache-2.0
// What the vGPUs of a GPU have beside types and counts: for who writes down what a host carries.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mdev/vgpu.h"
#include "vgpu-dm/vgpu_params.h"

namespace ferry {

struct CarriedExtras {
  /// Time-sliced vGPUs of more than one framebuffer size, as far as their sizes are known. Where they have
  /// one size the GPU may be ready for several all the same: only NVML says (ManagedGpu::mixed_sizes).
  bool several_sizes = false;
  /// By short name of the type: the parameters of its vGPUs' plug-in, where all of them have the same. Types
  /// without any are not in it.
  std::map<std::string, VgpuParams> params;
  /// What cannot be written of a type in one line, each as a sentence.
  std::vector<std::string> unsaid;
};
CarriedExtras extras_of(const VgpuGpu& gpu);

/// What a v1 file leaves out of what these GPUs carry, each as a sentence; empty: nothing.
std::vector<std::string> unsaid_by_v1(const VgpuInventory& inventory);

}  // namespace ferry
