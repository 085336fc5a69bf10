// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/reserved_regions.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

namespace ferry::vfio {

Result<std::vector<ReservedRegion>> parse_reserved_regions(std::string_view text) {
  const auto is_address = [](std::string_view word) {
    return word.starts_with("0x") && whole_number<std::uint64_t>(word.substr(2), 16);
  };
  std::vector<ReservedRegion> out;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto words = words_of(cut(text, '\n'));
    if (words.empty()) continue;
    if (words.size() != 3 || !is_address(words[0]) || !is_address(words[1]) ||
        !std::ranges::all_of(words[2], [](char c) { return is_lower(c) || c == '-'; })) {
      return fail(Errc::malformed_host, fmt::format("line {} is no reserved region", number));
    }
    out.push_back({std::string(words[0]), std::string(words[1]), std::string(words[2])});
  }
  return out;
}

}  // namespace ferry::vfio
