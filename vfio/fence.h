// SPDX-License-Identifier: Apache-2.0
// Keeps devices from being taken between the last look at their users and the write that moves them.
//
// A group on vfio is held open: the kernel gives its node to one opener at a time, so no VM can start with it
// (drivers/vfio/group.c; the node stays held over the unbind of its members). A device on a host driver is
// fenced where that driver has a lock of its own.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "vfio/move_plan.h"

namespace ferry {

/// A host driver's own lock against being unbound in use. Handed in from above: which drivers have one is not
/// this room's business.
class DriverLock {
 public:
  DriverLock() = default;
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;
  DriverLock(DriverLock&&) = delete;
  DriverLock& operator=(DriverLock&&) = delete;
  virtual ~DriverLock() = default;

  /// True: it is held now. False: this device's driver has no such lock. Errc::refused: the driver says that
  /// the device is in use, and nothing is held.
  virtual Result<bool> take(const PciAddress& device) = 0;
  /// Of a device that has been unbound since, there is nothing to release: no error.
  virtual Result<> release(const PciAddress& device) = 0;
};

/// What is held for one unit, until this goes.
class Fence {
 public:
  /// `lock` may be nullptr: no driver of this host has a lock.
  Fence(const HostFs& host, DriverLock* lock) : host_(&host), lock_(lock) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  Fence(Fence&& other) noexcept;
  Fence& operator=(Fence&&) = delete;
  ~Fence();

  /// Fences every function that `move` unbinds. Errc::refused, with nothing held, when somebody has one of
  /// them at this moment.
  Result<> close(const Inventory& inventory, const Move& move);
  /// Lets go of everything now.
  void open();
  /// Leaves drivers' locks as they are for good: a driver that has not returned is asked nothing more.
  void abandon_locks() { locked_.clear(); }

 private:
  Result<> hold_group(std::uint32_t group);
  Result<> hold_driver(const PciAddress& device);

  const HostFs* host_;
  DriverLock* lock_;
  std::map<std::uint32_t, UniqueFd> groups_;
  std::vector<PciAddress> locked_;
};

}  // namespace ferry
