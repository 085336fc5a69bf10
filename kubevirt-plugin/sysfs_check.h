// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "common/host_fs.h"
#include "kubevirt-plugin/device_check.h"
#include "kubevirt-plugin/group_errands.h"
#include "kubevirt-plugin/offer_rules.h"

namespace ferry {

/// Asks sysfs and dev/vfio, a few reads for each device. Safe for several threads.
class SysfsCheck final : public DeviceCheck {
 public:
  /// Opens a group's node and closes it again: the kernel has one opener at a time. 0, or the errno.
  using Opener = std::function<int(const HostFs& host, std::uint32_t group)>;
  static int open_and_close(const HostFs& host, std::uint32_t group);

  /// What is asked may take until the `deadline`, and goes on by itself where it takes longer.
  SysfsCheck(const HostFs& host, const OfferRules& rules,
             std::chrono::milliseconds deadline = GroupErrands::kDeadline, Opener opener = open_and_close);

  /// Opens each group's node for a moment: to be asked only of what no VM is about to open. That it may not
  /// be opened is logged once. Shared is /dev/egmN, the extended GPU memory of a Grace host, of a container
  /// that gets all GPUs that it names, where the node is there; not for Kata, which knows its devices by
  /// their CDI specifications and those have none. ABI: NVIDIA's nvgrace-egm driver,
  /// sys/class/egm/egmN/gpu_devices.
  void ask(HandOut what, Answered answered) const override;
  std::set<std::uint32_t> open_groups(const std::set<std::uint32_t>& groups) const override;
  std::optional<std::uint32_t> group_of(std::string_view id) const override;
  std::optional<std::uint32_t> group_numbered(std::string_view id) const override;

 private:
  struct Source;
  class Inquiry;

  const std::shared_ptr<const Source> source_;
  const GroupErrands errands_;
};

}  // namespace ferry
