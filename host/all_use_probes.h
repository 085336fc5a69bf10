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

/// Asks several probes and merges their reports. A VM that an earlier probe found by its open device node is
/// not listed again by a later probe that found it by configuration. An error of any probe is an error.
/// Device nodes that a driver creates without an entry in sysfs are added to the questions here. If that
/// driver does not name a device's node, the report is blind to that device.
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

/// Every probe for this host: /proc, disks, network links, screens, nvidia_drm's console, modules, the NVLink
/// fabric, libvirt, the kubelet and Ferry's device plugin. `rules` say which classes are NVSwitches. `pods`
/// asks the kubelet. The plugin's allocations are read from its file. `host` must outlive the result.
std::unique_ptr<UseProbe> all_use_probes(const HostFs& host, const AcceleratorRules& rules,
                                         ListPodDevices pods, KubeletSilence silence = KubeletSilence::noted);

}  // namespace ferry
