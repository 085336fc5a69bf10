// SPDX-License-Identifier: Apache-2.0
// The checks of `kubectl ferry doctor vm`.
#include <algorithm>
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

std::vector<std::string> texts_of(const ResourceCounts& counts) {
  std::vector<std::string> out;
  out.reserve(counts.size());
  for (const auto& [name, count] : counts) out.push_back(fmt::format("{} x {}", count, name));
  return out;
}

Check vm_asks(const ResourceCounts& asked, const json& vmi, const std::string& vm) {
  Check check{"vm-asks-for-gpus", vm,
              "KubeVirt gives a VM the devices that it names under gpus or hostDevices"};
  if (!asked.empty()) return std::move(check).passed(fmt::format("{}", fmt::join(texts_of(asked), ", ")));
  const json& devices = field_at(vmi, {"spec", "domain", "devices"});
  if (!items_field(devices, "gpus").empty() || !items_field(devices, "hostDevices").empty())
    return std::move(check).unknown("it asks by claims (DRA), which do not name their purpose");
  return std::move(check).failed("it names no device",
                                 "add spec.template.spec.domain.devices.gpus: [{name: gpu1, deviceName: "
                                 "RESOURCE}]; `kubectl ferry list` shows the resources");
}

/// Zeros: the node does not advertise the resource.
NodeResource numbers_of(const ClusterNode& node, const std::string& resource) {
  const auto found = node.resources.find(resource);
  return found == node.resources.end() ? NodeResource{} : found->second;
}

/// A VM gets all its devices on one node. `no_node`: "no node", with the VM's nodeSelector.
Check free_on_one_node(Check check, const ClusterGpus& cluster, const ResourceCounts& asked,
                       const std::string& no_node, const json& vmi) {
  std::vector<std::string> parts;
  for (const ClusterNode& node : cluster.nodes) {
    const bool usable = node.ready && !node.cordoned;
    bool enough = usable;
    bool has_some = false;
    std::vector<std::string> counts;
    for (const auto& [resource, count] : asked) {
      const NodeResource numbers = numbers_of(node, resource);
      const std::uint64_t left = numbers.allocatable > numbers.used ? numbers.allocatable - numbers.used : 0;
      enough = enough && left >= count;
      has_some = has_some || numbers.capacity > 0;
      counts.push_back(fmt::format("{} free of {}", left, resource));
    }
    const std::string line = fmt::format("{} has {}", node.name, fmt::join(counts, ", "));
    const bool has_affinity = !field_at(vmi, {"spec", "affinity"}).empty();
    if (enough)
      return std::move(check).passed(
          fmt::format("node {}{}", line, has_affinity ? "; the VM's affinity is not judged" : ""));
    if (has_some) parts.push_back(line + (usable ? "" : ", and takes no pods now"));
  }
  return std::move(check).failed(
      fmt::format("it asks for {}, which {} has free{}: {}", fmt::join(texts_of(asked), ", "), no_node,
                  asked.size() > 1 ? " together" : "", fmt::join(parts, "; ")),
      "`kubectl ferry list` shows the VMs and pods that have them");
}

/// `cluster`: the nodes that the VM's nodeSelector permits.
Check gpus_are_free(const ClusterGpus& cluster, const std::string& vm, const json& vmi,
                    const ResourceCounts& asked, bool allocated) {
  Check check{"gpu-free", vm,
              "the scheduler starts a VM only on a node that has all devices that it asks for"};
  if (allocated)
    return std::move(check).passed(fmt::format("{} {} allocated to it", fmt::join(texts_of(asked), ", "),
                                               asked.size() > 1 ? "are" : "is"));
  const std::string selector = node_selector_of(vmi);
  if (cluster.nodes.empty() && !selector.empty())
    return std::move(check).failed("no node has the labels of its nodeSelector: " + selector,
                                   "`kubectl get nodes --show-labels` shows those that nodes have");

  const std::string no_node = selector.empty() ? "no node" : "no node with " + selector;
  const auto missing = std::ranges::find_if(asked, [&](const auto& one) {
    return std::ranges::none_of(
        cluster.nodes, [&](const ClusterNode& node) { return numbers_of(node, one.first).capacity > 0; });
  });
  if (missing == asked.end()) return free_on_one_node(std::move(check), cluster, asked, no_node, vmi);
  std::vector<std::string> known;
  for (const ClusterNode& node : cluster.nodes)
    for (const auto& [name, numbers] : node.resources) known.push_back(name);
  return std::move(check).failed(
      fmt::format("it asks for {}, which {} advertises{}", missing->first, no_node,
                  did_you_mean(missing->first, known)),
      "`kubectl ferry list` shows the resources; deviceName must be one of them, or the name of a "
      "DeviceClass: `kubectl get deviceclasses`");
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

std::string node_selector_of(const json& vmi) {
  std::vector<std::string> out;
  for (const auto& [key, value] : texts_field(json_at(vmi, "spec"), "nodeSelector"))
    out.push_back(fmt::format("{}={}", key, value));
  return fmt::format("{}", fmt::join(out, ","));
}

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

  std::vector<Check> out = {vm_runs(vmi, vm), vm_asks(asked, vmi, vm)};
  // Other names are devices of other programs, of which nothing is known here.
  std::erase_if(asked, [](const auto& one) { return !is_gpu_resource(one.first); });
  if (asked.empty()) return out;
  // The devices of a VM with a pod on a node count as used there. Its phase may be earlier than Running.
  bool allocated = text_field(json_at(vmi, "status"), "phase") == "Running";
  for (const GpuUser& user : cluster.users)
    if (user.kind == GpuUser::Kind::vm && user.space == space && user.name == name && user.is_on(user.node))
      allocated = allocated || std::ranges::all_of(asked, [&](const auto& one) {
                    return user.resources.contains(one.first) || user.by_claim.contains(one.first);
                  });
  out.push_back(gpus_are_free(cluster, vm, vmi, asked, allocated));
  for (const auto& [resource, count] : asked) out.push_back(resource_is_permitted(kubevirts, vm, resource));
  return out;
}

}  // namespace ferry::kubectl
