// SPDX-License-Identifier: Apache-2.0
// The checks of `kubectl ferry doctor vm`.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/text/text.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/kubevirt_permits.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

Check vm_runs(const json& vmi, const std::string& vm) {
  Check check{"vm-runs", vm, "a VM has its GPUs only while it runs"};
  const json& status = json_at(vmi, "status");
  const std::string phase = text_field(status, "phase");
  const std::string node = text_field(status, "nodeName");
  if (phase == "Running") return std::move(check).passed("it runs on node " + node);

  std::string found = fmt::format("its phase is {}", phase.empty() ? "not reported" : phase);
  // The first condition with a message says why it does not start.
  for (const json& condition : items_field(status, "conditions")) {
    const std::string message = text_field(condition, "message");
    if (text_field(condition, "status") != "False" || message.empty()) continue;
    found += ": " + message;
    break;
  }
  if (phase == "Failed")
    return std::move(check).failed(found,
                                   fmt::format("kubectl describe vmi -n {} {}", vm.substr(0, vm.find('/')),
                                               vm.substr(vm.find('/') + 1)));
  return std::move(check).warned(found, "the next checks show whether a node has what it asks for");
}

Check vm_asks(const ResourceCounts& asked, const json& vmi, const std::string& vm) {
  Check check{"vm-asks-for-gpus", vm,
              "KubeVirt gives a VM the devices that it names under gpus or hostDevices"};
  std::vector<std::string> parts;
  parts.reserve(asked.size());
  for (const auto& [name, count] : asked) parts.push_back(fmt::format("{} x {}", count, name));
  if (!parts.empty()) return std::move(check).passed(fmt::format("{}", fmt::join(parts, ", ")));
  const json& devices = field_at(vmi, {"spec", "domain", "devices"});
  if (!items_field(devices, "gpus").empty() || !items_field(devices, "hostDevices").empty())
    return std::move(check).unknown("it asks by claims (DRA), which do not name their purpose");
  return std::move(check).failed("it names no device",
                                 "add spec.template.spec.domain.devices.gpus: [{name: gpu1, deviceName: "
                                 "RESOURCE}]; `kubectl ferry list` shows the resources");
}

Check resource_is_free(const ClusterGpus& cluster, const std::string& vm, const std::string& resource,
                       std::uint64_t count, bool allocated) {
  Check check{"gpu-free", vm,
              "the scheduler starts a VM only on a node that has all devices that it asks for"};
  if (allocated) return std::move(check).passed(fmt::format("{} x {} is allocated to it", count, resource));

  std::vector<std::string> parts;
  for (const ClusterNode& node : cluster.nodes) {
    const auto found = node.resources.find(resource);
    if (found == node.resources.end() || found->second.capacity == 0) continue;
    const NodeResource& numbers = found->second;
    const std::uint64_t left = numbers.allocatable > numbers.used ? numbers.allocatable - numbers.used : 0;
    const bool usable = node.ready && !node.cordoned;
    if (left >= count && usable)
      return std::move(check).passed(fmt::format("node {} has {} free of {}", node.name, left, resource));
    parts.push_back(fmt::format("{} has {} free{}", node.name, left, usable ? "" : " and takes no pods now"));
  }

  if (parts.empty()) {
    std::vector<std::string> known;
    for (const ClusterNode& node : cluster.nodes)
      for (const auto& [name, numbers] : node.resources) known.push_back(name);
    return std::move(check).failed(
        fmt::format("it asks for {}, which no node advertises{}", resource, did_you_mean(resource, known)),
        "`kubectl ferry list` shows the resources; deviceName must be one of them, or the name of a "
        "DeviceClass: `kubectl get deviceclasses`");
  }
  return std::move(check).failed(
      fmt::format("it asks for {} x {}, which no node has free: {}", count, resource, fmt::join(parts, ", ")),
      "`kubectl ferry list` shows the VMs and pods that have them");
}

Check resource_is_permitted(const std::optional<std::vector<json>>& kubevirts, const std::string& vm,
                            const std::string& resource) {
  Check check{"kubevirt-permits", vm, "KubeVirt starts no VM with a device that its object does not list"};
  constexpr const char* kCure = "`kubectl ferry kubevirt-cr` shows what the object lacks";
  if (!kubevirts) return std::move(check).unknown("the KubeVirt object cannot be read");
  if (kubevirts->empty()) return std::move(check).unknown("the cluster has no KubeVirt object");
  const auto permitted = permitted_by(kubevirts->front());
  if (const auto why = unlisted_vgpus(kubevirts->front(), resource); !why.empty())
    return std::move(check).warned(why, kUnlistedVgpusCure);
  if (!permitted) return std::move(check).passed("it permits everything");
  const auto entry = permitted->find(resource);
  if (entry == permitted->end()) return std::move(check).failed(resource + " is not listed", kCure);
  if (!entry->second)
    return std::move(check).warned(resource + " is not marked with externalResourceProvider: true", kCure);
  return std::move(check).passed(resource + " is listed");
}

}  // namespace

std::vector<Check> vm_checks(const json& vmi, const ClusterObjects& objects,
                             const std::optional<std::vector<json>>& kubevirts) {
  const std::string space = text_field(json_at(vmi, "metadata"), "namespace");
  const std::string name = text_field(json_at(vmi, "metadata"), "name");
  const std::string vm = full_name(vmi);
  const ClusterGpus cluster = cluster_gpus(objects);
  ResourceCounts asked;  // devices of any domain
  const json& devices = field_at(vmi, {"spec", "domain", "devices"});
  for (const char* const kind : {"gpus", "hostDevices"})
    for (const json& device : items_field(devices, kind))
      if (const std::string gpu = text_field(device, "deviceName"); !gpu.empty()) ++asked[gpu];

  const bool runs = text_field(json_at(vmi, "status"), "phase") == "Running";
  std::vector<Check> out = {vm_runs(vmi, vm), vm_asks(asked, vmi, vm)};
  for (const auto& [resource, count] : asked) {
    // Other names are devices of other programs, of which nothing is known here.
    if (!is_gpu_resource(resource)) continue;
    // The devices of a VM with a pod on a node count as used there. Its phase may be earlier than Running.
    bool allocated = runs;
    for (const GpuUser& user : cluster.users)
      if (user.kind == GpuUser::Kind::vm && user.space == space && user.name == name && user.is_on(user.node))
        allocated = allocated || user.resources.contains(resource) || user.by_claim.contains(resource);
    out.push_back(resource_is_free(cluster, vm, resource, count, allocated));
    out.push_back(resource_is_permitted(kubevirts, vm, resource));
  }
  return out;
}

}  // namespace ferry::kubectl
