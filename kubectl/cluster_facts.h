// SPDX-License-Identifier: Apache-2.0
// The GPUs of a cluster by an API server's objects: the resources that nodes advertise, and the pods and VMs
// that have them. Pure.
//
// The kubelet reports how many devices of a resource a node has, and not which. A pod's status names its
// devices only if the kubelet has the gate ResourceHealthStatus. Unknown facts are absent here, and not
// guessed. A part of an object that the API server would not make so counts as absent.
// ABI: v1 Node and Pod; resource.k8s.io/v1 ResourceClaim; kubevirt.io/v1 VirtualMachineInstance (KubeVirt
// v1.9.0).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "policy/policy.h"

namespace ferry::kubectl {

/// The domain of NVIDIA's resources, which are GPUs or come with them.
inline constexpr std::string_view kGpuResources = "nvidia.com/";

/// True for names in that domain, and for the names that Ferry's plugin gives by default to GPUs of AMD and
/// Intel: "amd.com/NAVI_31". Their other resources are containers' GPUs (amd.com/gpu) and no GPUs
/// (intel.com/sriov_net).
bool is_gpu_resource(std::string_view resource);

/// The number of each resource.
using ResourceCounts = std::map<std::string, std::uint64_t>;

/// A device of a pod, as the kubelet writes it into the pod's status.
struct GivenDevice {
  std::string resource;
  std::string id;  ///< the device plugin's: a PCI address, a vGPU's UUID
  std::string health;
};

/// A VM or pod that has GPUs or asks for some.
struct GpuUser {
  enum class Kind {
    vm,    ///< a VirtualMachineInstance of KubeVirt's
    kata,  ///< a pod in a VM of Kata's
    pod,   ///< any other pod
  };
  Kind kind = Kind::pod;
  std::string space;
  std::string name;                      ///< the VM's, or the pod's
  std::string pod = {};                  ///< a VM's launcher; empty: there is none yet
  std::string node;                      ///< empty: on none yet
  std::string phase;                     ///< the VM's or the pod's; empty: not reported
  std::string runtime_class = {};        ///< a pod's; empty: the default one
  ResourceCounts resources = {};         ///< without those of `by_claim`
  std::set<std::string> by_claim = {};   ///< resources that a claim of the scheduler serves
  std::vector<std::string> claims = {};  ///< of a VM's GPUs: "claim/request"
  std::vector<GivenDevice> devices = {};

  /// A VM without a pod has no devices yet.
  bool is_on(std::string_view its_node) const { return !pod.empty() && !node.empty() && node == its_node; }
  /// "VM studio/render-a", "pod ml/train-0"
  std::string text() const;
};
std::string_view text(GpuUser::Kind kind);

/// A device that a ResourceClaim has by Ferry's driver.
struct ClaimedDevice {
  std::string node;                    ///< by the device's pool
  std::string device;                  ///< its name in the pool: "whole-0000-65-00-0"
  std::string space;                   ///< the claim's namespace
  std::string claim;                   ///< the claim's name
  std::string request;                 ///< "card", or "card/small" where the claim lists alternatives
  std::vector<std::string> pods = {};  ///< of the claim's namespace, for which it is reserved

  /// "claim studio/render-a: whole-0000-65-00-0, for pod vm-1"
  std::string text() const;
};

/// A node's numbers of one resource.
struct NodeResource {
  std::uint64_t capacity = 0;     ///< devices that the kubelet lists
  std::uint64_t allocatable = 0;  ///< healthy devices among them
  std::uint64_t used = 0;         ///< allocated to pods of the node
  /// All that are not allocatable, where pods have as many devices of the domain's other resources: a pod has
  /// a device's whole IOMMU group, and the other devices of the group then cannot be allocated. `ferry
  /// explain` on the node knows each.
  std::uint64_t held_back = 0;

  std::uint64_t unwell() const { return capacity > allocatable ? capacity - allocatable - held_back : 0; }
};

struct ClusterNode {
  std::string name;
  bool ready = false;
  bool cordoned = false;
  bool cordoned_by_ferry = false;  ///< for a drain, which ends with the agent uncordoning it
  std::string state;               ///< gpu-ferry.io/state; empty: no agent of Ferry has set it
  /// Unix time in seconds of the last change that the agent made of the Node's metadata; absent: not shown.
  std::optional<std::int64_t> last_changed;
  std::string asked_for;                   ///< desired state of its labels, "policy mixed"; empty: none
  std::string last_error;                  ///< gpu-ferry.io/last-error
  std::string kata_error = {};             ///< gpu-ferry.io/kata-error; empty: none
  std::string vgpu_state;                  ///< nvidia.com/vgpu.config.state
  std::string drain;                       ///< gpu-ferry.io/drain, for people; empty: no pods are evicted
  std::vector<std::string> kata_handlers;  ///< ready runtime handlers
  /// Prints each GPU, by hostd's pod on the node. Empty: no such pod is among the objects, or pods of two
  /// namespaces look like it, and a tenant may have made one of them.
  std::string status_command = {};
  std::map<std::string, NodeResource> resources;
  std::map<std::string, std::string> labels;  ///< labels about GPUs
  std::vector<ClaimedDevice> claims = {};     ///< by claim and device; empty also if they were not read
};

/// The API server's lists of whole objects, or of the parts that counted_node() and its like keep.
struct ClusterObjects {
  std::vector<nlohmann::json> nodes;
  std::vector<nlohmann::json> pods;
  std::vector<nlohmann::json> vmis;
  std::vector<std::string> notes;      ///< missing facts, each as a sentence
  std::vector<nlohmann::json> claims;  ///< ResourceClaims
};

struct ClusterGpus {
  std::vector<ClusterNode> nodes;  ///< by name
  std::vector<GpuUser> users;      ///< by namespace and name; a VM that migrates has one for each pod
  std::vector<std::string> notes;

  /// The users of a node's resource.
  std::vector<const GpuUser*> users_of(const std::string& node, const std::string& resource) const;
};

ClusterGpus cluster_gpus(const ClusterObjects& objects);

/// Drops the nodes that advertise no GPUs, have no claims of GPUs and no labels about GPUs.
void drop_nodes_without_gpus(ClusterGpus& cluster);

/// True: a node's label gpu-ferry.io/deploy=false keeps the pods of Ferry's DaemonSets off.
bool is_kept_off(const std::map<std::string, std::string>& labels);

/// True: one of a pod's containers asks for GPUs.
bool asks_for_gpus(const nlohmann::json& pod);

// The part of an object that cluster_gpus() reads: a large cluster's whole objects would take gigabytes.
// Null: the object has no GPU and asks for none.
nlohmann::json counted_node(const nlohmann::json& node);  ///< never null
nlohmann::json counted_pod(const nlohmann::json& pod);
nlohmann::json counted_vmi(const nlohmann::json& vmi);
nlohmann::json counted_claim(const nlohmann::json& claim);  ///< null: it has no device of Ferry's driver

/// The mode of a resource's GPUs, by its name alone, if Ferry or NVIDIA's plugins make such a name by
/// default. Absent: any mode is possible. An alias looks like none of these names, or rarely like one.
std::optional<policy::Mode> mode_by_name(std::string_view resource);

}  // namespace ferry::kubectl
