// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Reports kernel modules that use NVIDIA's and may keep a GPU without any process (nvidia_peermem,
/// nvidia_fs, gdrdrv). The kernel does not say which GPU a module uses, so the report is a note and not a
/// device user. Modules whose use other probes see are left out. There are no errors.
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
