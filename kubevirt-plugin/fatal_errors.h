// SPDX-License-Identifier: Apache-2.0
// PCIe errors that the link did not survive, counted by the kernel for each function.
// ABI: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats (Linux 4.19; where the host, not the
// firmware, handles such errors).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "vfio/pci_function.h"

namespace ferry {

/// A function that has had such errors, as one process hands it on to the next.
struct FatalErrorsOf {
  std::string function;     ///< its address
  std::uint64_t since = 0;  ///< how many were counted when it was first seen
  std::vector<std::string> vfio_devices;
  bool operator==(const FatalErrorsOf&) const = default;
};

/// Which functions have had such an error since they were first seen. What was counted before is past:
/// whoever binds a function anew has dealt with it.
class FatalErrors {
 public:
  /// A clause, "1 fatal PCIe error since it was offered (/sys/...)"; empty: none, or the host does not count.
  std::string problem(const HostFs& host, const PciFunction& function);
  /// It is not offered now, or has been bound anew: its count begins again with the next look.
  void forget(const PciAddress& function) { seen_.erase(function); }

  /// Those that had some when they were last looked at, in order of address.
  std::vector<FatalErrorsOf> found() const;
  /// What another process has found: good as long as the function is bound as it was. An address that is none
  /// is passed over.
  void remember(const FatalErrorsOf& before);

 private:
  struct Seen {
    std::uint64_t count = 0;
    /// Names are given out again: another one means another binding, the same one may be of another too.
    std::vector<std::string> vfio_devices;
    bool had_some = false;
  };
  std::map<PciAddress, Seen> seen_;
};

}  // namespace ferry
