// SPDX-License-Identifier: Apache-2.0
#include "vfio/firmware_framebuffer.h"

#include <algorithm>
#include <array>

namespace ferry {
namespace {

// Names under which drivers of the firmware's framebuffer claim its memory.
bool is_firmware_framebuffer(const std::string& name) {
  constexpr std::array<std::string_view, 7> kNames = {"BOOTFB",    "efifb",  "simplefb", "vesafb",
                                                      "simpledrm", "efidrm", "vesadrm"};
  return std::ranges::find(kNames, name) != kNames.end();
}

bool holds(const Bar& bar, const MemoryClaim& claim) {
  // A size that runs past the last address is cut there, not wrapped.
  const std::uint64_t last = bar.size - 1 > UINT64_MAX - bar.start ? UINT64_MAX : bar.start + bar.size - 1;
  return bar.is_memory() && bar.is_assigned() && claim.start >= bar.start && claim.end <= last;
}

}  // namespace

std::optional<FirmwareFramebuffer> firmware_framebuffer(const MemoryMap& map, const std::vector<Bar>& bars) {
  for (const MemoryClaim& claim : map.claims) {
    if (!is_firmware_framebuffer(claim.name)) continue;
    for (const Bar& bar : bars) {
      if (holds(bar, claim)) return FirmwareFramebuffer{.name = claim.name, .bar = bar.index};
    }
  }
  return std::nullopt;
}

}  // namespace ferry
