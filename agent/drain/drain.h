// SPDX-License-Identifier: Apache-2.0
// Evicts pods whose GPUs a change needs, with the node cordoned meanwhile. Pure; the time is a parameter.
//
// A drain begins if hostd has refused the desired state for its device users alone, and each of them is a pod
// that may be evicted, or of an operand that the agent pauses meanwhile. It also needs a rollout lease
// (rollout.h). It ends when hostd goes on, when the desired state changes, or at the timeout, which excludes
// another drain for the same desired state. While hostd is down no drain begins and no pod is evicted; a
// running drain is undone after a while, and begins anew with hostd. All state is on the Node, so that an
// agent continues or undoes the drain after a crash.
//
// Pods are evicted, never deleted: disruption budgets and KubeVirt may refuse or delay an eviction.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/desired_state/desired_state.h"
#include "agent/node_refusals.h"
#include "agent/node_report.h"
#include "agent/operator_compat/operands.h"
#include "agent/operator_compat/two_owners.h"
#include "agent/rollout/rollout.h"
#include "policy/kubernetes_files.h"

namespace ferry::agent {

/// Input of a drain, beside the desired state and the host.
struct DrainSnapshot {
  /// Time limit of a drain; absent: no pod is evicted, and a drain that has begun is undone.
  std::optional<std::chrono::seconds> timeout;
  bool cordoned = false;  ///< the Node is cordoned, by any program or person
  /// OtherPrograms::pods, with PodOnNode::kept for DaemonSets too; absent: they cannot be listed.
  std::optional<std::vector<PodOnNode>> pods;
  std::string eviction_refused = {};      ///< why the API server refuses evictions; empty: it does not
  std::vector<std::string> delayed = {};  ///< why the last evictions were delayed
  std::string cordon_refused = {};        ///< why the API server refuses to (un)cordon; empty: it does not
  std::chrono::system_clock::time_point now;
  /// Time since the start of the drain on the Node, by a clock that is never set; absent: `now` counts.
  std::optional<std::chrono::seconds> lasted = {};
};

/// The drain that the host status calls for, before the rollout lease is considered.
struct DrainNeed {
  enum class Kind {
    nothing,  ///< undo a drain that has begun
    stays,    ///< hostd works: leave a drain as it is
    evict,    ///< evict pods, which needs a rollout lease
    over,     ///< failed, and not repeated for this desired state
  };
  Kind kind = Kind::nothing;
  std::uint64_t generation = 0;  ///< of desired.json; of `evict` and `over`
  bool begun = false;            ///< the Node shows the drain
  std::vector<PodOnNode> pods;   ///< of `evict`: pods that are not being deleted yet
  std::string why;               ///< of `over`; of `nothing`, why pods are not evicted; empty: none need be
  std::chrono::seconds left{0};  ///< of `evict`, once begun
  bool keeps_failure = false;    ///< the failure stays recorded: the desired state is the same
};

/// The DaemonSets that pods with refused GPUs name as their controllers.
std::set<NamedOwner> owners_in_the_way(const HostSide& host, const std::vector<PodOnNode>& pods);

/// `operands`: UIDs of the pods that end once their operands are paused.
DrainNeed drain_need(const policy::NodeObject& node, const DesiredState& desired_state, const HostSide& host,
                     const DrainSnapshot& snapshot, const std::set<std::string>& operands);

struct DrainStep {
  LabelChanges annotations;           ///< new values
  std::optional<bool> unschedulable;  ///< new spec.unschedulable; absent: unchanged
  std::vector<PodOnNode> evict;       ///< to be evicted now; the Node shows the drain already
  std::vector<NodeEvent> events;
  DrainReport report;
  std::optional<std::chrono::seconds> left;  ///< time until the next reconcile; absent: none is needed
};

/// Undoes the drain of an agent that ends. The next agent begins it anew if it is still needed.
NodePatchContent drain_undone(const policy::NodeObject& node, bool cordoned);

DrainStep drain_step(const policy::NodeObject& node, const DesiredState& desired_state,
                     const DrainSnapshot& snapshot, const DrainNeed& need, const RolloutStep& rollout);

}  // namespace ferry::agent
