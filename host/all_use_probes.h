// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/host_fs.h"
#include "host/nvidia_nodes.h"
#include "host/pod_use_probe.h"
#include "vfio/inventory.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Asks several probes and tells what any of them found. A VM that an earlier one found (by the node that its
/// process has open) is not told again by a later one (by its configuration). An error of one is an error.
/// Nodes that a driver makes without telling sysfs are added to the questions here; of a device whose driver
/// does not tell them, the report is blind.
class CombinedUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  CombinedUseProbe(const HostFs& host, ReadElsewhere read, std::vector<std::unique_ptr<UseProbe>> probes)
      : host_(&host), read_(std::move(read)), probes_(std::move(probes)) {}
  Result<UseReport> look(std::span<const UseQuestion> asked) override;

 private:
  const HostFs* host_;
  ReadElsewhere read_;
  std::vector<std::unique_ptr<UseProbe>> probes_;
};

/// Every probe there is, for this host: /proc, disks, network links, screens, nvidia_drm's console, modules,
/// the NVLink fabric (whose switches `rules` takes on request), libvirt, the kubelet, which is asked through
/// `pods`, and our device plugin's file of what it has given out. `host` must outlive it.
std::unique_ptr<UseProbe> all_use_probes(const HostFs& host, const AcceleratorRules& rules,
                                         ListPodDevices pods, KubeletSilence silence = KubeletSilence::noted);

}  // namespace ferry
