// SPDX-License-Identifier: Apache-2.0
// Writes the vGPUs of a node as a profile.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "mdev/vgpu.h"
#include "vgpu-dm/profile/profile.h"
#include "vgpu-dm/profile/vgpu_params.h"

namespace ferry::vgpu {

// Properties of a GPU's vGPUs beside types and counts, for commands that write them to a file.

struct ExtraSettings {
  /// True if time-sliced vGPUs have several framebuffer sizes, as far as sizes are known. If false, mixed
  /// sizes may still be on: only NVML tells (ManagedGpu::mixed_sizes).
  bool several_sizes = false;
  /// Plug-in parameters by the type's short name, if all vGPUs of the type have the same. Types without
  /// parameters are left out.
  std::map<std::string, VgpuParams> params;
  /// Parameters that cannot be written once for their type, each as a sentence.
  std::vector<std::string> unsaid;
};
ExtraSettings extras_of(const mdev::VgpuGpu& gpu);

/// The reason why no file describes the GPU's virtual functions as they are: fewer are on vfio drivers than
/// there are, or one cannot be read. Empty: a file can, or the GPU has no functions that VMs get whole.
std::string why_no_item(const mdev::VgpuGpu& gpu);

/// Facts about these GPUs that a v1 file cannot express, each as a sentence; empty: none.
std::vector<std::string> unsaid_by_v1(const mdev::VgpuInventory& inventory);

/// A profile that the node already agrees with: judge() finds no difference, and applying it writes nothing.
/// It has one item for each set of GPUs with the same vGPUs, in order of the sets' first GPUs, without
/// filters. Every GPU is in an item, also GPUs without vGPUs. `devices: all` if one item has all GPUs;
/// `devices: []` if the node has no GPU. GPUs that count only by name have items of their own, with a filter,
/// or none if they have no vGPUs, or for why_no_item(): applying the profile leaves these alone.
///
/// Errc::usage: the name is no label value (can_be_label()). Errc::unsupported: no v1 file can express a
/// GPU's vGPUs. Errc::failed: no driver has bound a vGPU. Or the scan's own error, if vGPUs cannot be read.
/// An incomplete profile is never returned: applying it would remove the vGPUs that it leaves out.
Result<Profile> export_profile(const mdev::VgpuInventory& inventory, const std::string& name);

/// The profile as a complete v1 file that read_profiles() accepts.
std::string profile_text(const Profile& profile);

}  // namespace ferry::vgpu
