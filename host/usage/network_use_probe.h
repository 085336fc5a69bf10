// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Finds network links of a device, or of USB devices at it, that are up (IFF_UP in sysfs net/NAME/flags,
/// include/uapi/linux/if.h). A move of the device would cut them. sysfs hides links in other network
/// namespaces, such as those of containers: their directory `net` exists and looks empty. The device user for
/// such a link has no name.
class NetworkUseProbe final : public vfio::UseProbe {
 public:
  /// `host` must outlive this.
  explicit NetworkUseProbe(const HostFs& host) : host_(&host) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry::host
