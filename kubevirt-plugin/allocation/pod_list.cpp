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

/// Collects the devices of one container by resource.
class Container {
 public:
  Container(const v1::PodResources& pod, const v1::ContainerResources& container)
      : pod_(pod), container_(container) {}

  void add(const v1::ContainerDevices& devices) {
    if (devices.device_ids().empty()) return;
    vfio::PodDevice& entry = entry_of(devices.resource_name());
    for (const std::string& id : devices.device_ids()) add_once(entry.ids, id);
    for (const auto& node : devices.topology().nodes()) add_once(entry.numa_nodes, std::int64_t{node.id()});
    std::ranges::sort(entry.numa_nodes);
  }

  void add(const v1::ClaimResource& claimed) {
    for (const auto& device : claimed.cdi_devices()) {
      const std::string& name = device.name();
      const auto sign = name.find('=');
      if (sign == std::string::npos) continue;
      add_once(entry_of(name.substr(0, sign)).ids, name.substr(sign + 1));
    }
    if (!claimed.device_name().empty()) add_once(entry_of(claimed.driver_name()).ids, claimed.device_name());
  }

  std::vector<vfio::PodDevice> entries() && { return std::move(entries_); }

 private:
  vfio::PodDevice& entry_of(const std::string& resource) {
    const auto known = std::ranges::find(entries_, resource, &vfio::PodDevice::resource);
    if (known != entries_.end()) return *known;
    return entries_.emplace_back(vfio::PodDevice{.name_space = pod_.namespace_(),
                                                 .pod = pod_.name(),
                                                 .container = container_.name(),
                                                 .resource = resource});
  }

  const v1::PodResources& pod_;
  const v1::ContainerResources& container_;
  std::vector<vfio::PodDevice> entries_;
};

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
    for (const auto& container : pod.containers()) {
      Container gathered(pod, container);
      for (const auto& devices : container.devices()) gathered.add(devices);
      for (const auto& claim : container.dynamic_resources())
        for (const auto& claimed : claim.claim_resources()) gathered.add(claimed);
      std::ranges::move(std::move(gathered).entries(), std::back_inserter(out.devices));
    }
  }
  return out;
}

}  // namespace ferry::plugin
