// SPDX-License-Identifier: Apache-2.0
// Fatal PCIe errors, counted by the kernel for each function.
// ABI: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats (Linux 4.19; only if the host and not the
// firmware handles such errors).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::vfio {

/// A function with fatal PCIe errors, as one process passes it to the next.
struct FatalErrorsOf {
  std::string function;       ///< its address
  std::uint64_t since = 0;    ///< the kernel's count when the function was first seen
  std::uint64_t binding = 0;  ///< binding_of(); 0: unknown
  bool operator==(const FatalErrorsOf&) const = default;
};

/// True if the kernel has counted a fatal error of the function since it was found, whatever has bound it
/// then.
bool had_fatal_errors(const HostFs& host, const PciAddress& function);

/// Finds functions with a fatal error since they were first seen with their present binding. Earlier errors
/// do not count: binding the driver again settles them. If a function is removed and found again, the
/// kernel's count starts anew, and so does this class.
class FatalErrors {
 public:
  /// A clause, "1 fatal PCIe error since it was advertised (/sys/...)"; empty: none, or the host does not
  /// count.
  std::string problem(const HostFs& host, const PciAddress& function);
  /// The functions that had errors at their last look, sorted by address.
  std::vector<FatalErrorsOf> found() const;
  /// Takes a finding of another process, valid as long as the function's binding is the same. An invalid
  /// address is ignored.
  void remember(const FatalErrorsOf& before);

 private:
  struct LastRead {
    std::uint64_t count = 0;
    std::uint64_t binding = 0;  // 0: unknown
    bool had_some = false;
  };
  std::map<PciAddress, LastRead> last_read_;
};

}  // namespace ferry::vfio
