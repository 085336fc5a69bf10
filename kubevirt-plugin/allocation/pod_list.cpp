// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/pod_list.h"

#include <algorithm>
#include <limits>
#include <string>

#include "podresources.pb.h"

namespace ferry::plugin {
namespace {

template <typename T>
void add_once(std::vector<T>& list, const T& value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

/// The devices of one container by resource.
std::vector<vfio::PodDevice> devices_of(const v1::PodResources& pod,
                                        const v1::ContainerResources& container) {
  std::vector<vfio::PodDevice> entries;
  const auto entry_of = [&](const std::string& resource) -> vfio::PodDevice& {
    const auto known = std::ranges::find(entries, resource, &vfio::PodDevice::resource);
    if (known != entries.end()) return *known;
    return entries.emplace_back(vfio::PodDevice{.name_space = pod.namespace_(),
                                                .pod = pod.name(),
                                                .container = container.name(),
                                                .resource = resource});
  };
  for (const auto& devices : container.devices()) {
    if (devices.device_ids().empty()) continue;
    vfio::PodDevice& entry = entry_of(devices.resource_name());
    for (const std::string& id : devices.device_ids()) add_once(entry.ids, id);
    for (const auto& node : devices.topology().nodes()) add_once(entry.numa_nodes, std::int64_t{node.id()});
    std::ranges::sort(entry.numa_nodes);
  }
  for (const auto& claim : container.dynamic_resources())
    for (const auto& claimed : claim.claim_resources()) {
      for (const auto& device : claimed.cdi_devices()) {
        const std::string& name = device.name();
        if (const auto sign = name.find('='); sign != std::string::npos)
          add_once(entry_of(name.substr(0, sign)).ids, name.substr(sign + 1));
      }
      if (!claimed.device_name().empty())
        add_once(entry_of(claimed.driver_name()).ids, claimed.device_name());
    }
  return entries;
}

}  // namespace

Result<PodList> read_pod_list(std::string_view answer) {
  v1::ListPodResourcesResponse list;
  if (answer.size() > std::numeric_limits<int>::max() ||
      !list.ParseFromArray(answer.data(), static_cast<int>(answer.size()))) {
    return fail(Errc::malformed_host, "the kubelet's list of pods cannot be read");
  }
  PodList out;
  for (const auto& pod : list.pod_resources()) {
    out.pods.push_back(pod.namespace_() + "/" + pod.name());
    for (const auto& container : pod.containers())
      std::ranges::move(devices_of(pod, container), std::back_inserter(out.devices));
  }
  return out;
}

}  // namespace ferry::plugin
