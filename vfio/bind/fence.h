// SPDX-License-Identifier: Apache-2.0
// Keeps devices from being opened between the last scan for their users and the write that rebinds them.
//
// A group on vfio is held open: the kernel gives its node to one opener at a time (drivers/vfio/group.c). So
// no VM can start with the group. The node stays held while members are unbound. A device on a host driver is
// fenced if that driver has a lock of its own. Held locks are recorded (record_lock()), so that the next run
// releases those of a killed run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/pci_address.h"

namespace ferry::vfio {

// Records which drivers' locks against unbinding are held, in run/ferry/hostd/unbind-locks/<address>. A
// record is written before its lock is taken and removed after the lock is released, so that the next run
// releases the locks of a killed run. A lock that stays taken may keep every program from opening the device.
// A record of another boot, by its boot id, is void.

Result<> record_lock(HostFs& host, const PciAddress& device);

/// The recorded locks of this boot. Any other file is skipped, which costs one try to release at most.
Result<std::vector<PciAddress>> recorded_locks(const HostFs& host);

/// A host driver's own lock against unbinding while in use. The caller supplies it and knows which drivers
/// have one. Several threads call it at once, each for another device.
class DriverLock : Pinned {
 public:
  virtual ~DriverLock() = default;

  /// True if this device's driver has such a lock.
  virtual bool has(const PciAddress& device) const = 0;
  /// Errc::refused: in use, says the driver, and nothing is held. After another error the lock may be held.
  virtual Result<> take(const PciAddress& device) = 0;
  /// No error if the device has been unbound since, because nothing is held then.
  virtual Result<> release(const PciAddress& device) = 0;
};

/// Releases the locks of a killed run, except in groups with a stuck write. Returns messages for people about
/// locks that were released and locks that could not be, which the next run tries again.
std::vector<std::string> release_left_locks(HostFs& host, DriverLock& lock);

/// The group nodes and driver locks that are held for one unit, until destruction.
class Fence {
 public:
  /// `lock` may be nullptr: no driver of this host has a lock.
  Fence(HostFs& host, DriverLock* lock) : host_(&host), lock_(lock) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  Fence(Fence&& other) noexcept;
  Fence& operator=(Fence&&) = delete;
  ~Fence();

  /// Fences every function that `rebind` unbinds. Errc::refused, with nothing held: one of them is in use.
  Result<> close(const Inventory& inventory, const Rebind& rebind);
  /// Releases everything now.
  void open();
  /// Leaves drivers' locks to the next run: a driver that has not returned gets no further call.
  void abandon_locks() { locked_.clear(); }

 private:
  /// Releases a driver's lock; false: the driver has not returned.
  bool give_back(const PciAddress& device) const;
  Result<> hold_group(std::uint32_t group);
  Result<> hold_driver(const PciAddress& device);

  HostFs* host_;
  DriverLock* lock_;
  std::map<std::uint32_t, UniqueFd> groups_;
  std::vector<PciAddress> locked_;
};

}  // namespace ferry::vfio
