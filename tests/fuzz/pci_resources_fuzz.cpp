// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/pci/pci_resources.h"

// First a `resourceN_resize` file, then a `resource` file.
void ferry::fuzz::one_input(std::string_view text) {
  const auto [resize, resource] = first_line(text);
  if (const auto sizes = vfio::parse_resizable_sizes(resize)) {
    std::uint64_t before = 0;
    for (const std::uint64_t size : *sizes) {
      require(size > before && (size & (size - 1)) == 0, "sizes are powers of two and ascend");
      before = size;
    }
  }
  const vfio::PciResources found = vfio::parse_pci_resources(resource);
  require(found.bars.size() + found.notes.size() + (found.rom ? 1 : 0) <= 7,
          "a line is a BAR, the ROM or noted, and there are seven at most");
  require(!found.rom || (found.rom->index == 6 && found.rom->size != 0), "the ROM has a size");
  unsigned next = 0;
  for (const vfio::Bar& bar : found.bars) {
    require(bar.index >= next && bar.index < 6, "BARs are in order");
    require(bar.size != 0 && bar.start + (bar.size - 1) >= bar.start,
            "a BAR has a size and ends after it begins");
    next = bar.index + 1;
  }
}
