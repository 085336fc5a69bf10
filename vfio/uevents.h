// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// The kernel's own word that devices come, go and change drivers. sysfs raises no inotify events.
/// ABI: lib/kobject_uevent.c; netlink(7), NETLINK_KOBJECT_UEVENT, group 1.
class Uevents {
 public:
  static Result<Uevents> open();

  /// Whether the kernel sends them here: to network namespaces of the initial user namespace alone. Where
  /// that cannot be told it is false.
  static bool are_sent();

  /// Readable when some wait.
  int fd() const { return fd_.get(); }
  /// Takes all that wait. Gives whether one concerns us (uevent.h), or some were lost.
  bool take() const;

 private:
  explicit Uevents(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry
