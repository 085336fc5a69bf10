// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "vfio/pci/memory_map.h"

void ferry::fuzz::one_input(std::string_view text) {
  const vfio::MemoryMap map = vfio::parse_memory_map(text);
  for (const vfio::MemoryClaim& claim : map.claims)
    require(claim.start <= claim.end, "a claim ends after its start");
  auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (!text.empty() && !text.ends_with('\n')) ++lines;
  require(map.claims.size() + map.malformed == lines, "every line is a claim or counted");
}
