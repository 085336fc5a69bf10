// SPDX-License-Identifier: Apache-2.0
// Which vGPUs of a captured host Ferry had made there. By their UUIDs that can be told with the machine's ID
// alone, which no capture has: a file of the capture says it, with a line "UUID NUMBER" for each.
#pragma once

#include <string>

#include "common/host_fs.h"
#include "mdev/vgpu.h"

namespace ferry {

/// In no host's root but a captured one's.
inline constexpr const char* kCapturedVgpus = "captured-by-ferry/vgpus";

/// Sets VgpuDevice::captured_number of those that the file names. Without the file nothing is done; a line
/// that is none is passed over.
void take_captured_numbers(const HostFs& host, VgpuInventory& inventory);

/// A line of the file.
std::string captured_line(const VgpuId& id, unsigned number);

}  // namespace ferry
