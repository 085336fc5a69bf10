// SPDX-License-Identifier: Apache-2.0
// Fatal PCIe errors, counted by the kernel for each function.
// ABI: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats (Linux 4.19; only if the host and not the
// firmware handles such errors).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/advertised_resources.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::plugin {

/// Finds functions with a fatal error since they were first seen with their present binding. Earlier errors
/// do not count: binding the driver again settles them. If a function is removed and found again, the
/// kernel's count starts anew, and so does this class.
///
/// Two bindings of one boot differ in the inode of the link to the driver, even with the same driver and no
/// look in between. Each binding creates that link, and sysfs numbers its entries in turn; a number repeats
/// only after two thousand million others. ABI: drivers/base/dd.c, driver_sysfs_add(); fs/kernfs/dir.c since
/// Linux 4.14.
class FatalErrors {
 public:
  /// A clause, "1 fatal PCIe error since it was advertised (/sys/...)"; empty: none, or the host does not
  /// count.
  std::string problem(const HostFs& host, const vfio::PciAddress& function);
  /// The functions that had errors at their last look, sorted by address.
  std::vector<api::FatalErrorsOf> found() const;
  /// Takes a finding of another process, valid as long as the function's binding is the same. An invalid
  /// address is ignored.
  void remember(const api::FatalErrorsOf& before);

 private:
  struct LastRead {
    std::uint64_t count = 0;
    std::uint64_t binding = 0;  // 0: unknown
    bool had_some = false;
  };
  std::map<vfio::PciAddress, LastRead> last_read_;
};

}  // namespace ferry::plugin
