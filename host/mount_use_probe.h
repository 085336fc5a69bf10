// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds file systems mounted from block devices behind a device (a disk at a GPU's USB port): no process has
/// those open. The host's own mounts, as its process 1 sees them; blind where those cannot be read. Never an
/// error.
/// ABI: proc(5), /proc/PID/mountinfo.
class MountUseProbe final : public UseProbe {
 public:
  explicit MountUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
