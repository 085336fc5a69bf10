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

/// Asks sysfs and dev/vfio, with a few reads for each device. Safe for several threads.
class SysfsCheck final : public DeviceCheck {
 public:
  /// Opens a group's node and closes it again: the kernel allows one opener. Returns 0 or an errno.
  using Opener = std::function<int(const HostFs& host, std::uint32_t group)>;
  static int open_and_close(const HostFs& host, std::uint32_t group);

  /// A question takes at most `deadline`; its work continues in the background if the host needs longer.
  SysfsCheck(const HostFs& host, const OfferRules& rules,
             std::chrono::milliseconds deadline = GroupErrands::kDeadline, Opener opener = open_and_close);

  /// Opens each group's node for a moment, so ask only about groups that no VM is about to open. A missing
  /// permission to open it is logged once. The shared node is /dev/egmN, the extended GPU memory of a Grace
  /// host. A container gets it if it has all GPUs that the node serves and the node exists. Kata gets none,
  /// since its CDI specifications have none. ABI: NVIDIA's nvgrace-egm driver,
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
