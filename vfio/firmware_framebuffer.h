// SPDX-License-Identifier: Apache-2.0
// The framebuffer of the firmware, if it lies in a device's memory.
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

/// The first firmware framebuffer in `map` that lies inside one of `bars`. Absent: there is none.
std::optional<FirmwareFramebuffer> firmware_framebuffer(const MemoryMap& map, const std::vector<Bar>& bars);

}  // namespace ferry
