// SPDX-License-Identifier: Apache-2.0
// What a node shall be, from what its labels say and the cluster's configurations hold. Pure.
//
//   nvidia.com/gpu.deploy.operands=false      nothing is done
//   gpu-ferry.io/policy=NAME                  that policy
//   nvidia.com/gpu.workload.config=VALUE      container: every GPU the host's; vm-passthrough: every GPU
//   given
//                                             away; vm-vgpu: what nvidia.com/vgpu.config names
//   (no such label) the default workload      the same
//   nvidia.com/vgpu.config=NAME alone         counts where there is no default workload
//   the default policy
//
// The first line that fits holds. An empty label counts as none. docs/agent.md has all of it.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config_tree.h"
#include "common/result.h"
#include "policy/kubernetes_files.h"
#include "policy/policy.h"
#include "vfio/release.h"

namespace ferry {

/// The gpu-operator's words for what a whole node is for.
enum class Workload { container, vm_passthrough, vm_vgpu };
std::string_view text(Workload workload);
/// Absent for another word.
std::optional<Workload> parse_workload(std::string_view word);

/// What counts where no label says anything. At most one of workload and policy.
struct WishDefaults {
  std::optional<Workload> workload;
  std::optional<std::string> policy;
  /// The vGPU configuration of a node for vGPUs whose label names none.
  std::string vgpu_config = "default";
  /// What may be stopped for a workload's moves, and for a vGPU profile: a policy has its own
  /// (Policy::release).
  std::set<std::string> release = default_release();
};

/// The one policy that a node shall be.
struct WishedPolicy {
  std::string name;
  std::string config;  ///< the text that holds it, whole, so that places in errors are its lines
  std::string asked_by;
  Policy policy;
  bool operator==(const WishedPolicy& other) const {
    return name == other.name && config == other.config && asked_by == other.asked_by;
  }
};

struct NodeWish {
  enum class Kind {
    policy,
    nothing,     ///< nobody asks for anything, or somebody for nothing: the host is left as it is
    stand_back,  ///< others own this node's GPUs (two_owners.h); Ferry writes nothing
    invalid,     ///< what is asked for cannot be: the host is left as it is
  };
  Kind kind = Kind::nothing;
  WishedPolicy wished;          ///< of Kind::policy
  Error error;                  ///< of Kind::invalid
  std::string reason;           ///< of Kind::nothing and stand_back
  bool of_vgpu_config = false;  ///< a vGPU configuration is what is asked for, whether or not it can be
  /// What was asked for and does not count, each as a sentence.
  std::vector<std::string> warnings;
};

/// `configs` are the policies and vGPU profiles that the cluster offers. One that cannot be read is an error
/// only where the name asked for is in no other; so is one that cannot be had, whose error is among
/// `unreadable`.
NodeWish node_wish(const NodeObject& node, std::span<const ConfigText> configs, const WishDefaults& defaults,
                   std::span<const Error> unreadable = {});

/// Whether two policies say the same of every node, whatever they are called.
bool same_policy(const Policy& a, const Policy& b);

}  // namespace ferry
