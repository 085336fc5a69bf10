// SPDX-License-Identifier: Apache-2.0
// Keeps devices from being taken between the last look at their users and the write that moves them.
//
// A group on vfio is held open: the kernel gives its node to one opener at a time, so no VM can start with it
// (drivers/vfio/group.c; the node stays held over the unbind of its members). A device on a host driver is
// fenced where that driver has a lock of its own; which are held is recorded (lock_record.h), so that none
// outlives a run that is killed by more than the time to the next.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "vfio/move_plan.h"

namespace ferry {

/// A host driver's own lock against being unbound in use. Handed in from above: which drivers have one is not
/// this room's business. Asked by several threads at once, each for a device of its own.
class DriverLock {
 public:
  DriverLock() = default;
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;
  DriverLock(DriverLock&&) = delete;
  DriverLock& operator=(DriverLock&&) = delete;
  virtual ~DriverLock() = default;

  /// Whether this device's driver has such a lock.
  virtual bool has(const PciAddress& device) const = 0;
  /// Errc::refused: the driver says that the device is in use, and nothing is held. Another error: it may be.
  virtual Result<> take(const PciAddress& device) = 0;
  /// Of a device that has been unbound since, there is nothing to release: no error.
  virtual Result<> release(const PciAddress& device) = 0;
};

/// Gives back the locks that an earlier run was killed with, save those of devices that a write in the kernel
/// still holds. For people: what was given back, and what could not be, which the next run tries again.
std::vector<std::string> release_left_locks(HostFs& host, DriverLock& lock);

/// What is held for one unit, until this goes.
class Fence {
 public:
  /// `lock` may be nullptr: no driver of this host has a lock.
  Fence(HostFs& host, DriverLock* lock) : host_(&host), lock_(lock) {}
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
  /// Leaves drivers' locks as they are, to the next run: a driver that has not returned is asked nothing
  /// more.
  void abandon_locks() { locked_.clear(); }

 private:
  /// Whether it has returned.
  bool give_back(const PciAddress& device) const;
  Result<> hold_group(std::uint32_t group);
  Result<> hold_driver(const PciAddress& device);

  HostFs* host_;
  DriverLock* lock_;
  std::map<std::uint32_t, UniqueFd> groups_;
  std::vector<PciAddress> locked_;
};

}  // namespace ferry
