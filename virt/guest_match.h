// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "virt/selftest.h"

namespace ferry {

/// A host device that the guest is to see.
struct ExpectedDevice {
  std::string device;  ///< as it was asked for
  PciIds ids;
  bool exact = true;  ///< all four IDs; false: a function of that vendor
};

/// Finds each in the guest. One guest function stands for one of them only, so two equal GPUs need two.
std::vector<SelftestDevice> match_guest(const std::vector<ExpectedDevice>& expected,
                                        const std::vector<GuestDevice>& guest);

}  // namespace ferry
