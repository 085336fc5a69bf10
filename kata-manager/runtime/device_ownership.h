// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/check.h"
#include "hostfs/host_fs.h"

namespace ferry::kata {

/// Reads from the container runtime's files whether a container that is not root may open its device nodes.
/// For hosts with iommufd: KubeVirt v1.9.0 (pkg/virt-handler, prepareVFIO) gives the launcher's user the
/// nodes in /dev/vfio, but neither /dev/iommu nor those in /dev/vfio/devices.
/// ABI: device_ownership_from_security_context of containerd's CRI (1.6 and newer) and of CRI-O's
/// crio.runtime; off where it is not set.
Check device_ownership_check(const HostFs& host);

}  // namespace ferry::kata
