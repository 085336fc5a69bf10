// SPDX-License-Identifier: Apache-2.0
// The vfio driver for a function: vfio-pci, or the variant driver that names the function's IDs.
// The rule is in lib/modules/<release>/modules.alias, lines "alias vfio_pci:<pattern> <module>", as libvirt
// and NVIDIA's tools read them; kernel
// Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst. Built-in drivers are in
// modules.builtin.modinfo only: entries "<module>.alias=vfio_pci:<pattern>", each ended by a NUL (kbuild,
// scripts/Makefile.vmlinux; kmod's libkmod-builtin.c).
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {

struct VfioDriver {
  std::string module;  ///< the module to load: "vfio_pci"
  std::string driver;  ///< its PCI driver directory: "vfio-pci"
  bool operator==(const VfioDriver&) const = default;
};

class VfioDriverTable {
 public:
  /// Parses a modules.alias text. Lines of other kinds are skipped, since the file has all modules' aliases.
  static VfioDriverTable parse(std::string_view modules_alias);

  /// Appends the aliases of a modules.builtin.modinfo text.
  void add_builtin(std::string_view modinfo);

  /// Reads the table of the running kernel. Without modules.alias, as after an upgrade without a reboot, a
  /// function gets vfio_pci or a built-in variant driver, and warning() says so.
  static VfioDriverTable read(const HostFs& host);

  /// A message that a variant driver may be missed, with the reason. Empty: the table is complete.
  const std::string& warning() const { return warning_; }

  /// The driver for a function's modalias ("pci:v000010DEd..."). The matching alias with the fewest "any"
  /// fields wins, the first of equals; without a match it is vfio_pci. A loaded module tells its driver's
  /// name. For a module that is not loaded the name is a guess: the module's own, or vfio-pci for vfio_pci.
  VfioDriver choose(std::string_view modalias) const;

 private:
  static constexpr std::size_t kFields =
      7;  // vendor, device, subsystem vendor and device, class, subclass, interface
  using Fields = std::array<std::string_view, kFields>;
  static bool split(std::string_view pattern, Fields& out);
  void add(std::string_view pattern, std::string_view module);

  struct Alias {
    std::array<std::string, kFields> fields;  // "*" matches any
    std::size_t wildcards = 0;
    std::string module;
  };
  std::vector<Alias> aliases_;
  std::string warning_;
  std::map<std::string, std::string> loaded_;  // module -> driver, from sys/module/M/drivers/pci:D
};

// Reads driver_override apart from all other facts. The kernel shows it under the device's lock
// (drivers/pci/pci-sysfs.c); a hanging driver keeps that lock, and the reader then hangs too.

/// Sets driver_override in each of `functions` that `inventory` has; each read waits up to `deadline`. A
/// missing attribute counts as unset. A failed read sets `override_unread`, and the reason as the function's
/// `problem`. A function with a stuck read or write (stuck_writes.h) is not read but set `override_unread`; a
/// stuck write sets no problem, since the plan reports it. If the stuck acts cannot be read, no function is
/// read, and that is the problem of each.
void read_overrides(const HostFs& host, HostWriter& reader, std::span<const PciAddress> functions,
                    Inventory& inventory, std::chrono::milliseconds deadline = kReadDeadline);

}  // namespace ferry::vfio
