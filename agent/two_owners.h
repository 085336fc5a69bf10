// SPDX-License-Identifier: Apache-2.0
// Who else changes or offers the GPUs of this node: where NVIDIA's own programs do, Ferry stands back. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/operands.h"

namespace ferry {

/// A pod on this node that has not ended.
struct PodOnNode {
  std::string name;
  std::string daemon_set;  ///< a believed DaemonSet (BelievedOwners) that owns it; empty: none does
  std::string space = {};  ///< its namespace
  std::string uid = {};
  bool runs = false;  ///< a container of it has been started, and not ended since
  /// A sentence, with what to do, where the pod names a DaemonSet as one of NVIDIA's is called, and that is
  /// not believed. Empty: it is, or the pod names none.
  std::string doubt = {};
};

/// "gpu-operator/nvidia-vfio-manager-x7k2p".
std::string text(const PodOnNode& pod);

/// The DaemonSets that a pod's ownerReferences are believed of. A tenant may call a DaemonSet
/// nvidia-vfio-manager in a namespace of its own; Ferry must not stand back for that.
struct BelievedOwners {
  std::set<std::string> spaces;  ///< namespaces that tenants cannot write to
  std::string operator_space;    ///< the one of `spaces` whose DaemonSets the agent lists; empty: none
  /// UIDs of the DaemonSets in `operator_space`; absent: they are not listed (yet), and a name is enough.
  std::optional<std::set<std::string>> uids = {};
};

/// What is known of other programs. Absent: nobody has looked.
struct OtherPrograms {
  std::optional<std::vector<PodOnNode>> pods;
  /// The DaemonSets there are. The operator labels nodes also for operands that are switched off.
  std::optional<std::set<std::string>> daemon_sets;
  /// For how long `pods` has had none of a device plugin's, in whatever state.
  std::chrono::seconds unserved{0};
  /// They are meant to be there, since Ferry runs in the place of one of them: nobody stands back.
  bool are_neighbours = false;
};

struct OtherOwner {
  std::string_view name;  ///< "vfio-manager"
  std::string why;        ///< "its pod gpu-operator/nvidia-vfio-manager-x7k2p is here", "label ... is true"
  std::string_view hand_over;  ///< the key of ClusterPolicy's spec that switches it off; empty: none does
  bool seen = true;            ///< false: a label alone says it, nobody has looked for its DaemonSet
};

/// True for the name of a DaemonSet of NVIDIA's for which Ferry stands back.
bool is_another_program(std::string_view daemon_set);

/// Whether the operator's DaemonSets are among these. While it runs it has some, whatever is switched off:
/// where there are none it has been looked for in the wrong place, and that says nothing.
bool are_of_the_operator(const std::set<std::string>& daemon_sets);

/// Those that own GPUs of the node: vfio-manager, vgpu-device-manager and the device plugins for VMs. One
/// does where its pod is here; or where its label is true, or paused by others than us, and its DaemonSet is
/// there or nobody has looked. A pod that is still to come is one that will write.
std::vector<OtherOwner> other_owners(const Labels& labels, const OtherPrograms& others);

/// What ClusterPolicy must say for them to hand over, as a line of YAML: "spec: {vfioManager: {enabled:
/// false}}". Empty where no line would help.
std::string hand_over_text(const std::vector<OtherOwner>& owners);

/// A DaemonSet's pod that is replaced is back sooner.
inline constexpr std::chrono::seconds kUnservedPatience{30};

/// Whether a pod of one of NVIDIA's device plugins is here, in whatever state. False also where nobody has
/// looked.
bool has_another_plugin(const OtherPrograms& others);

/// Why our device plugin shall offer nothing: a pod of another runs here, and two that register the same
/// resources displace each other. Empty: it shall serve, for there has been none for a while. Absent: what
/// was said before stands, for a pod that is still to start, or starts over and over, may serve nobody and
/// may serve in a moment; or nobody has looked.
std::optional<std::string> plugin_stands_back(const OtherPrograms& others);

/// "Ferry stands back: NVIDIA's vfio-manager (its pod ... is here) serves this node; ...", with how to change
/// that.
std::string stood_back_because(const std::vector<OtherOwner>& owners);

}  // namespace ferry
