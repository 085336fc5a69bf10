// SPDX-License-Identifier: Apache-2.0
// The kubelet's answer to List, from bytes to values.
//
// ABI: k8s.io/kubelet podresources v1, ListPodResourcesResponse (proto/podresources.proto).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/pod_device.h"

namespace ferry {

struct PodList {
  /// One entry for each resource of each container that has devices of it, in the answer's order, whatever
  /// number of entries the kubelet made of it. A claimed device is told by each of its CDI names and by the
  /// name that its driver gives it.
  std::vector<PodDevice> devices;
  /// "namespace/name" of all pods that the kubelet knows, those without devices too.
  std::vector<std::string> pods;
};

/// Fields that are not known are passed over. Errc::malformed_host: it is no such message.
Result<PodList> read_pod_list(std::string_view answer);

}  // namespace ferry
