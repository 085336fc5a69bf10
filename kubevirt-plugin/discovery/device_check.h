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

#include "common/pinned.h"
#include "common/result.h"
#include "kubevirt-plugin/discovery/scanned_device.h"

namespace ferry::plugin {

enum class GroupState : std::uint8_t {
  closed,  ///< or that cannot be known
  open,    ///< a process has it open, for example a running VM, or the kernel has not finished closing it
  silent,  ///< the host does not answer in time about its devices
};

/// Devices that are to be allocated together.
struct HandOut {
  std::set<std::uint32_t> groups;                      ///< IOMMU groups that must be closed
  std::vector<std::vector<ScannedDevice>> containers;  ///< the devices of each
};

/// The host's answer.
struct HostAnswer {
  struct Container {
    /// The nodes for each device now, in the order of the devices. An error if a device no longer matches the
    /// scan: it is gone, its model, group or driver differs, its group is no longer viable, or a node is
    /// missing.
    std::vector<Result<std::vector<std::string>>> nodes;
    /// Further nodes that the container needs for its devices together.
    std::vector<std::string> shared;
  };
  /// The groups that were asked about, up to the first that is not closed.
  std::map<std::uint32_t, GroupState> groups;
  /// The answer for each container if all groups are closed, else empty.
  std::vector<Container> containers;
};

/// Asks the host again about a device before it is allocated, since a scan may be outdated. Any thread may
/// call.
class DeviceCheck : Pinned {
 public:
  using Answered = std::function<void(HostAnswer)>;

  virtual ~DeviceCheck() = default;

  /// Asks on this thread if all groups are closed, and then about the devices. `answered` is called once and
  /// soon: by this thread, or by another if the host delays this one. In the second case this call returns
  /// whenever the host lets it, and the caller's objects may be gone by then. Touch nothing after it.
  virtual void ask(HandOut what, Answered answered) const = 0;

  /// The groups among these that are open or do not answer in time. Ask only about groups that no VM is about
  /// to open.
  virtual std::set<std::uint32_t> open_groups(const std::set<std::uint32_t>& groups) const = 0;

  /// The IOMMU group of a kubelet device ID on this host: a PCI address, a mediated device's UUID, or a
  /// number of kata_key(). Absent: the ID is none of these, or the device or its group does not exist.
  virtual std::optional<std::uint32_t> group_of(std::string_view id) const = 0;

  /// The IOMMU group with that number, for device IDs of KubeVirt's own plugins. Absent: not a number, or no
  /// such group.
  virtual std::optional<std::uint32_t> group_numbered(std::string_view id) const = 0;
};

}  // namespace ferry::plugin
