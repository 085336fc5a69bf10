// SPDX-License-Identifier: Apache-2.0
// GPUs with an in-flight write (common/stuck_writes.h). The driver may keep a lock that its sysfs attributes
// take too. A process that reads such an attribute hangs, and no signal ends it.
#pragma once

#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/stuck_writes.h"
#include "vfio/pci_address.h"

namespace ferry {

class HeldGpus {
 public:
  /// Reads the present records of in-flight writes. Errors: the records cannot be read.
  static Result<HeldGpus> read(const HostFs& host);
  /// True if a write is in flight on any function of the GPU that `function` is or belongs to.
  bool holds(const HostFs& host, const PciAddress& function) const;
  /// True if such a write is late (StuckWrite::late) and may never return.
  bool holds_for_good(const HostFs& host, const PciAddress& function) const;
  /// True if a write is in flight on this very function or vGPU.
  bool is_on(const std::string& device) const;

 private:
  std::vector<const StuckWrite*> acts_on(const HostFs& host, const PciAddress& function) const;

  std::vector<StuckWrite> acts_;
};

/// Errc::stuck: the error of a function whose driver's attributes must not be read.
Error held_by_an_act(const PciAddress& function);

}  // namespace ferry
