// SPDX-License-Identifier: Apache-2.0
// Whether a container that is not root may open the device nodes that it is given, as the container runtime's
// files say it.
// ABI: device_ownership_from_security_context of containerd's CRI (1.6 and newer) and of CRI-O's
// crio.runtime; off where it is not set.
#pragma once

#include "common/check.h"
#include "common/host_fs.h"

namespace ferry {

/// For hosts that offer iommufd. KubeVirt v1.9.0 (pkg/virt-handler, prepareVFIO) makes the nodes of /dev/vfio
/// itself the launcher's, and neither /dev/iommu nor those below /dev/vfio/devices.
Check device_ownership_check(const HostFs& host);

}  // namespace ferry
