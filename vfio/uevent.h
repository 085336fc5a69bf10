// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace ferry {

/// Whether one of the kernel's device events is of PCI, mediated or VFIO devices: "add@/devices/..." and the
/// KEY=VALUE fields after it, each ended by a zero byte. What cannot be read does not concern us.
/// ABI: lib/kobject_uevent.c.
bool concerns_us(std::string_view uevent);

}  // namespace ferry
