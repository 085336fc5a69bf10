// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry {

enum class GroupState : std::uint8_t {
  closed,  ///< or that cannot be learnt
  open,    ///< a process has it, as a VM's has for as long as it lives; or the kernel is not done with that
  silent,  ///< what is asked about its devices is not answered in time
};

/// What is to be handed out together.
struct HandOut {
  std::set<std::uint32_t> groups;                      ///< IOMMU groups that must be closed
  std::vector<std::vector<OfferedDevice>> containers;  ///< the devices of each
};

/// What the host says of that.
struct HostAnswer {
  struct Container {
    /// In the order of its devices: the nodes to hand out for each now. An error when it is not what was
    /// offered any more: gone, of another model or group, on another driver, its group no longer viable, or a
    /// node missing.
    std::vector<Result<std::vector<std::string>>> nodes;
    /// The nodes that it needs beside, because of the devices that it gets together.
    std::vector<std::string> shared;
  };
  /// Of those that were asked about; the others come after one that is not closed.
  std::map<std::uint32_t, GroupState> groups;
  /// As many as were asked about when all groups are closed, else none.
  std::vector<Container> containers;
};

/// The host, asked again about a device before it is handed out: a scan is old the moment it is made. Any
/// thread may call.
class DeviceCheck {
 public:
  using Answered = std::function<void(HostAnswer)>;

  DeviceCheck() = default;
  DeviceCheck(const DeviceCheck&) = delete;
  DeviceCheck& operator=(const DeviceCheck&) = delete;
  DeviceCheck(DeviceCheck&&) = delete;
  DeviceCheck& operator=(DeviceCheck&&) = delete;
  virtual ~DeviceCheck() = default;

  /// Asks, on this thread, whether all groups are closed, and then about the devices. `answered` is called
  /// once and within a moment: by this thread or, when the host holds it up, by another. Then this comes back
  /// whenever the host lets it, and all that the caller worked with may be gone: touch nothing after it.
  virtual void ask(HandOut what, Answered answered) const = 0;

  /// Which of these groups are open, or do not say within a moment. To be asked only of those that no VM is
  /// about to open.
  virtual std::set<std::uint32_t> open_groups(const std::set<std::uint32_t>& groups) const = 0;

  /// The IOMMU group of what a kubelet device ID means on this host: a PCI address, a mediated device's UUID,
  /// or a number of kata_key(). Absent: the ID is none of these, or there is no such device, or no group.
  virtual std::optional<std::uint32_t> group_of(std::string_view id) const = 0;

  /// The IOMMU group of that number, as KubeVirt's own plugins call a device. Absent: no number, or there is
  /// no such group.
  virtual std::optional<std::uint32_t> group_numbered(std::string_view id) const = 0;
};

}  // namespace ferry
