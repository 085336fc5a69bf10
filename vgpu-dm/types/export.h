// SPDX-License-Identifier: Apache-2.0
// Writes the vGPUs of a node as a profile.
#pragma once

#include <string>

#include "common/result.h"
#include "mdev/vgpu.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

/// A profile that the node already agrees with: judge() finds no difference, and applying it writes nothing.
/// It has one item for each set of GPUs with the same vGPUs, in order of the sets' first GPUs, without
/// filters. Every GPU is in an item, also GPUs without vGPUs. `devices: all` if one item has all GPUs;
/// `devices: []` if the node has no GPU.
///
/// Errc::usage: the name is no label value (can_be_label()). Errc::unsupported: no v1 file can express a
/// GPU's vGPUs. Errc::failed: no driver has bound a vGPU. Or the scan's own error, if vGPUs cannot be read.
/// An incomplete profile is never returned: applying it would remove the vGPUs that it leaves out.
Result<Profile> export_profile(const mdev::VgpuInventory& inventory, const std::string& name);

/// The profile as a complete v1 file that read_profiles() accepts.
std::string profile_text(const Profile& profile);

}  // namespace ferry::vgpu
