// SPDX-License-Identifier: Apache-2.0
// Pods that keep the GPUs from what is asked for are evicted, the node being cordoned meanwhile. Pure; time
// is handed in.
//
// It begins where hostd has refused the wish, nothing but its holders stands in the way, and each of them is
// a pod that may be evicted; and where it is this node's turn (change_budget.h). It ends when hostd goes on,
// when something else is asked for, or when its time is up: then not again for that wish. While hostd does
// not run none begins and nobody is asked; one that was begun is undone after a while, and begins again with
// hostd. The Node itself is the memory, so that whoever comes after a crash goes on, or undoes it.
//
// Nothing is ever deleted: an eviction asks, and disruption budgets and KubeVirt answer.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/change_budget.h"
#include "agent/node_events.h"
#include "agent/node_report.h"
#include "agent/node_wish.h"
#include "agent/operands.h"
#include "policy/kubernetes_files.h"

namespace ferry {

/// The DaemonSet that a pod names as its controller. Any tenant may write that into a pod.
struct NamedOwner {
  std::string space;  ///< the pod's namespace: an owner is in no other
  std::string name;
  std::string uid;
  std::string text() const { return space + "/" + name; }
  auto operator<=>(const NamedOwner&) const = default;
};

/// A pod on this node that has not ended.
struct NodePod {
  std::string space;
  std::string name;
  std::string uid;
  std::string kept = {};  ///< why it is never evicted: "it is of DaemonSet x"; empty: it may be
  bool ends = false;      ///< it has been told to
  std::optional<NamedOwner> daemon_set = {};  ///< that it names, whether there is one or not
  std::string text() const { return space + "/" + name; }
  bool operator==(const NodePod&) const = default;
};

/// What is known beside the wish and the host.
struct DrainView {
  /// For how long pods are evicted; absent: nobody is, and what was begun is undone.
  std::optional<std::chrono::seconds> timeout;
  bool cordoned = false;                     ///< the Node is, by whomever
  std::optional<std::vector<NodePod>> pods;  ///< absent: they cannot be seen
  std::string eviction_refused = {};         ///< why the API server takes no eviction of ours; empty: it may
  std::vector<std::string> delayed = {};     ///< why evictions were answered with "not now"
  std::string cordon_refused = {};           ///< why it did not let us cordon or uncordon; empty: it may
  std::chrono::system_clock::time_point now;
};

/// What the host's answer calls for, before anybody asks whether it is this node's turn.
struct DrainNeed {
  enum class Kind {
    nothing,  ///< what was begun is undone
    stays,    ///< hostd is at it: what was begun stays as it is
    evict,    ///< pods are to be evicted: a turn is needed
    over,     ///< it has failed, and is not tried again for this wish
  };
  Kind kind = Kind::nothing;
  std::uint64_t generation = 0;  ///< of wanted.json; of `evict` and `over`
  bool begun = false;            ///< the Node shows it
  std::vector<NodePod> pods;     ///< of `evict`: those that have not been told to end
  std::string why;               ///< of `over`; of `nothing`, why pods are not evicted; empty: none need be
  std::chrono::seconds left{0};  ///< of `evict`, once begun
  bool keeps_failure = false;    ///< that it has failed is remembered: it is the same wish
};

/// The DaemonSets that pods name which keep GPUs from what is asked for.
std::set<NamedOwner> owners_in_the_way(const HostSide& host, const std::vector<NodePod>& pods);

DrainNeed drain_need(const NodeObject& node, const NodeWish& wish, const HostSide& host,
                     const DrainView& view);

struct DrainStep {
  LabelChanges annotations;           ///< what they shall be
  std::optional<bool> unschedulable;  ///< what spec.unschedulable shall be; absent: as it is
  std::vector<NodePod> evict;         ///< to be asked to go now; the Node shows why
  std::vector<NodeEvent> events;
  DrainReport report;
  std::optional<std::chrono::seconds> left;  ///< until it has to be looked at again
};

/// For who leaves the node: what was begun here is begun anew by the next one, if it shall be at all.
DrainStep drain_undone(const NodeObject& node, bool cordoned);

DrainStep drain_step(const NodeObject& node, const NodeWish& wish, const DrainView& view,
                     const DrainNeed& need, const BudgetStep& budget);

}  // namespace ferry
