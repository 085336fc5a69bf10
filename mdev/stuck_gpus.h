// SPDX-License-Identifier: Apache-2.0
// GPUs with an in-flight write (hostfs/stuck_writes.h). The driver may keep a lock that its sysfs attributes
// take too. A process that reads such an attribute hangs, and no signal ends it.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/stuck_writes.h"
#include "vfio/pci/pci_address.h"

namespace ferry::mdev {

class StuckGpus {
 public:
  StuckGpus() = default;
  /// Acts that are only reads do not count.
  explicit StuckGpus(std::vector<StuckWrite> writes);
  /// Reads the present records of in-flight writes. Errors: the records cannot be read.
  static Result<StuckGpus> read(const HostFs& host);
  /// True if a write is in flight on any function of the GPU that `function` is or belongs to.
  bool contains(const HostFs& host, const vfio::PciAddress& function) const;
  /// True if such a write is late (StuckWrite::late) and may never return.
  bool is_late(const HostFs& host, const vfio::PciAddress& function) const;
  /// True if a write is in flight on this very function or vGPU.
  bool is_on(const std::string& device) const;

 private:
  std::vector<const StuckWrite*> writes_on(const HostFs& host, const vfio::PciAddress& function) const;

  std::vector<StuckWrite> writes_;
};

/// Errc::stuck: the error of a function whose driver's attributes must not be read.
Error stuck_error(const vfio::PciAddress& function);

}  // namespace ferry::mdev
