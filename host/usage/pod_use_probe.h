// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// The kubelet's allocations; an empty list if there is no kubelet.
using ListPodDevices = std::function<Result<std::vector<vfio::PodDevice>>()>;

/// The meaning of a kubelet that exists and cannot be asked.
enum class KubeletSilence {
  noted,   ///< for binds: a broken kubelet starts no VMs, and running VMs are seen (docs/adr/0007)
  blinds,  ///< for vGPUs: a deleted vGPU cannot be put back for the pod that was allocated it
};

/// Finds devices that the kubelet has allocated to a pod, before the pod has opened anything. A kubelet that
/// cannot be asked is noted in UseReport::unknown, and in UseReport::blind with KubeletSilence::blinds; there
/// are no errors.
///
/// A device ID stands for
/// - a PCI function, if it is a PCI address (NVIDIA's KubeVirt plugin, Ferry's, a virtual function's vGPU);
/// - a mediated device, if it is its UUID (the same plugins);
/// - an IOMMU group, if it is a number, and also the vfio device of that number (/dev/vfio/devices/vfioN).
///
/// NVIDIA's Kata plugin uses either number, KubeVirt's own plugins use groups, and the two cannot be told
/// apart. Many other plugins number their devices too. A number therefore counts only for resources of
/// nvidia.com, and for resources whose allocated IDs are all groups of vfio. Other IDs belong to unrelated
/// devices. A pod that has a function is a user of its whole IOMMU group.
Result<vfio::UseReport> pod_users(const HostFs& host, const ListPodDevices& list_devices,
                                  KubeletSilence silence, std::span<const vfio::UseQuestion> questions);

}  // namespace ferry::host
