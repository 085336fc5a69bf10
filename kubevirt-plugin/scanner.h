// SPDX-License-Identifier: Apache-2.0
// From the host to what is offered.
//
// ABI: Documentation/ABI/testing/sysfs-kernel-iommu_groups, sysfs-bus-pci, vfio-mdev.rst; names and node
// order as NVIDIA's KubeVirt plugin v1.6.0 has them, save where that gives away more than was asked for.
#pragma once

#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kubevirt-plugin/device_names.h"
#include "kubevirt-plugin/host_check.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/offered_device.h"

namespace ferry {

/// A device that is set up for virtual machines, or nearly, and not offered all the same.
struct NotOffered {
  std::string id;
  std::string reason;

  bool operator==(const NotOffered&) const = default;
};

struct Offer {
  /// In order of name. No two share a name or an env name.
  std::vector<Resource> resources;
  std::vector<NotOffered> not_offered;
  /// Names that could not be used as they are. For the log, once each.
  std::vector<std::string> warnings;
};

/// Reads the host. Offered are
/// - accelerators on a vfio driver whose whole IOMMU group can be used (each endpoint in it is on a vfio
/// driver or
///   has none), one resource for each name (device_names.h), the hex device ID where there is no legal one;
/// - mediated devices of those vendors' functions, one resource for each vGPU type. (Not yet those that are
///   virtual functions themselves.)
/// A function on another driver is the host's and no concern of ours. One whose node in dev/vfio is missing
/// is offered Unhealthy. Errors: the PCI bus cannot be listed. That there is no mdev bus is none.
Result<Offer> scan_offer(const HostFs& host, const OfferRules& rules, DeviceNames& names);

/// Asks sysfs and dev/vfio, a few reads for each device. Safe for several threads.
class SysfsCheck final : public HostCheck {
 public:
  /// Both must outlive this.
  SysfsCheck(const HostFs& host, const OfferRules& rules) : host_(host), rules_(rules) {}

  Result<std::vector<std::string>> nodes_now(const OfferedDevice& offered) const override;

 private:
  const HostFs& host_;
  const OfferRules& rules_;
};

}  // namespace ferry
