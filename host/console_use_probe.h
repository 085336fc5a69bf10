// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds the GPUs that nvidia_drm uses for a console of its own, without any process. Such a GPU is on driver
/// nvidia and has a DRM card; the module runs with modeset and fbdev on, or sys/class/graphics/fb*/device
/// shows its framebuffer. Each GPU is reported with the others that the module serves too. The probe does not
/// ask for the binding of the console (sys/class/vtconsole), since the module holds the GPU either way.
/// Unreadable parameters (their mode is 0400) are reported as `unknown`. Devices that are not PCI functions
/// are skipped. ABI: NVIDIA's open kernel module, nvidia-drm-os-interface.c.
class ConsoleUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit ConsoleUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
