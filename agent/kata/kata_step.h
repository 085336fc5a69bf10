// SPDX-License-Identifier: Apache-2.0
// The reconcile of a node's Kata runtimes: the new kata-classes.json (desired_classes.h), the pulls, and the
// messages for people. Pure.
//
// Order, with a reconcile for each step: the classes are written; artifacts that hostd reports as missing are
// pulled; a handler that hostd reports as pending needs a rollout lease (share_lease()). With the lease
// `permitted` is written in a generation of its own, so that hostd's answer belongs to it. After the change
// `permitted` is taken back, then the lease. A handler to remove loses its label first, and is `unlabelled`
// once the Node shows it.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/node_report.h"
#include "agent/operator_compat/operands.h"
#include "agent/rollout/rollout.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/desired_classes.h"

namespace ferry::agent {

// The desired Kata runtimes of a node, from the class file in a ConfigMap. Pure.

/// The ConfigMap with the class file, as far as it is known.
struct KataSource {
  std::string name;      ///< "ConfigMap gpus/ferry-kata-classes"
  bool is_known = true;  ///< false: it is not listed yet
  std::vector<ConfigText> texts = {};
  std::string trouble = {};  ///< why it cannot be read; empty: it can
};

/// `config`, `source` and `classes` of the node's kata-classes.json, the classes in the file's order. A class
/// applies to nodes that have all labels of its nodeSelector; without one it applies to all nodes. Absent:
/// the source is not known yet. Errors: why it does not count; the last desired state stays.
///
/// A missing, empty, truncated or unreadable class file changes nothing. All runtimes are removed only by a
/// file that says so: `runtimeClasses: []`.
Result<std::optional<kata::DesiredClasses>> desired_runtimes(const KataSource& source, const Labels& labels);

struct PullState {
  std::string error;   ///< of the last try; empty: none
  bool rests = false;  ///< not to be tried now
};

struct KataSnapshot {
  KataSource source;
  std::map<std::string, PullState> pulls;  ///< by class
  std::string unwritable = {};             ///< why kata-classes.json could not be written; empty: it could
  bool pulls_no_more = false;              ///< the agent ends: missing artifacts stay missing
};

/// A class whose artifacts are to be pulled.
struct PullOrder {
  kata::ClassFile file;
  kata::KataClass kata;
  std::string configuration;  ///< kata_configuration_id() of the file; a new one is tried at once
  bool waits = false;         ///< for the rollout lease: it is not to run now
};

/// The part of the step that does not depend on the rollout lease.
struct KataPlan {
  std::string trouble;  ///< why the source does not count, for people; empty: it does, or is not known yet
  /// The new kata-classes.json, with `permitted` as in the present one; absent: there is none and needs to be
  /// none.
  std::optional<kata::DesiredClasses> next;
  std::optional<kata::ClassFile> file;  ///< class file in `next`; absent: it cannot be read
  bool answered = false;                ///< hostd has read the generation of `next`
  NodeChange change;                    ///< for the rollout lease
};

struct KataStep {
  std::optional<kata::DesiredClasses> file;  ///< new kata-classes.json; absent: unchanged
  /// All classes whose artifacts are missing, in the order of their pulls.
  std::vector<PullOrder> pulls;
  /// Time limit of hostd's answer; absent: no answer is expected.
  std::optional<std::chrono::seconds> awaited;
  bool awaits_kubelet = false;  ///< the kubelet has yet to list a handler, for at most kListPatience
  std::string trouble;          ///< a line of at most kMostReported bytes; empty: none
  std::vector<NodeEvent> events;
};

KataPlan kata_plan(const policy::NodeObject& node, const HostSide& host, const KataSnapshot& snapshot,
                   const Rollout* rollout);

/// `rollout_step`: the rollout's answer to KataPlan::change.
KataStep kata_step(const policy::NodeObject& node, const HostSide& host, const KataSnapshot& snapshot,
                   const KataPlan& plan, const RolloutStep& rollout_step);

/// Time limit for the kubelet to list a ready handler. The kubelet asks its container runtime every few
/// seconds, and reports with the node's next status. After the limit it must use another container runtime
/// than hostd changed. Then no label is set, an event is recorded, and the rollout lease is given back as
/// failed, so that no other node begins.
inline constexpr std::chrono::seconds kListPatience{120};

/// The part of `handlers` that the kubelet lists too (status.runtimeHandlers); all of them if it lists none,
/// as an old kubelet does. A handler that it lacks is too new, or belongs to another container runtime.
std::set<std::string> known_to_kubelet(const policy::NodeObject& node, const std::set<std::string>& handlers);
/// The handlers that known_to_kubelet() leaves out.
std::set<std::string> unknown_to_kubelet(const policy::NodeObject& node,
                                         const std::set<std::string>& handlers);

/// The handlers that get a label. A handler in `unlabelled` is taken off that list before it gets one.
std::set<std::string> labelled_handlers(const policy::NodeObject& node, const HostSide& host);

}  // namespace ferry::agent
