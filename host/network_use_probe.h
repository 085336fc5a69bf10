// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds network links of a device, or of USB devices at it, that are up (IFF_UP in sysfs net/NAME/flags,
/// include/uapi/linux/if.h). A move of the device would cut them. sysfs hides links in other network
/// namespaces, such as those of containers: their directory `net` exists and looks empty. The device user for
/// such a link has no name.
class NetworkUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit NetworkUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
