// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "virt/domain.h"
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

/// Devices for a self-test, as the host has them.
struct HostDevices {
  std::vector<vfio::PciAddress> pci;
  std::vector<std::string> mdev;  ///< UUIDs, lower case
  std::vector<ExpectedDevice> expected;
};

/// Looks up PCI addresses and mdev UUIDs. Errc::usage: no word, a repeated word, or a word that is neither.
/// Errc::not_found: no such device. Errc::refused: a function that is on no vfio driver.
Result<HostDevices> find_host_devices(const HostFs& host, const std::vector<std::string>& devices);

}  // namespace ferry::virt
