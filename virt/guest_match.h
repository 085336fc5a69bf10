// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "virt/selftest.h"

namespace ferry::virt {

/// A host device that the guest should see.
struct ExpectedDevice {
  std::string device;  ///< name in the request
  PciIds ids;
  bool exact = true;  ///< true: all four IDs must match; false: only the vendor
};

/// Finds each device in the guest. A guest function stands for only one of them: two equal GPUs need two.
std::vector<SelftestDevice> match_guest(const std::vector<ExpectedDevice>& expected,
                                        const std::vector<GuestDevice>& guest);

}  // namespace ferry::virt
