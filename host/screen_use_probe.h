// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds screens that need a device: the boot display (sysfs boot_vga), and a framebuffer of the firmware
/// inside its BARs (proc/iomem). If that file or the BARs cannot be read, or the file hides addresses for
/// lack of CAP_SYS_ADMIN, `unknown` says so. A device on a vfio driver shows nothing. Devices that are not
/// PCI functions are skipped.
class ScreenUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit ScreenUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
