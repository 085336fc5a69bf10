// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/composed_clusters.h"

#include <stdexcept>

namespace ferry::test {
namespace {

using nlohmann::json;

kubectl::ClusterObjects passthrough() {
  kubectl::ClusterObjects out;
  out.nodes = {
      gpu_node("gpu-1",
               {{"nvidia.com/gpu.workload.config", "vm-passthrough"}, {"gpu-ferry.io/state", "ready"}},
               {{kWholeL40s, 4}}),
      gpu_node("cpu-1", {{"kubernetes.io/hostname", "cpu-1"}}, {})};
  auto pair = launcher("studio", "render-a", "gpu-1", {{kWholeL40s, 2}});
  give(pair, kWholeL40s, {"0000:3b:00.0", "0000:5e:00.0"});
  out.pods = {pair, launcher("studio", "render-b", "gpu-1", {{kWholeL40s, 1}}),
              gpu_pod("web", "shop", "cpu-1", {})};
  out.vmis = {vmi("studio", "render-a", "gpu-1", {kWholeL40s, kWholeL40s}),
              vmi("studio", "render-b", "gpu-1", {kWholeL40s}),
              vmi("studio", "render-c", "", {kWholeL40s}, "Scheduling"), vmi("web", "plain", "cpu-1", {})};
  return out;
}

kubectl::ClusterObjects vgpu() {
  kubectl::ClusterObjects out;
  out.nodes = {gpu_node("gpu-2",
                        {{"nvidia.com/gpu.workload.config", "vm-vgpu"},
                         {"nvidia.com/vgpu.config", "A40-6Q"},
                         {"nvidia.com/vgpu.config.state", "success"},
                         {"gpu-ferry.io/state", "ready"}},
                        {{kEighthA40, 16}})};
  // A device whose driver has ended is there, and given to nobody.
  out.nodes[0]["status"]["allocatable"][kEighthA40] = "15";
  auto desk = launcher("desks", "desk-1", "gpu-2", {{kEighthA40, 1}});
  give(desk, kEighthA40, {"3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11"}, "Unhealthy");
  out.pods = {desk};
  // It moves: two pods, each with a vGPU of its own.
  out.nodes.push_back(gpu_node("gpu-20", {{"gpu-ferry.io/state", "ready"}}, {{kEighthA40, 4}}));
  out.pods.push_back(launcher("desks", "desk-2", "gpu-2", {{kEighthA40, 1}}, "source"));
  out.pods.push_back(launcher("desks", "desk-2", "gpu-20", {{kEighthA40, 1}}, "target"));
  out.vmis = {vmi("desks", "desk-1", "gpu-2", {kEighthA40}), vmi("desks", "desk-2", "gpu-2", {kEighthA40})};
  return out;
}

kubectl::ClusterObjects mixed() {
  kubectl::ClusterObjects out;
  out.nodes = {gpu_node("gpu-3",
                        {{"gpu-ferry.io/policy", "mixed"},
                         {"gpu-ferry.io/state", "ready"},
                         {"gpu-ferry.io/kata.kata-nvidia-gpu", "ready"}},
                        {{kWholeL40s, 2}, {kEighthA40, 8}, {"nvidia.com/gpu", 1}, {"nvidia.com/render", 1}})};
  out.pods = {gpu_pod("ml", "train-0", "gpu-3", {{"nvidia.com/gpu", 1}}),
              kata_pod("tenant-a", "notebook", "gpu-3", {{kWholeL40s, 1}}, "kata-nvidia-gpu"),
              launcher("desks", "desk-1", "gpu-3", {{kEighthA40, 1}})};
  out.vmis = {vmi("desks", "desk-1", "gpu-3", {kEighthA40})};
  return out;
}

kubectl::ClusterObjects troubled() {
  kubectl::ClusterObjects out;
  auto refused = gpu_node("gpu-4", {{"gpu-ferry.io/policy", "mixed"}, {"gpu-ferry.io/state", "blocked"}},
                          {{kWholeL40s, 2}});
  refused["metadata"]["annotations"]["gpu-ferry.io/last-error"] =
      "0000:3b:00.0 AD102GL [L40S]: in use: VM guest-7 (pid 4711) holds /dev/vfio/42; stop the VM first";
  auto failed = gpu_node("gpu-5", {{"gpu-ferry.io/policy", "quarter"}, {"gpu-ferry.io/state", "failed"}}, {});
  failed["metadata"]["annotations"]["gpu-ferry.io/last-error"] =
      "label gpu-ferry.io/policy=quarter: no policy or profile is called 'quarter'; did you mean 'quarters'?";
  auto draining = gpu_node("gpu-6", {{"gpu-ferry.io/policy", "mixed"}, {"gpu-ferry.io/state", "draining"}},
                           {{kWholeL40s, 1}});
  draining["spec"]["unschedulable"] = true;
  draining["metadata"]["annotations"]["gpu-ferry.io/drain"] =
      R"({"generation": 12, "since": "2026-11-21T09:30:00Z"})";
  auto without = gpu_node("gpu-7", {{"feature.node.kubernetes.io/pci-0302_10de.present", "true"}}, {});
  without["status"]["conditions"][0]["status"] = "Unknown";
  // What is left of a plugin that has gone.
  auto left_over = gpu_node("gpu-8", json::object(), {{"nvidia.com/GA102_GEFORCE_RTX_3090", 0}});
  out.nodes = {left_over, without, draining, failed, refused};
  out.pods = {gpu_pod("ml", "train-0", "gpu-6", {{kWholeL40s, 1}})};
  out.notes = {
      "VMs that have no pod yet are not shown: list VirtualMachineInstance: the API server answers 403"};
  return out;
}

kubectl::ClusterObjects long_names() {
  const std::string resource = "nvidia.com/GB202GL_RTX_PRO_6000_BLACKWELL_MAXQ_WORKSTATION_EDITION";
  const std::string node = "gpu-worker-with-eight-cards.rack-17.room-b.frankfurt.example.internal";
  kubectl::ClusterObjects out;
  out.nodes = {
      gpu_node(node, {{"gpu-ferry.io/policy", "a"}, {"gpu-ferry.io/state", "ready"}}, {{resource, 8}})};
  auto pod = launcher("team-with-a-rather-long-namespace-name",
                      "virtual-workstation-of-the-design-department-01", node, {{resource, 2}});
  give(pod, resource, {"0000:3b:00.0", "0000:5e:00.0"});
  out.pods = {pod};
  out.vmis = {vmi("team-with-a-rather-long-namespace-name", "virtual-workstation-of-the-design-department-01",
                  node, {resource, resource})};
  return out;
}

}  // namespace

const std::vector<ComposedCluster>& composed_clusters() {
  static const std::vector<ComposedCluster> all = {
      {"passthrough", "whole GPUs; a VM with two, one without a pod, a node without GPUs", passthrough()},
      {"vgpu", "vGPUs, one of them not well; a VM that moves has two pods", vgpu()},
      {"mixed", "a policy with a mode for each GPU: containers, VMs of KubeVirt and of Kata, an alias",
       mixed()},
      {"troubled", "refused, failed, draining, without Ferry, and what a plugin left behind", troubled()},
      {"long-names", "names that no terminal has room for", long_names()},
      {"empty", "nothing", {}},
  };
  return all;
}

const ComposedCluster& composed_cluster(const std::string& name) {
  for (const auto& cluster : composed_clusters())
    if (cluster.name == name) return cluster;
  throw std::runtime_error("no composed cluster is called " + name);
}

}  // namespace ferry::test
