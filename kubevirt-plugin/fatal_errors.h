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
#include "vfio/pci_address.h"

namespace ferry {

/// A function that has had such errors, as one process hands it on to the next.
struct FatalErrorsOf {
  std::string function;       ///< its address
  std::uint64_t since = 0;    ///< how many were counted when it was first seen
  std::uint64_t binding = 0;  ///< as FatalErrors tells one of a function's bindings from another; 0: unknown
  bool operator==(const FatalErrorsOf&) const = default;
};

/// Which functions have had such an error since they were first seen, bound as they are. What was counted
/// before is past: whoever has a driver take a function anew has dealt with it. Of one that is taken off the
/// bus and found again the kernel counts anew, and so do we.
///
/// A binding is told from another of the same boot by the inode of the link to its driver, though both be of
/// one driver and nobody has looked between: a binding makes that link, and sysfs numbers what it makes in
/// turn, so that a number comes again only after two thousand million others. ABI: drivers/base/dd.c,
/// driver_sysfs_add(); fs/kernfs/dir.c since Linux 4.14.
class FatalErrors {
 public:
  /// A clause, "1 fatal PCIe error since it was offered (/sys/...)"; empty: none, or the host does not count.
  std::string problem(const HostFs& host, const PciAddress& function);
  /// Those that had some when they were last looked at, if ever, in order of address.
  std::vector<FatalErrorsOf> found() const;
  /// What another process has found: good as long as the function is bound as it was. An address that is none
  /// is passed over.
  void remember(const FatalErrorsOf& before);

 private:
  struct Seen {
    std::uint64_t count = 0;
    std::uint64_t binding = 0;  // 0: unknown
    bool had_some = false;
  };
  std::map<PciAddress, Seen> seen_;
};

}  // namespace ferry
