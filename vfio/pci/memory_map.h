// SPDX-License-Identifier: Apache-2.0
// Owners of physical address ranges, from proc/iomem.
// ABI: kernel/resource.c, r_show: "  start-end : name", hexadecimal without 0x, two blanks a level; every
// address reads zero without CAP_SYS_ADMIN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vfio/pci/pci_resources.h"

namespace ferry::vfio {

struct MemoryClaim {
  std::uint64_t start = 0;
  std::uint64_t end = 0;  ///< the last address of the range
  std::string name;       ///< "PCI Bus 0000:64", "BOOTFB"
  bool operator==(const MemoryClaim&) const = default;
};

struct MemoryMap {
  std::vector<MemoryClaim> claims;  ///< in the file's order: each claim before those inside it
  std::size_t malformed = 0;        ///< lines of another form
  /// True if every address is zero, because the reader may not see them.
  bool hidden() const;
};

MemoryMap parse_memory_map(std::string_view text);

// The framebuffer of the firmware, if it lies in a device's memory.

struct FirmwareFramebuffer {
  std::string name;  ///< as its driver claims it in proc/iomem: "BOOTFB", "efifb"
  unsigned bar = 0;
};

/// The first firmware framebuffer in `map` that lies inside one of `bars`. Absent: there is none.
std::optional<FirmwareFramebuffer> firmware_framebuffer(const MemoryMap& map, const std::vector<Bar>& bars);

}  // namespace ferry::vfio
