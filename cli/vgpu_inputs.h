// SPDX-License-Identifier: Apache-2.0
// The inputs of the vGPU verbs: a file's profiles, and the host to compare them with.
#pragma once

#include "cli/session.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "vgpu-dm/apply.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// The profiles of `options.file`. Their warnings go to stderr.
Result<ProfileFile> read_profiles_for(const ProfileOptions& options);

/// The host; `uses` finds its device users. Errors: the host has no identity to make UUIDs from.
Result<VgpuHost> vgpu_host(const Session& session, UseProbe& uses);
Result<VgpuHost> vgpu_host(const Session& session);

}  // namespace ferry
