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

/// What the host says of an IOMMU group, and of devices in it that are to be handed out.
struct GroupAnswer {
  enum class State : std::uint8_t {
    closed,  ///< or that cannot be learnt
    open,    ///< a process has it, as a VM's has for as long as it lives; or the kernel is not done with that
    silent,  ///< what is asked about the devices is not answered in time
  };
  State state = State::closed;
  /// Of a closed group, in the order in which they were asked about: the nodes to hand out for the device
  /// now. An error when it is not what was offered any more: gone, of another model or group, on another
  /// driver, its group no longer viable, or a node missing.
  std::vector<Result<std::vector<std::string>>> nodes = {};
};

/// The host, asked again about a device before it is handed out: a scan is old the moment it is made.
class DeviceCheck {
 public:
  DeviceCheck() = default;
  DeviceCheck(const DeviceCheck&) = delete;
  DeviceCheck& operator=(const DeviceCheck&) = delete;
  DeviceCheck(DeviceCheck&&) = delete;
  DeviceCheck& operator=(DeviceCheck&&) = delete;
  virtual ~DeviceCheck() = default;

  /// Asks whether a group is closed, and then about those of its devices that are to be handed out. It is
  /// asked from here on and answered within a moment when the result is called: once, and while this lives.
  /// The host may be asked about other groups meanwhile. Any thread may call.
  virtual std::function<GroupAnswer()> ask_group(std::uint32_t group,
                                                 std::vector<OfferedDevice> devices) const = 0;

  /// The nodes that a container needs beside, because of the devices that it gets together.
  virtual std::vector<std::string> shared_nodes(std::span<const OfferedDevice> devices) const = 0;

  /// The IOMMU group of what a kubelet device ID means on this host: a PCI address, a mediated device's UUID,
  /// or a number of kata_key(). Absent: the ID is none of these, or there is no such device, or no group.
  virtual std::optional<std::uint32_t> group_of(std::string_view id) const = 0;
};

}  // namespace ferry
