// SPDX-License-Identifier: Apache-2.0
// The device nodes through which a VM uses a vGPU, and the attributes that NVIDIA's driver gives it.
// ABI: Documentation/driver-api/vfio.rst; Documentation/ABI/testing/sysfs-class-vfio.
#pragma once

#include <filesystem>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"

namespace ferry::mdev {

/// Adds the existing nodes to `device`: its IOMMU group's and, from Linux 6.6 on, its own, below `path` in
/// sysfs. Errors: the number of an existing node cannot be read, so its users cannot be found.
Result<> read_vfio_nodes(const HostFs& host, const std::filesystem::path& path, VgpuDevice& device);

/// Reads GPU instance, parameters and placement, below nvidia/ in `path`; another driver has none. Some
/// releases fail the read of the GPU instance for a time-sliced type.
void read_nvidia_attributes(const HostFs& host, const std::filesystem::path& path, VgpuDevice& device);

}  // namespace ferry::mdev
