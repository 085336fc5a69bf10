// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "vfio/pci_address.h"

namespace ferry {

/// The kernel's own word that devices come, go and change drivers. sysfs raises no inotify events.
/// ABI: lib/kobject_uevent.c; netlink(7), NETLINK_KOBJECT_UEVENT, group 1. Heard in the initial network
/// namespace only.
class Uevents {
 public:
  static Result<Uevents> open();

  /// Readable when some wait.
  int fd() const { return fd_.get(); }
  struct News {
    bool ours = false;              ///< one concerned PCI, mdev or VFIO devices, or some were lost
    std::vector<PciAddress> bound;  ///< functions that a driver has taken
  };
  /// Takes all that wait.
  News take() const;

 private:
  explicit Uevents(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
