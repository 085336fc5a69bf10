// SPDX-License-Identifier: Apache-2.0
// vGPUs of a captured host that Ferry made there. Their UUIDs show it only together with the machine's ID,
// which no capture has. So a file of the capture lists them, one line "UUID NUMBER" each.
#pragma once

#include <string>

#include "common/host_fs.h"
#include "mdev/vgpu.h"

namespace ferry {

/// Exists in a captured host's root only.
inline constexpr const char* kCapturedVgpus = "captured-by-ferry/vgpus";

/// Sets VgpuDevice::captured_number of the vGPUs that the file lists. A host without the file keeps all of
/// them unset; reading stops at a line of another form.
void take_captured_numbers(const HostFs& host, VgpuInventory& inventory);

/// A line of the file kCapturedVgpus.
std::string captured_line(const VgpuId& id, unsigned number);

}  // namespace ferry
