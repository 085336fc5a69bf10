// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vfio/pci/pci_address.h"

namespace ferry::virt {

/// A running libvirt domain and its host devices.
struct Domain {
  std::string name;
  std::string uuid;
  std::optional<int> pid;             ///< its QEMU process; absent if libvirt left no pid file on this host
  std::vector<vfio::PciAddress> pci;  ///< its PCI functions, managed or not, in the order of its XML
  std::vector<std::string> mdev;      ///< UUIDs of mediated devices, lower case, in the order of its XML

  bool operator==(const Domain&) const = default;
};

}  // namespace ferry::virt
