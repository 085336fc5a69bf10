// SPDX-License-Identifier: Apache-2.0
// Which vfio driver a function gets: vfio-pci, or the variant driver that names its IDs.
// Source of the rule: lib/modules/<release>/modules.alias, lines "alias vfio_pci:<pattern> <module>", as
// libvirt and NVIDIA's tools read them; kernel
// Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst.
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

  /// The table of the running kernel's modules. A missing file gives an empty table (every function then gets
  /// vfio_pci), as after an upgrade without a reboot.
  static VfioDriverTable read(const HostFs& host);

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

  struct Alias {
    std::array<std::string, kFields> fields;  // "*" matches any
    std::size_t wildcards = 0;
    std::string module;
  };
  std::vector<Alias> aliases_;
  std::map<std::string, std::string> loaded_;  // module -> driver, from sys/module/M/drivers/pci:D
};

}  // namespace ferry
