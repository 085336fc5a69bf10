// SPDX-License-Identifier: Apache-2.0
// The desired state of a node, from its labels and the cluster's configurations. Pure, but for the cache of
// parsed policies (written_policy.h).
//
//   gpu-ferry.io/policy=NAME                  that policy
//   nvidia.com/gpu.deploy.operands=false      no change
//   nvidia.com/gpu.workload.config=VALUE      container: all GPUs for the host; vm-passthrough: all GPUs for
//                                             VMs; vm-vgpu: the configuration in nvidia.com/vgpu.config
//   nvidia.com/vgpu.config=NAME alone         counts where there is no default workload, or vm-vgpu
//   nodeSelector in a configuration           the policy that names this node by its labels
//   the default policy, or workload
//
// The first line that applies wins. An empty label counts as none. docs/agent.md has the details.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_tree.h"
#include "common/result.h"
#include "policy/kubernetes_files.h"
#include "policy/policy.h"
#include "vfio/quiesce/release.h"
#include "vfio/registers/register_facts.h"

namespace ferry::agent {

/// The gpu-operator's words for the purpose of a whole node.
enum class Workload { container, vm_passthrough, vm_vgpu };
std::string_view text(Workload workload);
/// Absent: another word.
std::optional<Workload> parse_workload(std::string_view word);

/// Defaults where no label says anything. At most one of workload and policy is set.
struct DesiredDefaults {
  std::optional<Workload> workload;
  std::optional<std::string> policy;
  /// The vGPU configuration of a vm-vgpu node whose label names none.
  std::string vgpu_config = "default";
  /// Services that may be stopped for a workload's change, and for a vGPU profile; a policy has its own list
  /// (Policy::release).
  std::set<std::string> release = vfio::default_release();
};

/// The policy that the node has to reach.
struct DesiredPolicy {
  std::string name;
  std::string config;  ///< the whole text, so that places in errors are its lines
  std::string source;
  policy::Policy policy;
  /// "policy one-vm (label gpu-ferry.io/policy=one-vm)", for people.
  std::string text() const { return "policy " + name + " (" + source + ")"; }
};

struct DesiredState {
  enum class Kind {
    policy,
    nothing,  ///< nothing is desired, or a label says so: the host stays as it is
    standby,  ///< other programs own this node's GPUs (two_owners.h); Ferry writes nothing
    invalid,  ///< the desired state is not possible: the host stays as it is
  };
  Kind kind = Kind::nothing;
  DesiredPolicy desired_policy;             ///< of Kind::policy
  Error error;                              ///< of Kind::invalid
  std::string reason;                       ///< of Kind::nothing and standby
  bool of_vgpu_config = false;              ///< a vGPU configuration is desired, possible or not
  std::optional<vfio::WantedMode> cc_mode;  ///< api::DesiredFile::cc_mode
  /// Requests that do not count, each as a sentence.
  std::vector<std::string> warnings;
};

/// `configs`: the cluster's policies and vGPU profiles; `unreadable`: errors of further ones that cannot be
/// fetched. A configuration that cannot be read or fetched is an error only if the desired name is in no
/// other.
DesiredState resolve_desired_state(const policy::NodeObject& node, std::span<const ConfigText> configs,
                                   const DesiredDefaults& defaults, std::span<const Error> unreadable = {});

/// True if two policies have the same content, whatever their names and nodes.
bool same_policy(const policy::Policy& a, const policy::Policy& b);

}  // namespace ferry::agent
