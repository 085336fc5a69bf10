// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds what is on a screen through a device: the boot display (sysfs boot_vga), and a framebuffer of the
/// firmware inside its BARs (proc/iomem, which shows no addresses without CAP_SYS_ADMIN: then `unknown`
/// says so, as it does where that or the BARs cannot be read). A device on a vfio driver shows nothing.
/// Devices that are no PCI function are passed over.
class ScreenUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit ScreenUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
