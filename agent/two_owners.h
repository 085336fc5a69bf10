// SPDX-License-Identifier: Apache-2.0
// Who else changes or offers the GPUs of this node: where NVIDIA's own programs do, Ferry stands back. Pure.
#pragma once

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
  std::string daemon_set;  ///< whose pod it is; empty: of none
};

/// What is known of other programs. Absent: nobody has looked.
struct OtherPrograms {
  std::optional<std::vector<PodOnNode>> pods;
  /// The DaemonSets there are. The operator labels nodes also for operands that are switched off.
  std::optional<std::set<std::string>> daemon_sets;
  /// They are meant to be there, since Ferry runs in the place of one of them: nobody stands back.
  bool are_neighbours = false;
};

struct OtherOwner {
  std::string_view name;       ///< "vfio-manager"
  std::string why;             ///< "its pod nvidia-vfio-manager-x7k2p runs here", "label ... is true"
  std::string_view hand_over;  ///< the key of ClusterPolicy's spec that switches it off; empty: none does
  bool seen = true;            ///< false: a label alone says it, nobody has looked for its DaemonSet
};

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

/// "Ferry stands back: NVIDIA's vfio-manager (its pod ... is here) serves this node; ...", with how to change
/// that.
std::string stood_back_because(const std::vector<OtherOwner>& owners);

}  // namespace ferry
