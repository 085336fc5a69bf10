// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/memory_map.h"

#include <algorithm>
#include <array>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

namespace ferry::vfio {

bool MemoryMap::hidden() const {
  return !claims.empty() &&
         std::ranges::all_of(claims, [](const MemoryClaim& c) { return c.start == 0 && c.end == 0; });
}

MemoryMap parse_memory_map(std::string_view text) {
  constexpr std::string_view kBeforeName = " : ";
  MemoryMap map;
  while (!text.empty()) {
    std::string_view line = cut(text, '\n');
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const auto name = line.find(kBeforeName);
    std::string_view range = line.substr(0, name);
    const auto start = whole_number<std::uint64_t>(cut(range, '-'), 16);
    const auto end = whole_number<std::uint64_t>(range, 16);
    if (name == std::string_view::npos || !start || !end || *end < *start) {
      ++map.malformed;
      continue;
    }
    map.claims.push_back(
        {.start = *start, .end = *end, .name = std::string(line.substr(name + kBeforeName.size()))});
  }
  return map;
}

std::optional<FirmwareFramebuffer> firmware_framebuffer(const MemoryMap& map, const std::vector<Bar>& bars) {
  // Names under which drivers of the firmware's framebuffer claim its memory.
  constexpr std::array<std::string_view, 7> kNames = {"BOOTFB",    "efifb",  "simplefb", "vesafb",
                                                      "simpledrm", "efidrm", "vesadrm"};
  for (const MemoryClaim& claim : map.claims) {
    if (std::ranges::find(kNames, claim.name) == kNames.end()) continue;
    for (const Bar& bar : bars) {
      // A size that runs past the last address is cut there, not wrapped.
      const std::uint64_t last =
          bar.size - 1 > UINT64_MAX - bar.start ? UINT64_MAX : bar.start + bar.size - 1;
      if (bar.is_memory() && bar.is_assigned() && claim.start >= bar.start && claim.end <= last)
        return FirmwareFramebuffer{.name = claim.name, .bar = bar.index};
    }
  }
  return std::nullopt;
}

}  // namespace ferry::vfio
