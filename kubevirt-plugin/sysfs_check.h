// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "kubevirt-plugin/device_check.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/open_probe.h"

namespace ferry {

/// Asks sysfs and dev/vfio, a few reads for each device. Safe for several threads.
class SysfsCheck final : public DeviceCheck {
 public:
  /// Both must outlive this.
  SysfsCheck(const HostFs& host, const OfferRules& rules) : host_(host), rules_(rules), probe_(host) {}

  Result<std::vector<std::string>> nodes_now(const OfferedDevice& offered) const override;
  /// /dev/egmN, the extended GPU memory of a Grace host, where all GPUs that it names are among `devices`.
  /// ABI: NVIDIA's nvgrace-egm driver, sys/class/egm/egmN/gpu_devices.
  std::vector<std::string> shared_nodes(std::span<const OfferedDevice> devices) const override;
  std::optional<std::uint32_t> group_of(std::string_view id) const override;
  /// Opens its node for a moment (OpenProbe): only of a group that no VM is about to open.
  std::function<bool()> ask_whether_open(std::uint32_t group) const override;

 private:
  const HostFs& host_;
  const OfferRules& rules_;
  const OpenProbe probe_;
};

}  // namespace ferry
