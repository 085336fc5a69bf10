// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/pod_device.h"
#include "vfio/use_probe.h"

namespace ferry {

/// What the kubelet has given out; an empty list where there is no kubelet.
using ListPodDevices = std::function<Result<std::vector<PodDevice>>()>;

/// What it means that a kubelet is there and cannot be asked.
enum class KubeletSilence {
  noted,   ///< for moves: a broken kubelet starts no VMs, and those that run are seen (docs/adr/0007)
  blinds,  ///< for vGPUs: one that is gone cannot be put back for the pod that was given it
};

/// Finds devices that the kubelet has given to a pod, before the pod has opened anything. That it cannot be
/// asked is told in UseReport::unknown, and in UseReport::blind where that is asked for; never an error.
///
/// A device ID is taken for
/// - a PCI function, when it is a PCI address (NVIDIA's KubeVirt plugin, ours, a virtual function's vGPU);
/// - a mediated device, when it is its UUID (the same plugins);
/// - an IOMMU group and, since nothing tells the two apart, the vfio device of that number
/// (/dev/vfio/devices/
///   vfioN), when it is a number: NVIDIA's Kata plugin gives out the one or the other, KubeVirt's own plugins
///   groups. Many other plugins number what they have, too: only resources of nvidia.com, and those of which
///   every ID that was given out is a group that vfio has, are taken to mean this.
/// Other IDs are somebody else's devices. Whoever has a function has its whole IOMMU group.
class PodUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  PodUseProbe(const HostFs& host, ListPodDevices list, KubeletSilence silence = KubeletSilence::noted)
      : host_(&host), list_(std::move(list)), silence_(silence) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  const HostFs* host_;
  ListPodDevices list_;
  KubeletSilence silence_;
};

}  // namespace ferry
