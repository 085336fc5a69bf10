// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Finds screens that need a device: the boot display (sysfs boot_vga), and a framebuffer of the firmware
/// inside its BARs (proc/iomem). If that file or the BARs cannot be read, or the file hides addresses for
/// lack of CAP_SYS_ADMIN, `unknown` says so. A device on a vfio driver shows nothing. Devices that are not
/// PCI functions are skipped.
class ScreenUseProbe final : public vfio::UseProbe {
 public:
  /// `host` must outlive this.
  explicit ScreenUseProbe(const HostFs& host) : host_(&host) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

/// Finds the GPUs that nvidia_drm uses for a console of its own, without any process. Such a GPU is on driver
/// nvidia and has a DRM card; the module runs with modeset and fbdev on, or sys/class/graphics/fb*/device
/// shows its framebuffer. Each GPU is reported with the others that the module serves too. The probe does not
/// ask for the binding of the console (sys/class/vtconsole), since the module holds the GPU either way.
/// Unreadable parameters (their mode is 0400) are reported as `unknown`. Devices that are not PCI functions
/// are skipped. ABI: NVIDIA's open kernel module, nvidia-drm-os-interface.c.
class ConsoleUseProbe final : public vfio::UseProbe {
 public:
  /// `host` must outlive this.
  explicit ConsoleUseProbe(const HostFs& host) : host_(&host) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry::host
