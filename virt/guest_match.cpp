// SPDX-License-Identifier: Apache-2.0
#include "virt/guest_match.h"

#include <algorithm>

namespace ferry::virt {

std::vector<SelftestDevice> match_guest(const std::vector<ExpectedDevice>& expected,
                                        const std::vector<GuestDevice>& guest) {
  std::vector<SelftestDevice> out;
  out.reserve(expected.size());
  for (const auto& [device, ids, exact] : expected) {
    out.push_back({.device = device, .host_ids = ids, .seen_as = {}});
  }
  std::vector<bool> taken(guest.size(), false);
  // Exact devices choose first: a whole GPU must not be taken for a vGPU of its vendor.
  for (const bool exact : {true, false}) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].exact != exact) continue;
      for (std::size_t j = 0; j < guest.size() && !out[i].seen_as; ++j) {
        const bool same =
            exact ? guest[j].ids == expected[i].ids : guest[j].ids.vendor == expected[i].ids.vendor;
        if (taken[j] || !same) continue;
        taken[j] = true;
        out[i].seen_as = guest[j].address;
      }
    }
  }
  return out;
}

}  // namespace ferry::virt
