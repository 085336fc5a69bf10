// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry {

/// The host, asked again about one device before it is handed out: a scan is old the moment it is made.
class DeviceCheck {
 public:
  DeviceCheck() = default;
  DeviceCheck(const DeviceCheck&) = delete;
  DeviceCheck& operator=(const DeviceCheck&) = delete;
  DeviceCheck(DeviceCheck&&) = delete;
  DeviceCheck& operator=(DeviceCheck&&) = delete;
  virtual ~DeviceCheck() = default;

  /// The nodes to hand out for `offered` now. An error when it is not what was offered any more: gone, of
  /// another model or group, on another driver, its group no longer viable, or a node missing. Called from
  /// several threads at once.
  virtual Result<std::vector<std::string>> nodes_now(const OfferedDevice& offered) const = 0;

  /// The nodes that a container needs beside, because of the devices that it gets together.
  virtual std::vector<std::string> shared_nodes(std::span<const OfferedDevice> devices) const = 0;

  /// The IOMMU group of what a kubelet device ID means on this host: a PCI address, a mediated device's UUID,
  /// or a number of kata_key(). Absent: the ID is none of these, or there is no such device, or no group.
  virtual std::optional<std::uint32_t> group_of(std::string_view id) const = 0;

  /// Whether a process has the IOMMU group open, as a VM's has for as long as it lives. False, too, where
  /// that cannot be learnt. It is asked from here on and answered when the result is called: once, and while
  /// this lives. The host may be asked for other things meanwhile.
  virtual std::function<bool()> ask_whether_open(std::uint32_t group) const = 0;
};

}  // namespace ferry
