// SPDX-License-Identifier: Apache-2.0
// The parts of libvirt's domain XML that Ferry reads and writes. Format: libvirt.org/formatdomain.html.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/pci/pci_address.h"
#include "virt/selftest.h"

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

/// The throw-away VM of a self-test. Its devices are not managed: they are bound already, and libvirt does
/// not bind them back.
struct SelftestDomain {
  std::string name;
  GuestAccelerator accelerator = GuestAccelerator::tcg;  ///< kvm or tcg
  std::uint32_t memory_mib = 0;
  std::string kernel;
  std::string initrd;
  std::string kernel_arguments;
  std::string console_socket;  ///< unix socket that QEMU connects its serial port to
  std::vector<vfio::PciAddress> pci;
  std::vector<std::string> mdev;
};
std::string domain_xml(const SelftestDomain& domain);

}  // namespace ferry::virt
