// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "agent/cluster_objects.h"
#include "agent/operator_compat/two_owners.h"
#include "common/kubevirt_rules.h"
#include "kube/api_error.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/kubevirt_permits.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

Check node_ready(const ClusterNode& node) {
  Check check{"node-ready", node.name, "no pod is started on a node that is not ready"};
  if (!node.ready)
    return std::move(check).failed("the kubelet does not say that it is ready",
                                   "kubectl describe node " + node.name);
  if (node.cordoned_by_ferry)
    return std::move(check).passed("Ferry's agent has cordoned it for a drain, and uncordons it afterwards");
  if (node.cordoned) return std::move(check).warned("it is cordoned", "kubectl uncordon " + node.name);
  return std::move(check).passed("it is");
}

// The containers of a pod that are not ready, or the phase of a pod without any; empty: all are ready.
std::string idle_because(const json& pod) {
  const auto& statuses = items_field(json_at(pod, "status"), "containerStatuses");
  if (statuses.empty()) return text_field(json_at(pod, "status"), "phase");
  std::vector<std::string> waiting;
  for (const json& status : statuses)
    if (!flag_field(status, "ready")) waiting.push_back(text_field(status, "name"));
  return fmt::format("{}", fmt::join(waiting, ", "));
}

/// True: a container runs the agent, hostd or the plugin.
bool runs_ferry(const json& pod) {
  return std::ranges::any_of(items_field(json_at(pod, "spec"), "containers"), [](const json& container) {
    return !ferry_verb_in(container).empty() || ferry_program_in(container) == "ferry-agent";
  });
}

// While one pod replaces another, a single running one is enough.
Check agent_runs(const ClusterNode& node, const std::vector<json>& pods) {
  Check check{"ferry-agent", node.name, "without it labels are only words"};
  std::optional<std::string> fault;
  bool has_host_side = false;  // hostd or the plugin
  for (const json& pod : pods) {
    for (const json& container : items_field(json_at(pod, "spec"), "containers"))
      has_host_side = has_host_side || !ferry_verb_in(container).empty();
    if (!agent_options_in(pod)) continue;
    const std::string name = full_name(pod);
    const std::string why = idle_because(pod);
    if (why.empty()) return std::move(check).passed("pod " + name);
    if (!fault) fault = fmt::format("pod {} does not run: {}", name, why);
  }
  if (fault) return std::move(check).failed(*fault, "kubectl describe pod says why");
  if (is_kept_off(node.labels))
    return std::move(check).failed(
        "the node's label gpu-ferry.io/deploy=false keeps Ferry off",
        fmt::format("`kubectl label node {} gpu-ferry.io/deploy-` lets Ferry back; where the agent is a "
                    "service of the host, which this label does not stop: systemctl status ferry-agent",
                    node.name));
  if (!node.state.empty() && has_host_side)
    return std::move(check).warned(
        "no pod of this node runs it, and one runs hostd or the plugin",
        "`kubectl get daemonsets` in Ferry's namespace shows whether the agents' is missing; `helm upgrade` "
        "puts it back, unless the agent is a service of the host");
  // An agent that is a systemd service has no pod. Its labels stay on the Node after its end.
  if (!node.state.empty())
    return std::move(check).unknown("no pod of this node runs it, and its labels may be old",
                                    "where it is a service of the host: systemctl status ferry-agent");
  return std::move(check).failed(
      "no pod of this node runs it",
      fmt::format("`kubectl get node {} --show-labels`: does the node lack a label of the chart's "
                  "gpuNodeLabels or nodeSelector?",
                  node.name));
}

// Looks for hostd and the plugin, which have a DaemonSet each. An earlier chart has both in one pod.
Check host_side_runs(const ClusterNode& node, const std::vector<json>& pods) {
  Check check{"ferry-hostd", node.name,
              "the agent only writes files: hostd changes the GPUs, and the plugin advertises them"};
  std::map<std::string, std::string> faults;  // by verb; empty: a pod runs it
  bool agent = false;
  for (const json& pod : pods) {
    agent = agent || agent_options_in(pod);
    const std::string why = idle_because(pod);
    const std::string fault = why.empty() ? "" : fmt::format("pod {} does not run: {}", full_name(pod), why);
    for (const json& container : items_field(json_at(pod, "spec"), "containers"))
      if (const auto verb = ferry_verb_in(container); !verb.empty()) {
        const auto [known, first] = faults.emplace(verb, fault);
        if (!first && fault.empty()) known->second.clear();
      }
  }
  if (faults.empty() && !agent) return std::move(check).unknown("no pod of Ferry's is on this node");
  for (const auto& [verb, fault] : faults)
    if (!fault.empty()) return std::move(check).failed(fault, "kubectl describe pod says why");
  const std::string missing =
      "`kubectl get daemonsets` in Ferry's namespace shows which is missing; `helm upgrade` puts it back";
  if (!faults.contains("plugin"))
    return std::move(check).failed(faults.empty()
                                       ? "the agent has a pod on this node, hostd and the plugin have none"
                                       : "no pod of this node runs `ferry plugin`",
                                   missing);
  if (!faults.contains("hostd"))
    return std::move(check).unknown(
        "the plugin runs; no pod of this node runs hostd",
        "where hostd is a service of the host (hostd.enabled=false): systemctl status ferry-hostd; else " +
            missing);
  return std::move(check).passed("hostd and plugin run");
}

// The DaemonSets may have different versions during an update.
Check one_version(const ClusterNode& node, const std::vector<json>& pods) {
  Check check{
      "ferry-versions", node.name,
      "agent, hostd and plugin read each other's files; an update may leave two versions side by side"};
  std::map<std::string, std::vector<std::string>> by_image;
  for (const json& pod : pods)
    for (const json& container : items_field(json_at(pod, "spec"), "containers"))
      if (!ferry_verb_in(container).empty() || ferry_program_in(container) == "ferry-agent")
        by_image[text_field(container, "image")].push_back(text_field(container, "name"));
  if (by_image.empty()) return std::move(check).unknown("no pod of Ferry's is on this node");
  if (by_image.size() == 1) return std::move(check).passed("all run " + by_image.begin()->first);
  std::vector<std::string> parts;
  parts.reserve(by_image.size());
  for (const auto& [image, names] : by_image)
    parts.push_back(fmt::format("{}: {}", image, fmt::join(names, ", ")));
  return std::move(check).warned(fmt::format("images differ: {}", fmt::join(parts, "; ")),
                                 "wait where an update is under way: `kubectl rollout status daemonset` in "
                                 "Ferry's namespace says so for each of them");
}

Check node_state(const ClusterNode& node, const std::vector<json>& pods) {
  Check check{"node-state", node.name, "GPUs are advertised as desired only on a node that is ready"};
  if (node.state.empty()) return std::move(check).unknown("there is no label gpu-ferry.io/state");
  const std::string found = node.last_error.empty() ? node.state : node.state + ": " + node.last_error;
  if (node.state == "ready" || node.state == "idle") {
    if (std::ranges::none_of(pods, runs_ferry))
      return std::move(check).unknown(found +
                                      ", by a label that may be old: no pod of Ferry's is on this node");
    return std::move(check).passed(found);
  }
  return std::move(check).failed(
      found, "`kubectl describe node` has the events; `ferry status` on the node all of it");
}

Check other_programs(const ClusterNode& node, const std::vector<json>& pods) {
  Check check{"one-owner", node.name, "Ferry is on standby where NVIDIA's programs serve the node"};
  std::map<std::string, json> by_name;
  agent::AgentProgramOptions agent;  // options of the agent's pod, if there is one
  for (const json& pod : pods) {
    by_name.emplace(full_name(pod), pod);
    if (auto options = agent_options_in(pod)) agent = std::move(*options);
  }
  const auto on_node = agent::pods_of(by_name, agent::believed_by(agent));
  auto owners = agent::other_owners(node.labels, {.pods = on_node, .daemon_sets = {}});
  // The operator's labels stay when its programs are switched off. The agent looks for their DaemonSets.
  const bool is_served = !node.state.empty() && !is_kept_off(node.labels);
  std::size_t left_over = 0;
  if (is_served && node.state != "standby")
    left_over = std::erase_if(owners, [](const agent::OtherOwner& owner) { return !owner.seen; });

  std::vector<std::string> why;
  std::vector<std::string> cures;
  why.reserve(owners.size() + 1);
  for (const agent::OtherOwner& owner : owners) why.push_back(fmt::format("{}: {}", owner.name, owner.why));
  const auto doubted =
      std::ranges::find_if(on_node, [](const agent::PodOnNode& pod) { return !pod.doubt.empty(); });
  if (!owners.empty()) {
    const std::string line = agent::hand_over_text(owners);
    cures.push_back(line.empty() ? "remove it" : "in ClusterPolicy: " + line);
  } else if (doubted != on_node.end()) {
    why.push_back(doubted->doubt);
    cures.emplace_back("kubectl describe pod says who made it");
  }
  // The operator's GPUCluster reads no label of Ferry's.
  constexpr const char* kDraDriver = "nvidia.com/gpu.deploy.dra-driver";
  const auto dra_driver = node.labels.find(kDraDriver);
  if (is_served && dra_driver != node.labels.end() && dra_driver->second == "true") {
    why.push_back(fmt::format("{}=true: NVIDIA's DRA driver takes GPUs of this node, too", kDraDriver));
    cures.push_back(
        fmt::format("kubectl label --overwrite node {} nvidia.com/gpu.deploy.driver=false {}=false",
                    node.name, kDraDriver));
  }
  if (!why.empty())
    return std::move(check).warned(fmt::format("{}", fmt::join(why, "; ")),
                                   fmt::format("{}", fmt::join(cures, "; ")));
  if (left_over > 0)
    return std::move(check).passed(
        "the operator's labels name some of them; the agent has found none of their DaemonSets");
  return std::move(check).passed("none of them is here");
}

Check gpus_offered(const ClusterNode& node, bool by_slices) {
  Check check{"gpus-advertised", node.name, "a device that is not allocatable goes to no pod"};
  if (node.resources.empty() && by_slices)
    return std::move(check).passed("claims get the node's GPUs, by its ResourceSlices");
  if (node.resources.empty())
    return std::move(check).warned("the node advertises no GPUs",
                                   "`ferry status` on the node says in which mode they are");
  std::vector<std::string> lacks;
  std::vector<std::string> held;
  for (const auto& [name, resource] : node.resources) {
    if (resource.unwell() > 0)
      lacks.push_back(fmt::format("{} of {} {}", resource.unwell(), resource.capacity, name));
    if (resource.held_back > 0)
      held.push_back(fmt::format("{} of {} {}", resource.held_back, resource.capacity, name));
  }
  if (lacks.empty() && !held.empty())
    return std::move(check).passed(fmt::format(
        "probably held back, since pods have other devices of their IOMMU groups: {} (`ferry explain` "
        "with such a name says on the node whether one is unhealthy); all others are allocatable",
        fmt::join(held, ", ")));
  if (lacks.empty())
    return std::move(check).passed(fmt::format("{} resources, all allocatable", node.resources.size()));
  return std::move(check).warned(
      "not allocatable: " + fmt::format("{}", fmt::join(lacks, ", ")),
      "is `ferry plugin` running? `ferry explain` with such a name says on the "
      "node which devices are unhealthy, and why; 2 where the plugin has none of it");
}

/// The node's resources that are in both lists, as for a vGPU type that is mediated on some nodes only.
std::vector<std::string> listed_twice(const ClusterNode& node, const json& kubevirt) {
  const json& permitted = permitted_devices(kubevirt);
  const auto lists = [&](const char* list, const std::string& name) {
    return std::ranges::any_of(items_field(permitted, list),
                               [&](const json& entry) { return text_field(entry, "resourceName") == name; });
  };
  std::vector<std::string> out;
  for (const auto& [name, resource] : node.resources)
    if (resource.capacity > 0 && lists("pciHostDevices", name) && lists("mediatedDevices", name))
      out.push_back(name);
  return out;
}

Check kubevirt_permits(const ClusterNode& node, const std::optional<std::vector<json>>& kubevirts) {
  Check check{"kubevirt-permits", node.name,
              "KubeVirt starts no VM with a device that its object does not list, and advertises one "
              "itself that has no externalResourceProvider: true; pods in VMs of Kata need neither"};
  constexpr const char* kCure =
      "`kubectl ferry kubevirt-cr --check` with the output of `ferry kubevirt-cr -o json` on the node has "
      "the "
      "patch";
  if (!kubevirts) return std::move(check).unknown("the KubeVirt object cannot be seen");
  if (kubevirts->empty()) return std::move(check).passed("the cluster has no KubeVirt");
  if (!permitted_by(kubevirts->front())) {
    for (const auto& [name, resource] : node.resources)
      if (const auto why = unlisted_vgpus(kubevirts->front(), name); resource.capacity > 0 && !why.empty())
        return std::move(check).warned(why, kUnlistedVgpusCure);
    return std::move(check).passed("it permits everything");
  }
  std::vector<std::string> lacks;
  for (const PermittedResource& one :
       permitted_resources({.nodes = {node}, .users = {}, .notes = {}}, kubevirts->front())) {
    if (!one.listed)
      lacks.push_back(one.name + " is not listed");
    else if (!one.by_others)
      lacks.push_back(one.name + " is not marked with externalResourceProvider: true");
  }
  if (const auto twice = listed_twice(node, kubevirts->front()); lacks.empty() && !twice.empty())
    return std::move(check).warned(fmt::format("{} stands in pciHostDevices and in mediatedDevices: {}",
                                               fmt::join(twice, ", "), kOneNameForTwoKinds),
                                   kOneNameForTwoKindsCure);
  if (lacks.empty()) return std::move(check).passed("all that the node advertises is listed");
  return std::move(check).warned(fmt::format("{}", fmt::join(lacks, "; ")), kCure);
}

Check kubevirt_reads_claims(const ClusterNode& node, const std::optional<std::vector<json>>& kubevirts) {
  Check check{"kubevirt-claims", node.name,
              "a VM gets a GPU by a ResourceClaim only with KubeVirt's feature gate GPUsWithDRA"};
  if (!kubevirts) return std::move(check).unknown("the KubeVirt object cannot be seen");
  if (kubevirts->empty()) return std::move(check).passed("the cluster has no KubeVirt");
  const json& kubevirt = kubevirts->front();
  if (has_gate(kubevirt, "disabledFeatureGates", "GPUsWithDRA"))
    return std::move(check).warned("the gate is switched off",
                                   "take GPUsWithDRA out of developerConfiguration.disabledFeatureGates");
  if (has_gate(kubevirt, "featureGates", "GPUsWithDRA")) return std::move(check).passed("the gate is on");
  const auto recent = is_1_9_or_newer(kubevirt);
  if (!recent)
    return std::move(check).unknown("the KubeVirt object has no version, and the gate is not in it",
                                    "before KubeVirt 1.9: add GPUsWithDRA to "
                                    "developerConfiguration.featureGates");
  if (*recent) return std::move(check).passed("the gate is on by default since KubeVirt 1.9");
  return std::move(check).warned("KubeVirt is older than 1.9, and the gate is off",
                                 "add GPUsWithDRA to developerConfiguration.featureGates; it needs 1.8.3");
}

Check kubevirt_keeps_mediated(const ClusterNode& node, const std::optional<std::vector<json>>& kubevirts) {
  Check check{"kubevirt-keeps-mediated", node.name,
              "each minute KubeVirt removes mediated devices of types that it does not know, also those "
              "that a claim has just made"};
  if (!kubevirts) return std::move(check).unknown("the KubeVirt object cannot be seen");
  if (kubevirts->empty()) return std::move(check).passed("the cluster has no KubeVirt");
  if (!removes_vgpus(kubevirts->front())) return std::move(check).passed("it is switched off");
  return std::move(check).warned(
      "KubeVirt looks after mediated devices; whole GPUs and vGPUs without mdev do not matter to it",
      "set spec.configuration.mediatedDevicesConfiguration.enabled: false in the KubeVirt object, or list "
      "each type with externalResourceProvider: true");
}

bool one_has(const std::vector<json>& slices, const char* list) {
  return std::ranges::any_of(
      slices, [&](const json& slice) { return !items_field(json_at(slice, "spec"), list).empty(); });
}

/// An API server before Kubernetes 1.34 does not know the kind. Later ones drop counters without an error,
/// so the slices show whether they were stored.
Check slices_have_counters(const ClusterNode& node, const Result<std::vector<json>>& slices) {
  Check check{"dra-counters", node.name,
              "without counters the scheduler keeps no two devices of a GPU apart, so claims get each "
              "GPU in one way only"};
  if (!slices && slices.error().code == kube::ApiErrc::not_found)
    return std::move(check).failed("the API server has no resource.k8s.io/v1",
                                   "claims need Kubernetes 1.34 or later; with dra.enabled=false in the "
                                   "chart's values the device plugin serves the GPUs on any version");
  if (!slices) return std::move(check).unknown(slices.error().message, slices.error().hint);
  if (!one_has(*slices, "devices"))
    return std::move(check).unknown("the node has no ResourceSlices with devices",
                                    "`kubectl describe node` has an event if they are refused; `ferry doctor "
                                    "--for dra` on the node says whether a GPU is for claims");
  if (one_has(*slices, "sharedCounters"))
    return std::move(check).passed("the node's ResourceSlices have counters");
  return std::move(check).warned("the node's ResourceSlices have no counters",
                                 "on Kubernetes 1.35 switch the feature gates DRAPartitionableDevices and "
                                 "DRADeviceTaints on, for the API server, the scheduler and the controller "
                                 "manager; 1.36 has both on, and 1.34 cannot");
}

Check resource_names(const ClusterNode& node, const Result<std::vector<json>>& slices,
                     const Result<std::vector<json>>& classes) {
  Check check{"dra-resource-names", node.name,
              "of two DeviceClasses with one extendedResourceName the newer counts alone; and a pod that a "
              "DeviceClass serves is counted against the device plugin's GPUs of the name, too"};
  if (!classes) return std::move(check).unknown(classes.error().message, classes.error().hint);

  std::map<std::string, std::vector<std::string>> by_resource;  // the DeviceClasses of each name
  for (const json& one : *classes)
    if (const auto name = text_field(json_at(one, "spec"), "extendedResourceName"); !name.empty())
      by_resource[name].push_back(text_field(json_at(one, "metadata"), "name"));
  for (const auto& [resource, names] : by_resource)
    if (names.size() > 1)
      return std::move(check).warned(
          fmt::format("the DeviceClasses {} have the name {}", fmt::join(names, ", "), resource),
          "leave the name to one of them");

  if (!slices) return std::move(check).unknown(slices.error().message, slices.error().hint);
  const bool has_claims = one_has(*slices, "devices");
  for (const auto& [resource, numbers] : node.resources)
    if (const auto found = by_resource.find(resource);
        has_claims && numbers.capacity > 0 && found != by_resource.end())
      return std::move(check).failed(
          fmt::format("a device plugin advertises {}, which is the name of the DeviceClass {}, too", resource,
                      found->second.front()),
          "give all GPUs of this name on the node to claims, or all to the device plugin; or name the "
          "plugin's by an alias (plugin.aliases)");
  return std::move(check).passed("no name is given twice");
}

}  // namespace

std::vector<Check> cluster_checks(const ClusterObjects& objects,
                                  const std::optional<std::vector<json>>& kubevirts,
                                  const Result<std::vector<json>>& slices,
                                  const Result<std::vector<json>>& classes) {
  const ClusterGpus cluster = cluster_gpus(objects);
  std::vector<Check> out;
  for (const ClusterNode& node : cluster.nodes) {
    out.push_back(node_ready(node));
    out.push_back(agent_runs(node, objects.pods));
    out.push_back(host_side_runs(node, objects.pods));
    out.push_back(one_version(node, objects.pods));
    out.push_back(node_state(node, objects.pods));
    out.push_back(other_programs(node, objects.pods));
    const bool has_dra = std::ranges::any_of(objects.pods, runs_dra);
    out.push_back(gpus_offered(node, has_dra && slices && one_has(*slices, "devices")));
    out.push_back(kubevirt_permits(node, kubevirts));
    if (!node.kata_error.empty())
      out.push_back(
          Check{"kata-runtimes", node.name, "pods of a Kata class start only where its runtime is ready"}
              .warned(node.kata_error,
                      "`kubectl describe node` has the events; `ferry doctor --for kata` on the node "
                      "judges the runtimes"));
    if (!has_dra) continue;
    out.push_back(slices_have_counters(node, slices));
    out.push_back(resource_names(node, slices, classes));
    out.push_back(kubevirt_reads_claims(node, kubevirts));
    out.push_back(kubevirt_keeps_mediated(node, kubevirts));
  }
  return out;
}

}  // namespace ferry::kubectl
