// SPDX-License-Identifier: Apache-2.0
// Other programs that change or offer this node's GPUs: if NVIDIA's own programs do, Ferry goes to standby.
// Pure.
#pragma once

#include <chrono>
#include <compare>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/operator_compat/operands.h"

namespace ferry::agent {

/// The DaemonSet that a pod names as its controller. Any tenant may write that name into a pod.
struct NamedOwner {
  std::string space;  ///< the pod's namespace, which is the owner's too
  std::string name;
  std::string uid;
  std::string text() const { return space + "/" + name; }
  auto operator<=>(const NamedOwner&) const = default;
};

/// A pod on this node that has not ended.
struct PodOnNode {
  std::string name;
  std::string daemon_set = {};  ///< a trusted DaemonSet (BelievedOwners) that owns it; empty: none
  std::string space = {};       ///< its namespace
  std::string uid = {};
  bool runs = false;  ///< a container of it runs
  /// A sentence, with advice, if the pod names a DaemonSet that has the name of one of NVIDIA's and is not
  /// trusted. Empty: no such case.
  std::string doubt = {};
  std::string kept = {};  ///< why a drain never evicts it: "it is a static pod"; empty: it may
  bool ends = false;      ///< it is being deleted
  std::optional<NamedOwner> controller = {};  ///< as the pod names it, even if there is none
  /// "gpu-operator/nvidia-vfio-manager-x7k2p".
  std::string text() const { return space.empty() ? name : space + "/" + name; }
  bool operator==(const PodOnNode&) const = default;
};

/// The DaemonSets that are trusted in a pod's ownerReferences. A tenant may name a DaemonSet
/// nvidia-vfio-manager in its own namespace; that must not put Ferry on standby.
struct BelievedOwners {
  std::set<std::string> spaces;  ///< namespaces that tenants cannot write to
  std::string operator_space;    ///< the namespace in `spaces` whose DaemonSets the agent lists; empty: none
  /// UIDs of the DaemonSets in `operator_space`; absent: they are not listed, and a name is enough.
  std::optional<std::set<std::string>> uids = {};
};

/// The trusted owners while no DaemonSets are listed. An empty `operator_space` does not count.
BelievedOwners believed_owners(const std::vector<std::string>& owner_spaces,
                               const std::string& operator_space);

/// State of other programs. Absent: not known.
struct OtherPrograms {
  std::optional<std::vector<PodOnNode>> pods;
  /// Names of the DaemonSets. The operator labels nodes also for operands that are switched off.
  std::optional<std::set<std::string>> daemon_sets;
  /// Time for which `pods` has had no device plugin, in any state.
  std::chrono::seconds unserved{0};
  /// The other programs are expected, since Ferry replaces a single one of them: there is no standby.
  bool are_neighbours = false;
};

struct OtherOwner {
  std::string_view name;  ///< "vfio-manager"
  std::string why;        ///< "its pod gpu-operator/nvidia-vfio-manager-x7k2p is here", "label ... is true"
  std::string_view hand_over;  ///< key in ClusterPolicy's spec that switches it off; empty: none
  bool seen = true;            ///< false: only a label says so, and the DaemonSets are not known
};

/// True for the name of a DaemonSet of NVIDIA's that puts Ferry on standby.
bool is_another_program(std::string_view daemon_set);

/// True if the operator's DaemonSets are among these. A running operator always has some. If there are none,
/// the list is from the wrong namespace and says nothing.
bool are_of_the_operator(const std::set<std::string>& daemon_sets);

/// The programs that own the node's GPUs: vfio-manager, vgpu-device-manager and the device plugins for VMs. A
/// program owns them if its pod is here. It also does if its label is true, or paused by another program, and
/// its DaemonSet exists or is not known: its pod may still start and write.
std::vector<OtherOwner> other_owners(const Labels& labels, const OtherPrograms& others);

/// The change of ClusterPolicy that hands the node over, as a line of YAML: "spec: {vfioManager: {enabled:
/// false}}". Empty: no change would help.
std::string hand_over_text(const std::vector<OtherOwner>& owners);

/// A pod that its DaemonSet replaces is back within this time.
inline constexpr std::chrono::seconds kUnservedPatience{30};

/// True if a pod of one of NVIDIA's device plugins is here, in any state. False also if the pods are not
/// known.
bool has_another_plugin(const OtherPrograms& others);

/// Why Ferry's device plugin goes to standby: a pod of another plugin runs here, and two plugins that
/// register the same resources displace each other. Empty: it serves, since there has been no other for a
/// while. Absent: the last value stays, since the other pod is starting or crash-looping, or the pods are not
/// known.
std::optional<std::string> plugin_is_on_standby(const OtherPrograms& others);

/// "Ferry is on standby: NVIDIA's vfio-manager (its pod ... is here) serves this node; ...", with advice.
std::string standby_because(const std::vector<OtherOwner>& owners);

}  // namespace ferry::agent
