// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "vfio/pci/reserved_regions.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto regions = vfio::parse_reserved_regions(text);
  if (!regions) {
    require(regions.error().message.find("line ") == 0, "a refusal names the line");
    return;
  }
  for (const vfio::ReservedRegion& region : *regions)
    require(region.start.starts_with("0x") && region.end.starts_with("0x") && !region.type.empty(),
            "a region has two addresses and a type");
}
