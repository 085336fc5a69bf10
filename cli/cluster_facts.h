// SPDX-License-Identifier: Apache-2.0
// What an API server's objects say of the GPUs of a cluster: which resources nodes offer, and which pods and
// VMs have them. Pure.
//
// The kubelet tells the API server how many devices of a resource a node has, and not which; which one a pod
// has is in its status only where the kubelet has the gate ResourceHealthStatus. What is not there is absent
// here, and not guessed. Objects are taken as they come: a part that is not as the API server makes it counts
// as not there.
// ABI: v1 Node and Pod; kubevirt.io/v1 VirtualMachineInstance (KubeVirt v1.9.0).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "policy/policy.h"

namespace ferry {

/// Resources below this are GPUs, or come with them.
inline constexpr std::string_view kGpuResources = "nvidia.com/";

/// How many of which resource.
using ResourceCounts = std::map<std::string, std::uint64_t>;

/// A device of a pod, as the kubelet has written it into the pod's status.
struct GivenDevice {
  std::string resource;
  std::string id;  ///< as the device plugin calls it: a PCI address, a vGPU's UUID
  std::string health;
};

/// Who has GPUs, or asks for some.
struct GpuUser {
  enum class Kind {
    vm,    ///< a VirtualMachineInstance of KubeVirt's
    kata,  ///< a pod in a VM of Kata's
    pod,   ///< any other pod
  };
  Kind kind = Kind::pod;
  std::string space;
  std::string name;           ///< the VM's, or the pod's
  std::string pod;            ///< of a VM its launcher's; empty: there is none yet
  std::string node;           ///< empty: on none yet
  std::string phase;          ///< the VM's or the pod's own word; empty: not said
  std::string runtime_class;  ///< of a pod; empty: the usual one
  ResourceCounts resources;
  std::vector<std::string> claims;  ///< of a VM's GPUs: "claim/request"
  std::vector<GivenDevice> devices;

  /// A VM without a pod has been given nothing yet.
  bool is_on(std::string_view its_node) const { return !pod.empty() && !node.empty() && node == its_node; }
  /// "VM studio/render-a", "pod ml/train-0"
  std::string text() const;
};
std::string_view text(GpuUser::Kind kind);

/// What a node says of one resource.
struct NodeResource {
  std::uint64_t capacity = 0;     ///< devices that the kubelet knows
  std::uint64_t allocatable = 0;  ///< and that are well
  std::uint64_t used = 0;         ///< by pods that are on the node
  /// All that are not allocatable, where pods have as many devices of other resources: a pod has a device's
  /// whole IOMMU group, and the group's other devices are then given to nobody. `ferry explain` on the node
  /// knows each.
  std::uint64_t held_back = 0;

  std::uint64_t unwell() const { return capacity > allocatable ? capacity - allocatable - held_back : 0; }
};

struct ClusterNode {
  std::string name;
  bool ready = false;
  bool cordoned = false;
  bool cordoned_by_ferry = false;  ///< for a drain, which ends with the agent uncordoning it
  std::string state;               ///< gpu-ferry.io/state; empty: no agent of Ferry's has said any
  std::string asked_for;           ///< what its labels ask for, "policy mixed"; empty: they ask for nothing
  std::string last_error;          ///< gpu-ferry.io/last-error
  std::string vgpu_state;          ///< nvidia.com/vgpu.config.state
  std::string drain;               ///< gpu-ferry.io/drain, for people; empty: no pods are evicted
  std::vector<std::string> kata_handlers;  ///< that are ready
  std::map<std::string, NodeResource> resources;
  std::map<std::string, std::string> labels;  ///< those that say something of GPUs
};

/// Lists, as the API server has answered them, or what is counted of their objects.
struct ClusterObjects {
  std::vector<nlohmann::json> nodes;
  std::vector<nlohmann::json> pods;
  std::vector<nlohmann::json> vmis;
  std::vector<std::string> notes;  ///< what could not be had, each as a sentence
};

struct ClusterGpus {
  std::vector<ClusterNode>
      nodes;                   ///< in order of their names; without those that have nothing to do with GPUs
  std::vector<GpuUser> users;  ///< by namespace and name; of a VM that moves one for each pod
  std::vector<std::string> notes;

  /// Those that have some of a node's resource.
  std::vector<const GpuUser*> users_of(const std::string& node, const std::string& resource) const;
};

enum class NodesShown {
  with_gpus,  ///< those that offer GPUs, or whose labels speak of some
  all,
};
ClusterGpus cluster_gpus(const ClusterObjects& objects, NodesShown shown = NodesShown::with_gpus);

/// Whether one of a pod's containers asks for GPUs.
bool asks_for_gpus(const nlohmann::json& pod);

// What cluster_gpus() reads of an object, and no more of it: a large cluster's objects whole would take
// gigabytes. Null: it has no GPU, and asks for none.
nlohmann::json counted_node(const nlohmann::json& node);  ///< never null
nlohmann::json counted_pod(const nlohmann::json& pod);
nlohmann::json counted_vmi(const nlohmann::json& vmi);

/// How a resource's GPUs are given out, by its name alone, where that is one that Ferry or NVIDIA's plugins
/// make unasked; absent: it may be anything. An alias looks like none of these, or (rarely) like one.
std::optional<Mode> mode_by_name(std::string_view resource);

}  // namespace ferry
