// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "tests/fuzz/fuzz.h"
#include "vfio/pci/uevents.h"

void ferry::fuzz::one_input(std::string_view text) {
  if (!vfio::concerns_us(text)) return;
  constexpr std::array<std::string_view, 3> kOurs = {"SUBSYSTEM=pci", "SUBSYSTEM=mdev", "SUBSYSTEM=vfio"};
  require(std::ranges::any_of(kOurs, [&](auto ours) { return text.find(ours) != std::string_view::npos; }),
          "what is of no subsystem of ours does not concern us");
}
