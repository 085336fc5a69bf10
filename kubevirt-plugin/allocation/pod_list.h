// SPDX-License-Identifier: Apache-2.0
// Decodes the kubelet's answer to List.
//
// ABI: k8s.io/kubelet podresources v1, ListPodResourcesResponse (proto/podresources.proto).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/use_probe.h"

namespace ferry::plugin {

struct PodList {
  /// The devices by container and resource: one entry each, in the answer's order, however many entries the
  /// kubelet makes of it. A claimed device has an entry for each of its CDI names and for its driver's name
  /// of it.
  std::vector<vfio::PodDevice> devices;
  /// "namespace/name" of all pods that the kubelet knows, including those without devices.
  std::vector<std::string> pods;
};

/// Unknown fields are ignored. Errc::malformed_host: not such a message.
Result<PodList> read_pod_list(std::string_view answer);

}  // namespace ferry::plugin
