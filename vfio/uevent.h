// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace ferry {

/// True if a device event of the kernel concerns PCI, mediated or VFIO devices. An event is
/// "add@/devices/..." and KEY=VALUE fields, each ended by a zero byte. A malformed event does not count.
/// ABI: lib/kobject_uevent.c.
bool concerns_us(std::string_view uevent);

}  // namespace ferry
