// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/utsname.h>

#include "common/host_fs.h"

namespace ferry {

/// What the host's kernel calls itself, as `uname -r` says it; its modules are under lib/modules by that
/// name. A tree that was captured on another machine tells that one's, and one that does not tell is this
/// machine's. Empty: neither can be learnt. ABI: proc(5), /proc/sys/kernel/osrelease.
inline std::string kernel_release(const HostFs& host) {
  if (auto release = host.read_attribute("proc/sys/kernel/osrelease"); release && !release->empty())
    return std::move(*release);
  utsname system{};
  return ::uname(&system) == 0 ? std::string(static_cast<const char*>(system.release)) : std::string();
}

}  // namespace ferry
