// SPDX-License-Identifier: Apache-2.0
// One look at everything, and what is to be done now: the agent's whole mind. Pure. Nothing is remembered
// from look to look that is not on the Node or in files, so that an agent that is killed anywhere and started
// again goes on.
//
// The order of a change, each from a new look: a slot of the cluster's is taken (change_budget.h); the
// operands are paused; once their pods are gone wanted.json is written; hostd says what it does, and what it
// refuses for the sake of pods may have them evicted (drain.h); when that has ended the operands are resumed,
// and the slot is given back.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/change_budget.h"
#include "agent/drain.h"
#include "agent/feature_labels.h"
#include "agent/kata_step.h"
#include "agent/node_events.h"
#include "agent/node_report.h"
#include "agent/node_wish.h"
#include "agent/operands.h"
#include "agent/status_files.h"
#include "agent/two_owners.h"
#include "agent/wish_file.h"
#include "common/config_tree.h"
#include "common/result.h"
#include "policy/kubernetes_files.h"

namespace ferry {

/// All that the agent knows.
struct NodeView {
  NodeObject node;
  std::vector<ConfigText> configs;
  std::vector<Error> unreadable;  ///< why others cannot be had
  /// Why the cluster's objects are known in part only, which permits no change; absent: they are known.
  std::optional<Error> incomplete = {};
  std::vector<std::string> passed_over;  ///< what of them is not looked at, each as a sentence
  WishDefaults defaults;
  OtherPrograms others;
  HostSide host;
  std::optional<ChangeBudget> budget;  ///< absent: nobody counts how many nodes change
  std::optional<DrainView> drain;      ///< absent: whether the Node is cordoned is not ours to say
  std::optional<KataView> kata = {};   ///< absent: which of Kata's runtimes are here is not ours to say
  FeatureWay features = FeatureWay::none;
  /// Why the API server took none of the labels that can wait (below); empty: it may.
  std::string labels_refused = {};
  /// Why it took none of the others, by which it is said what has come of a wish and operands are paused.
  std::string own_refused = {};
  std::chrono::seconds paused{0};  ///< for how long NodeStep::awaits_operands has been so
  std::set<std::string> told;      ///< warnings that events have told
  bool failure_is_news = false;    ///< NodeChange::is_news
};

/// Paused operands, pods of theirs, and a Node that may be labelled, are waited for so long, then a change
/// goes on without.
inline constexpr std::chrono::seconds kPausePatience{120};

struct NodeStep {
  NodeWish wish;
  NodeReport report;
  /// What of the Node is to be changed; what is as it shall be is not in it.
  LabelChanges labels;
  LabelChanges annotations;
  std::optional<bool> unschedulable;  ///< as spec.unschedulable shall be; absent: as it is
  std::vector<NodeEvent> events;
  /// To be written, once the labels are changed. Absent: wanted.json stays, or is to be removed.
  std::optional<WrittenWish> wish_file;
  bool remove_wish_file = false;
  std::vector<StatusFile> files;
  /// What serving.json shall say: why our device plugin offers nothing; empty: it serves, and there is none.
  /// Absent: it stays.
  std::optional<std::string> stand_back;
  std::optional<Labels> feature_file;  ///< what it shall say (feature_file.h); absent: it stays
  std::optional<Labels> node_feature;  ///< what that shall say (node_feature.h); absent: it stays
  bool awaits_operands = false;        ///< wanted.json is not written yet for their sake, or their labels'
  ChangeOutcome outcome = ChangeOutcome::none;  ///< of wanted.json
  bool failure_is_told = false;                 ///< it has failed, and the Leases say that it has
  BudgetStep budget;                            ///< of the GPUs' change
  BudgetStep lease;  ///< what is to be done to Leases, for that or for Kata's runtimes
  KataStep kata;
  std::vector<NodePod> evict;  ///< to be asked to go
  /// When it has to be looked at again though nothing happens.
  std::optional<std::chrono::seconds> drain_left;
  std::string waits_for;  ///< why wanted.json is not written yet, for people; empty: nothing
};

NodeStep node_step(const NodeView& view);

/// What an agent that ends, and begins nothing any more, still does of Leases. The slot of its node is given
/// back, with the verdict if there is one: nobody may come after it, and its silence is no failure of what it
/// was to change to. But one in which something was begun whose outcome is open is kept: another node would
/// change beside this one, by a configuration of which nobody knows yet what it does. The next agent goes on
/// in it; where none comes it is that of one who has gone silent. A pull in the turn is not such a change: it
/// ends with the agent that pulls.
struct LastTurn {
  BudgetStep lease;                        ///< `nothing`: there is none, or it is kept
  std::optional<WantedClasses> kata = {};  ///< to be written before that: `permitted` goes with the turn
};
LastTurn last_turn(const NodeView& view);

/// Whether what is to be changed of the Node has labels by which pods are placed and nothing else is done:
/// those of features, and of Kata's handlers. Where they are refused all else goes on.
bool has_labels_that_can_wait(const NodeStep& step);

/// Whether it has others.
bool has_own_labels(const NodeStep& step);

}  // namespace ferry
