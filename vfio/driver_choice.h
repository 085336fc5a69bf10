// SPDX-License-Identifier: Apache-2.0
// Which vfio driver a function gets: vfio-pci, or the variant driver that names its IDs.
// Source of the rule: lib/modules/<release>/modules.alias, lines "alias vfio_pci:<pattern> <module>", as
// libvirt and NVIDIA's tools read them; kernel
// Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst. Drivers that are built in are not
// there but in modules.builtin.modinfo: entries "<module>.alias=vfio_pci:<pattern>", each ended by a NUL
// (kbuild, scripts/Makefile.vmlinux; kmod's libkmod-builtin.c).
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

struct VfioDriver {
  std::string module;  ///< what to load: "vfio_pci"
  std::string driver;  ///< its PCI driver directory: "vfio-pci"
  bool operator==(const VfioDriver&) const = default;
};

class VfioDriverTable {
 public:
  /// The table of a modules.alias text. Lines that are no well-formed vfio_pci alias are passed over: the
  /// file holds every module's.
  static VfioDriverTable parse(std::string_view modules_alias);

  /// Takes in the aliases of a modules.builtin.modinfo text, behind those that are there.
  void add_builtin(std::string_view modinfo);

  /// The table of the running kernel's modules. Without modules.alias, as after an upgrade without a reboot,
  /// functions get vfio_pci unless a driver that is built in names them, and warning() says so.
  static VfioDriverTable read(const HostFs& host);

  /// For people: that a variant driver may be overlooked, and why. Empty when all is known.
  const std::string& warning() const { return warning_; }

  /// The driver for a function's modalias ("pci:v000010DEd..."): of the aliases that match, the one with the
  /// fewest "any" fields, the first of equals; vfio_pci when none does. The driver's name is what the loaded
  /// module says of itself; of one that is not loaded yet it is a guess: the module's own name, and vfio-pci
  /// for vfio_pci.
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

}  // namespace ferry
