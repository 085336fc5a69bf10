// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/utsname.h>

#include "common/host_fs.h"

namespace ferry {

/// The release of the host's kernel as in `uname -r`; lib/modules has a folder of that name. A captured tree
/// has its own machine's release; a tree without one gets this machine's. Empty: neither is known. ABI:
/// proc(5), /proc/sys/kernel/osrelease.
inline std::string kernel_release(const HostFs& host) {
  if (auto release = host.read_attribute("proc/sys/kernel/osrelease"); release && !release->empty())
    return std::move(*release);
  utsname system{};
  return ::uname(&system) == 0 ? std::string(static_cast<const char*>(system.release)) : std::string();
}

}  // namespace ferry
