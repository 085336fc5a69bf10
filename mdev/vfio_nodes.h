// SPDX-License-Identifier: Apache-2.0
// The device nodes through which a VM uses a vGPU.
// ABI: Documentation/driver-api/vfio.rst; Documentation/ABI/testing/sysfs-class-vfio.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::mdev {

/// The existing nodes: the IOMMU group's and, from Linux 6.6 on, the device's own. Errors: the number of an
/// existing node cannot be read, so its users cannot be found.
Result<std::vector<vfio::DeviceNode>> read_vfio_nodes(const HostFs& host, const std::filesystem::path& device,
                                                      std::optional<std::uint32_t> group);

}  // namespace ferry::mdev
