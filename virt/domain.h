// SPDX-License-Identifier: Apache-2.0
// The parts of libvirt's domain XML that Ferry reads. Format: libvirt.org/formatdomain.html.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
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

/// A domain's name, UUID and host devices. All devices with a PCI source address count, so NVMe disks and
/// network functions too. `pid` is not in the XML. Addresses are read as libvirt reads them, 0x for
/// hexadecimal. Errc::malformed_host names the fault.
Result<Domain> read_domain_xml(std::string_view xml);

}  // namespace ferry::virt
