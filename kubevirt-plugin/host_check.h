// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry {

/// The host, asked again about one device before it is handed out: a scan is old the moment it is made.
class HostCheck {
 public:
  HostCheck() = default;
  HostCheck(const HostCheck&) = delete;
  HostCheck& operator=(const HostCheck&) = delete;
  HostCheck(HostCheck&&) = delete;
  HostCheck& operator=(HostCheck&&) = delete;
  virtual ~HostCheck() = default;

  /// The nodes to hand out for `offered` now. An error when it is not what was offered any more: gone, of
  /// another model or group, on another driver, its group no longer viable, or a node missing. Called from
  /// several threads at once.
  virtual Result<std::vector<std::string>> nodes_now(const OfferedDevice& offered) const = 0;
};

}  // namespace ferry
