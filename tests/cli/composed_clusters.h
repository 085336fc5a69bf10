// SPDX-License-Identifier: Apache-2.0
// Clusters as an API server lists them, composed for tests of `kubectl ferry`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kubectl/cluster_facts.h"

namespace ferry::test {

using Quantities = std::vector<std::pair<std::string, std::uint64_t>>;

inline constexpr const char* kWholeL40s = "nvidia.com/AD102GL_L40S";
inline constexpr const char* kEighthA40 = "nvidia.com/NVIDIA_A40-6Q";

inline nlohmann::json quantities(const Quantities& counts) {
  nlohmann::json out = nlohmann::json::object();
  out["cpu"] = "64";
  for (const auto& [name, count] : counts) out[name] = std::to_string(count);
  return out;
}

/// Ready, and all that it has is allocatable.
inline nlohmann::json gpu_node(const std::string& name, nlohmann::json labels, const Quantities& capacity) {
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata",
           {{"name", name}, {"labels", std::move(labels)}, {"annotations", nlohmann::json::object()}}},
          {"spec", nlohmann::json::object()},
          {"status",
           {{"capacity", quantities(capacity)},
            {"allocatable", quantities(capacity)},
            {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
}

inline nlohmann::json gpu_pod(const std::string& space, const std::string& name, const std::string& node,
                              const Quantities& asked) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", space}}},
          {"spec",
           {{"nodeName", node},
            {"containers", {{{"name", "main"}, {"resources", {{"limits", quantities(asked)}}}}}}}},
          {"status", {{"phase", "Running"}}}};
}

/// The pod of a VM, as KubeVirt makes it.
inline nlohmann::json launcher(const std::string& space, const std::string& vm, const std::string& node,
                               const Quantities& asked, const std::string& suffix = "x7k2p") {
  auto pod = gpu_pod(space, "virt-launcher-" + vm + "-" + suffix, node, asked);
  pod["metadata"]["labels"] = {{"kubevirt.io", "virt-launcher"}};
  pod["metadata"]["ownerReferences"] = {{{"kind", "VirtualMachineInstance"}, {"name", vm}}};
  return pod;
}

inline nlohmann::json kata_pod(const std::string& space, const std::string& name, const std::string& node,
                               const Quantities& asked, const std::string& runtime_class) {
  auto pod = gpu_pod(space, name, node, asked);
  pod["spec"]["runtimeClassName"] = runtime_class;
  return pod;
}

inline nlohmann::json vmi(const std::string& space, const std::string& name, const std::string& node,
                          const std::vector<std::string>& resources, const std::string& phase = "Running") {
  auto gpus = nlohmann::json::array();
  for (const auto& resource : resources)
    gpus.push_back({{"name", "gpu" + std::to_string(gpus.size())}, {"deviceName", resource}});
  nlohmann::json status = {{"phase", phase}};
  if (!node.empty()) status["nodeName"] = node;
  return {{"apiVersion", "kubevirt.io/v1"},
          {"kind", "VirtualMachineInstance"},
          {"metadata", {{"name", name}, {"namespace", space}}},
          {"spec", {{"domain", {{"devices", {{"gpus", std::move(gpus)}}}}}}},
          {"status", std::move(status)}};
}

/// What the kubelet writes with the gate ResourceHealthStatus.
inline void give(nlohmann::json& pod, const std::string& resource, const std::vector<std::string>& ids,
                 const std::string& health = "Healthy") {
  auto devices = nlohmann::json::array();
  for (const auto& id : ids) devices.push_back({{"resourceID", id}, {"health", health}});
  pod["status"]["containerStatuses"] = {
      {{"name", "main"},
       {"ready", true},
       {"allocatedResourcesStatus", {{{"name", resource}, {"resources", std::move(devices)}}}}}};
}

/// The pod of Ferry's agent on a node.
inline nlohmann::json agent_pod(const std::string& node, const std::vector<std::string>& words) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", "ferry-" + node}, {"namespace", "gpu-system"}}},
          {"spec",
           {{"nodeName", node},
            {"containers", {{{"name", "agent"}, {"command", {"/usr/bin/ferry-agent"}}, {"args", words}}}}}},
          {"status", {{"phase", "Running"}, {"containerStatuses", {{{"name", "agent"}, {"ready", true}}}}}}};
}

/// The pod of `verb`, "hostd" or "plugin", on a node.
inline nlohmann::json host_pod(const std::string& node, const std::string& verb) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", "ferry-" + verb + "-" + node},
            {"namespace", "gpu-system"},
            {"labels", {{"app.kubernetes.io/name", "ferry"}, {"helm.sh/chart", "ferry-0.1.0"}}}}},
          {"spec",
           {{"nodeName", node},
            {"containers",
             {{{"name", verb}, {"command", {"/usr/bin/ferry"}}, {"args", {"--host-root=/host", verb}}}}}}},
          {"status", {{"phase", "Running"}, {"containerStatuses", {{{"name", verb}, {"ready", true}}}}}}};
}

struct ComposedCluster {
  std::string name;
  std::string what;
  kubectl::ClusterObjects objects;
};

const std::vector<ComposedCluster>& composed_clusters();
const ComposedCluster& composed_cluster(const std::string& name);

}  // namespace ferry::test
