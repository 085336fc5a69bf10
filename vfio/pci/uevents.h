// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry::vfio {

/// True if a device event of the kernel concerns PCI, mediated or VFIO devices. An event is
/// "add@/devices/..." and KEY=VALUE fields, each ended by a zero byte. A malformed event does not count.
/// ABI: lib/kobject_uevent.c.
bool concerns_us(std::string_view uevent);

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
  /// Takes all waiting events. True if one concerns_us(), or if events were lost.
  bool take() const;

 private:
  explicit Uevents(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ferry::vfio
