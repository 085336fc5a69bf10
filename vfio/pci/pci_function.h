// SPDX-License-Identifier: Apache-2.0
// A PCI function as the kernel shows it.
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-vfio; header type: PCI Local Bus 3.0, 6.2.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::vfio {

// A PCI function's modalias, which gives five attributes in one read.
// ABI: drivers/pci/pci-sysfs.c, modalias_show().

/// The values of the attributes with these names.
struct PciModalias {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
  std::uint32_t class_code = 0;  ///< 24 bits: class, subclass, programming interface
  bool operator==(const PciModalias&) const = default;
};

/// Parses "pci:v000010DEd00002684sv000010DEsd0000167Cbc03sc00i00"; absent: the text has another form.
std::optional<PciModalias> parse_pci_modalias(std::string_view text);

/// Classes that decide how a function is treated: the upper 16 bits of the 24-bit class code.
enum class PciClass : std::uint16_t {
  non_volatile_memory = 0x0108,
  ethernet = 0x0200,
  vga = 0x0300,
  xga = 0x0301,
  display_3d = 0x0302,
  display_other = 0x0380,
  audio = 0x0403,
  host_bridge = 0x0600,
  pci_bridge = 0x0604,
  bridge_other = 0x0680,  ///< NVSwitch; an endpoint in spite of its base class
  usb = 0x0c03,
  serial_bus_other = 0x0c80,  ///< USB-C controller of a GPU
  processing_accelerator = 0x1200,
};

enum class HeaderType : std::uint8_t { endpoint = 0, pci_bridge = 1, cardbus_bridge = 2 };

/// The answer of a function's config space, or of the kernel about its power.
enum class BusLook : std::uint8_t {
  answers,   ///< or not known: `problem` then says why
  all_ones,  ///< every byte reads 0xff: it is off the bus, and `problem` says so
  asleep,    ///< in D3cold, where a read would wake it: it has not been read (wake())
  error,     ///< the kernel failed to change its power state
};

struct PciFunction {
  PciAddress address;
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::optional<std::uint16_t> subsystem_vendor;  ///< absent on bridges and some old kernels
  std::optional<std::uint16_t> subsystem_device;
  std::uint32_t class_code = 0;  ///< 24 bits: class, subclass, programming interface
  HeaderType header = HeaderType::endpoint;
  std::string modalias;                         ///< "pci:v000010DEd...", empty if unreadable
  std::optional<std::string> driver;            ///< absent: no driver bound
  std::optional<std::string> driver_override;   ///< absent: unset, or not read: see read_overrides()
  bool override_unread = false;                 ///< read_overrides() could not read it
  std::optional<std::uint32_t> iommu_group;     ///< absent: no IOMMU handles it. Not stable over reboots
  std::optional<int> numa_node;                 ///< absent: the kernel does not know (-1)
  std::optional<PciAddress> physical_function;  ///< set on a virtual function
  std::uint32_t sriov_totalvfs = 0;             ///< 0: no SR-IOV
  std::uint32_t sriov_numvfs = 0;               ///< virtual functions that exist now
  bool boot_display = false;                    ///< boot_vga reads 1
  bool boot_display_unread = false;             ///< boot_vga is there, and reads neither 0 nor 1
  BusLook bus = BusLook::answers;
  /// The firmware's framebuffer that lies in its memory: "simple-framebuffer.0", "BOOTFB in BAR 1". Empty:
  /// there is none. Absent: not known; read_unit_facts() reads it, and the scan may see it.
  std::optional<std::string> firmware_framebuffer = {};
  std::vector<std::string>
      vfio_devices;  ///< names in vfio-dev/ ("vfio3"), kernel 6.1 and newer, while on a vfio driver
  /// Its driver is no vfio driver for it, and its virtual functions are vfio devices on that driver. The
  /// driver has thus declared that it leaves DMA to VFIO, which it does for all its functions at once.
  /// NVIDIA's driver does so when built for vGPU hosts.
  bool leaves_dma = false;
  std::vector<PciAddress>
      consumers;  ///< functions linked to this one as consumers (a GPU's audio, USB, UCSI)

  /// Set if a required fact could not be read. The function then counts as present but is never written to.
  std::optional<Error> problem;

  PciClass pci_class() const { return static_cast<PciClass>(class_code >> 8U); }
  bool is_bridge() const { return header != HeaderType::endpoint; }
  bool is_virtual_function() const { return physical_function.has_value(); }
  /// Vendor and device: "10de:2684".
  std::string ids() const;
};

/// Reads one function, except attributes that the kernel serves under the device's lock: a hanging driver
/// keeps that lock, and the read would hang too. Errc::not_found: there is no such function, or it vanished
/// while being read. Other failures become its `problem`.
Result<PciFunction> read_function(const HostFs& host, const PciAddress& address);

/// Reads again the facts that a bind or unbind changes: the driver and the vfio entries. Errc::not_found: the
/// function has vanished.
Result<> read_binding(const HostFs& host, PciFunction& function);

/// Reads the first bytes of the config space of a function that is asleep, which wakes it for a moment. Sets
/// `bus`, and `problem` if it is off the bus.
void wake(const HostFs& host, PciFunction& function);

/// True if the function's virtual functions are vfio devices on `driver`, its own driver (leaves_dma).
bool has_vfio_vfs(const HostFs& host, const PciAddress& address, const std::string& driver);

/// "driver_override of 0000:65:00.0 names vfio-pci, while nouveau is bound"; absent: no override is set, it
/// names the bound driver, or no driver is bound.
std::optional<std::string> override_of_another_driver(const PciFunction& function);

/// A function's kind in a word: "audio", "bridge", "network", "virtual function"; else its class in hex.
std::string kind_of(const PciFunction& function);

/// The function's directory: sys/bus/pci/devices/ADDRESS.
std::filesystem::path sysfs_path(const PciAddress& address);

/// The host bridge above a function, "pci0000:16". It is the root of its PCI Express hierarchy in the terms
/// of DRA's attribute pcieRoot. Empty: sysfs does not show it.
std::string pcie_root(const HostFs& host, const PciAddress& address);

/// The absolute path of a file in the function's directory, for a message.
std::string path_text(const PciFunction& function, std::string_view attribute);

}  // namespace ferry::vfio
