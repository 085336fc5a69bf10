// SPDX-License-Identifier: Apache-2.0
// What a node carries, as a profile: the way back from a host to a file.
#pragma once

#include <string>

#include "common/result.h"
#include "mdev/vgpu.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// The profile that a node agrees with as it is: judge() finds no difference, and applying it writes nothing.
/// One item per set of GPUs that carry the same vGPUs, in order of the sets' first GPUs, without filters.
/// Every GPU is in one, also those that carry nothing or could not; `devices: all` where all are in the same,
/// `devices: []` where the node has no GPU.
///
/// Errors: Errc::usage, the name cannot stand in a node's label (at most 63 letters, digits, `-`, `_` and
/// `.`, the first and the last a letter or digit); Errc::unsupported, a GPU carries what no v1 file can say;
/// Errc::failed, a vGPU that no driver has taken; or the scan's own, where what a GPU carries cannot be read.
/// There is no profile without that GPU: who applied it would take away what it leaves out.
Result<Profile> export_profile(const VgpuInventory& inventory, const std::string& name);

/// A profile as a file of its own, version v1, as read_profiles() takes it.
std::string profile_text(const Profile& profile);

}  // namespace ferry
