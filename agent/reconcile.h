// SPDX-License-Identifier: Apache-2.0
// A single reconcile: from a snapshot of all known state to the actions that are due, the node's conditions,
// and the time of the next reconcile. Pure, but for the cache of parsed policies (written_policy.h). State
// between two reconciles is on the Node or in files, so that an agent continues after a crash at any point.
// The snapshot has the rest (agent_memory.h).
//
// Each step of a change needs a reconcile of its own. First a rollout lease is taken (rollout.h) and
// the operands are paused. Once their pods have ended, desired.json is written. If hostd refuses for the sake
// of pods, these may be evicted (drain.h). At the end the operands are resumed, and the lease is given back.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/agent_memory.h"
#include "agent/desired_state/desired_state.h"
#include "agent/desired_state/written_policy.h"
#include "agent/drain/drain.h"
#include "agent/kata/kata_step.h"
#include "agent/labels/feature_labels.h"
#include "agent/node_report.h"
#include "agent/operator_compat/operands.h"
#include "agent/operator_compat/two_owners.h"
#include "agent/rollout/rollout.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "policy/kubernetes_files.h"

namespace ferry::agent {

/// The snapshot for a reconcile.
struct NodeSnapshot {
  policy::NodeObject node;
  std::vector<ConfigText> configs;
  std::vector<Error> unreadable;  ///< errors of configurations that cannot be fetched
  /// Why the cluster's objects are known only in part, which permits no change; absent: they are known.
  std::optional<Error> incomplete = {};
  std::vector<std::string> passed_over;  ///< a sentence for each ignored part of them
  DesiredDefaults defaults;
  OtherPrograms others;
  HostSide host;
  std::optional<Rollout> rollout;         ///< absent: any number of nodes may change
  std::optional<DrainSnapshot> drain;     ///< absent: the agent does not manage the cordon
  std::optional<KataSnapshot> kata = {};  ///< absent: the agent does not manage Kata's runtimes
  /// When Kata's ConfigMap counts as missing although the API server has not said so; absent: it is listed,
  /// or the server has reported no error.
  std::optional<Moment> kata_given_up_at = {};
  FeatureWay features = FeatureWay::none;
  bool not_confidential = false;   ///< feature_labels()
  bool sets_cc_mode = false;       ///< AgentSettings::sets_cc_mode
  std::chrono::seconds paused{0};  ///< time since ReconcileResult::awaits_operands
  AgentMemory memory = {};
  Moment now = {};
};

/// The next reconcile without an event.
struct Requeue {
  EventLoop::Clock::duration after{};
  std::string_view reason;  ///< the deadline that no watch reports
};

struct ReconcileResult : NodePatchContent {
  DesiredState desired_state;
  NodeReport report;  ///< the node's conditions
  /// The changes are sent; desired.json and the evictions wait for the answer. False with changes: they are
  /// held, since others have reverted or refused them, or the error's text has just changed.
  bool sends_patch = false;
  std::vector<NodeEvent> events;
  bool record_events = true;  ///< false: the Node has to show their cause first
  /// The new desired.json, to be written after the labels. Absent: the present one stays, or is removed.
  std::optional<api::DesiredFile> desired_file;
  bool remove_desired_file = false;
  /// Content of serving.json: why Ferry's device plugin is on standby; empty: it serves, and there is no
  /// file. Absent: the file stays.
  std::optional<std::string> standby;
  std::optional<Labels> node_feature;  ///< labels of the NodeFeature (node_feature.h); absent: they stay
  bool awaits_operands = false;        ///< desired.json waits for operands, or for their labels
  RolloutStep rollout;                 ///< for the GPUs' change
  RolloutStep lease;                   ///< write to a Lease, for the GPUs or for Kata's runtimes
  KataStep kata;
  std::vector<PodOnNode> evict;                    ///< to be evicted
  std::optional<std::chrono::seconds> drain_left;  ///< until the drain's time limit; absent: no drain runs
  std::string waits_for;           ///< why desired.json is not written yet, for people; empty: no reason
  ChangeMemory change_memory;      ///< for the next snapshot
  std::optional<Requeue> requeue;  ///< absent: only an event leads to the next reconcile
};

ReconcileResult reconcile(const NodeSnapshot& snapshot);

/// The last write to the Leases by an agent that ends and begins no change. It gives back the node's rollout
/// lease, with the result if there is one. If no agent follows, the silence must not count as a failure of
/// the configuration. A lease with a change in progress is kept: another node must not begin with a
/// configuration whose result is unknown. The next agent continues the change; without one, the holder counts
/// as silent. A pull is no change in this sense: it ends with its agent.
struct LastLease {
  RolloutStep lease;                              ///< `nothing`: there is no lease, or it is kept
  std::optional<kata::DesiredClasses> kata = {};  ///< to be written first, without `permitted`
};
LastLease last_lease(const NodeSnapshot& snapshot);

}  // namespace ferry::agent
