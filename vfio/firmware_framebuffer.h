// SPDX-License-Identifier: Apache-2.0
// The screen that the firmware left behind, where it lies in a device's memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vfio/memory_map.h"
#include "vfio/pci_resources.h"

namespace ferry {

struct FirmwareFramebuffer {
  std::string name;  ///< as its driver claims it in proc/iomem: "BOOTFB", "efifb"
  unsigned bar = 0;
};

/// The first claim of a firmware framebuffer that lies inside one of `bars`. Absent: there is none.
std::optional<FirmwareFramebuffer> firmware_framebuffer(const MemoryMap& map, const std::vector<Bar>& bars);

}  // namespace ferry
