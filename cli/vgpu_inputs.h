// SPDX-License-Identifier: Apache-2.0
// What the vGPU verbs begin with: the profiles of a file, and the host to hold them against.
#pragma once

#include "cli/session.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "vgpu-dm/apply.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// The profiles of `options.file`; what was let pass is said on stderr.
Result<ProfileFile> read_profiles_for(const ProfileOptions& options);

/// The host, where `uses` is asked who holds what. Errors: the host has no identity to make UUIDs from.
Result<VgpuHost> vgpu_host(const Session& session, UseProbe& uses);
Result<VgpuHost> vgpu_host(const Session& session);

}  // namespace ferry
