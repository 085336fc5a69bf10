// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// Kernel events of devices that appear, vanish and change drivers; sysfs raises no inotify events.
/// ABI: lib/kobject_uevent.c; netlink(7), NETLINK_KOBJECT_UEVENT, group 1.
class Uevents {
 public:
  static Result<Uevents> open();

  /// True if the kernel sends the events to this process: it does so only to network namespaces of the
  /// initial user namespace. False if that cannot be found out.
  static bool are_sent();

  /// Readable when events wait.
  int fd() const { return fd_.get(); }
  /// Takes all waiting events. True if one concerns_us() (uevent.h), or if events were lost.
  bool take() const;

 private:
  explicit Uevents(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
