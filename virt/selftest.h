// SPDX-License-Identifier: Apache-2.0
// A throw-away VM that gets devices of this host and reports the devices that it sees.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::virt {

/// How the guest's instructions are run. `automatic`: KVM where libvirt finds it usable, else emulation.
enum class GuestAccelerator { automatic, kvm, tcg };

struct SelftestOptions {
  /// PCI addresses and mdev UUIDs, at least one. Functions must be on a vfio driver already: nothing is bound
  /// for the test.
  std::vector<std::string> devices;
  std::string kernel;  ///< Linux kernel, a path on the libvirt host
  std::string initrd;  ///< initramfs whose init names the PCI devices on the console (tests/node/guest/init)
  std::uint32_t memory_mib = 256;
  std::chrono::seconds timeout{120};  ///< for the whole test, from the request to the guest's last line
  GuestAccelerator accelerator = GuestAccelerator::automatic;
};

/// The IDs that identify a PCI function, as its configuration space has them.
struct PciIds {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  auto operator<=>(const PciIds&) const = default;
};

/// A PCI function as the guest saw it.
struct GuestDevice {
  vfio::PciAddress address;  ///< in the guest
  PciIds ids;
  std::uint32_t class_code = 0;  ///< 24 bits: class, subclass, interface
  bool operator==(const GuestDevice&) const = default;
};

/// A device of SelftestOptions::devices, and its address in the guest.
struct SelftestDevice {
  std::string device;  ///< name in the request
  PciIds host_ids;     ///< IDs of the function, from sysfs; for a UUID, of the device's parent
  /// The function in the guest with the very same IDs. For a UUID, a function of the parent's vendor: device
  /// and subsystem IDs of a vGPU are its type's. Absent: not seen.
  std::optional<vfio::PciAddress> seen_as;
  bool operator==(const SelftestDevice&) const = default;
};

struct SelftestReport {
  std::string domain;  ///< name of the VM, which no longer exists
  GuestAccelerator accelerator = GuestAccelerator::tcg;
  double seconds = 0;  ///< from the domain's start to the guest's last line
  std::vector<GuestDevice> guest;
  std::vector<SelftestDevice> devices;

  /// True if every device was seen.
  bool passed() const;
  bool operator==(const SelftestReport&) const = default;
};

/// A host device that the guest should see.
struct ExpectedDevice {
  std::string device;  ///< name in the request
  PciIds ids;
  bool exact = true;  ///< true: all four IDs must match; false: only the vendor
};

/// Finds each device in the guest. A guest function stands for only one of them: two equal GPUs need two.
std::vector<SelftestDevice> match_guest(const std::vector<ExpectedDevice>& expected,
                                        const std::vector<GuestDevice>& guest);

struct HostDevices {
  std::vector<vfio::PciAddress> pci;
  std::vector<std::string> mdev;  ///< UUIDs, lower case
  std::vector<ExpectedDevice> expected;
};

/// Looks up PCI addresses and mdev UUIDs. Errc::usage: no word, a repeated word, or a word that is neither.
/// Errc::not_found: no such device. Errc::refused: a function that is on no vfio driver.
Result<HostDevices> find_host_devices(const HostFs& host, const std::vector<std::string>& devices);

/// Starts a transient VM with the devices, waits until its guest has named them, and destroys the VM. libvirt
/// ties the VM to the connection and destroys it when this process ends, however it ends. `uri` as for
/// connect(). Errors: virt_client.h.
Result<SelftestReport> selftest(HostFs& host, const std::string& uri, const SelftestOptions& options);

}  // namespace ferry::virt
