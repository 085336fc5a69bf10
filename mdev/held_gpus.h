// SPDX-License-Identifier: Apache-2.0
// GPUs whose driver has not returned from an act (common/stuck_writes.h). It may keep a
// lock that its own attributes take too, and whoever reads one then hangs with it, which no signal ends.
#pragma once

#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/stuck_writes.h"
#include "vfio/pci_address.h"

namespace ferry {

class HeldGpus {
 public:
  /// By the records of now. Errors: they cannot be read.
  static Result<HeldGpus> read(const HostFs& host);
  /// Whether an act is under way on the GPU that this function is, or is a virtual one of: on any of its
  /// functions.
  bool holds(const HostFs& host, const PciAddress& function) const;
  /// Whether one of those acts is late (StuckWrite::late), and may never return.
  bool holds_for_good(const HostFs& host, const PciAddress& function) const;
  /// Whether an act is on this very function, or vGPU.
  bool is_on(const std::string& device) const;

 private:
  std::vector<const StuckWrite*> acts_on(const HostFs& host, const PciAddress& function) const;

  std::vector<StuckWrite> acts_;
};

/// Errc::stuck: what is said of a function whose driver's attributes are not read.
Error held_by_an_act(const PciAddress& function);

}  // namespace ferry
