// SPDX-License-Identifier: Apache-2.0
// Chooses how a function on vfio-pci is reset, and resets it: the child's side of sanitizing.h.
#pragma once

#include <cstdint>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"
#include "vfio/sanitize/sanitizing.h"

namespace ferry::vfio {

/// A function that a hot reset touches, and its IOMMU group.
struct TouchedFunction {
  PciAddress address;
  std::uint32_t group = 0;
};

/// The calls to VFIO that a reset makes.
class GroupCalls : Pinned {
 public:
  virtual ~GroupCalls() = default;

  /// Opens a group's node, which no VM can open then, and keeps it. EBUSY: a VM or another program has it.
  virtual Result<> hold(std::uint32_t group) = 0;
  /// Opens a function of a held group, and returns all functions that its hot reset touches, itself included.
  virtual Result<std::vector<TouchedFunction>> open_and_list(const PciAddress& function,
                                                             std::uint32_t group) = 0;
  /// Makes the hot reset of the opened function, with the descriptors of all held groups.
  virtual Result<> hot_reset() = 0;
  /// Closes the function, and keeps the groups.
  virtual void close_function() = 0;
};

/// Resets a function. Of the answer it leaves out what registers prove. Never fails.
Sanitizing reset_function(HostFs& host, const PciAddress& address, GroupCalls& calls);

}  // namespace ferry::vfio
