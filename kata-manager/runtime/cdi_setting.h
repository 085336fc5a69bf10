// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "common/check.h"
#include "hostfs/host_fs.h"
#include "kata-manager/containerd/containerd_release.h"

namespace ferry::kata {

/// Reads from the container runtime's files whether it gives pods the device nodes of CDI files in
/// /var/run/cdi, by which a ResourceClaim's devices reach a pod. `running`: the release of the containerd
/// that runs; absent: unknown, and both ways of reading the files are tried.
/// ABI: enable_cdi and cdi_spec_dirs of containerd's CRI: since 1.7, where it is off unless it is set; on by
/// default since 2.0. CRI-O always reads CDI files.
Check cdi_check(const HostFs& host, const std::optional<ContainerdRelease>& running);

}  // namespace ferry::kata
