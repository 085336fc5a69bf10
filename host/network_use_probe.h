// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Finds network links that a device carries, itself or on what hangs on it (USB), and that are up (IFF_UP in
/// sysfs net/NAME/flags, include/uapi/linux/if.h): moving it would cut them. So would it those in another
/// network namespace than ours, as containers have them: sysfs keeps their names to itself, and their
/// directory `net`, which goes with the last link, looks empty. Such a holder has no name.
class NetworkUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  explicit NetworkUseProbe(const HostFs& host) : host_(&host) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry
