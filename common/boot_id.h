// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// The running boot's id, a UUID that the kernel draws at each boot. Records about sysfs are void after
/// another boot. ABI: proc(5), /proc/sys/kernel/random/boot_id.
inline Result<std::string> boot_id(const HostFs& host) {
  return host.read_attribute("proc/sys/kernel/random/boot_id");
}

}  // namespace ferry
