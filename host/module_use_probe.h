// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Tells of kernel modules that use NVIDIA's and may so keep a GPU without any process (nvidia_peermem,
/// nvidia_fs, gdrdrv): which GPU, and whether at all, the kernel does not say, so it is a note and nobody's
/// hold. Those that processes and consoles are seen through are not told. Never an error.
/// ABI: Documentation/ABI/testing/sysfs-module, holders.
class ModuleUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit ModuleUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
