// SPDX-License-Identifier: Apache-2.0
// Inside this room: the device nodes through which a VM holds a vGPU.
// ABI: Documentation/driver-api/vfio.rst; Documentation/ABI/testing/sysfs-class-vfio.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/use_probe.h"

namespace ferry {

/// The node of its group and, from Linux 6.6 on, the device's own: those that are there. Errors: one is there
/// and its number cannot be read, so that nobody could say who has it open.
Result<std::vector<DeviceNode>> read_vfio_nodes(const HostFs& host, const std::filesystem::path& device,
                                                std::optional<std::uint32_t> group);

}  // namespace ferry
