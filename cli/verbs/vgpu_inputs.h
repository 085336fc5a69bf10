// SPDX-License-Identifier: Apache-2.0
// The inputs of the vGPU verbs: a file's profiles, and the host to compare them with.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/verbs/verbs.h"
#include "common/result.h"
#include "mdev/vgpu.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::cli {

// The GPUs that --device of the vGPU verbs names.

/// Errc::usage: a text is no PCI address.
Result<std::set<vfio::PciAddress>> parse_gpus(const std::vector<std::string>& addresses);

/// Checks that each is a GPU of this host. Errc::not_found names the first that is not.
Result<> check_gpus(const std::set<vfio::PciAddress>& gpus, const mdev::VgpuInventory& inventory);

/// The profiles of `options.file`. Their warnings go to stderr.
Result<vgpu::ProfileFile> read_profiles_for(const ProfileOptions& options);

/// The host; `uses` finds its device users. Errors: the host has no identity to make UUIDs from.
Result<vgpu::VgpuHost> vgpu_host(const Session& session, vfio::UseProbe& uses);
Result<vgpu::VgpuHost> vgpu_host(const Session& session);

}  // namespace ferry::cli
