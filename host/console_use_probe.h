// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds the GPUs that nvidia_drm holds for a console of its own, with no process: those on driver nvidia
/// with a DRM card, where the module runs with modeset and fbdev on, or a framebuffer of its is there
/// (sys/class/graphics/fb*/device). Each is told with the others that the module serves too. Whether the
/// console is bound to the framebuffer (sys/class/vtconsole) is not asked: the module holds the GPU either
/// way. Parameters that cannot be read (their mode is 0400) are told as `unknown`. ABI: NVIDIA's open kernel
/// module, nvidia-drm-os-interface.c. Devices that are no PCI function are passed over.
class ConsoleUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit ConsoleUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
