// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "virt/domain_xml.h"
#include "virt/guest_match.h"

namespace ferry {

/// What a self-test is asked to give away, as the host has it.
struct HostDevices {
  std::vector<PciAddress> pci;
  std::vector<std::string> mdev;  ///< UUIDs, lower case
  std::vector<ExpectedDevice> expected;
};

/// Looks the PCI addresses and mdev UUIDs up. Errc::usage: a word that is neither, or none, or one twice;
/// Errc::not_found: no such device; Errc::refused: a function that no vfio driver has.
Result<HostDevices> find_host_devices(const HostFs& host, const std::vector<std::string>& devices);

}  // namespace ferry
