// SPDX-License-Identifier: Apache-2.0
// Kata's runtimes as a node comes to them: what kata-classes.json shall say (wanted_classes.h), what is to be
// pulled, and what people are told. Pure.
//
// The order, each from a new look: the classes are written down; what hostd says is missing is pulled; what
// it says is waiting needs a turn (node_turn.h), and with the turn `permitted` is written, in a generation of
// its own, so that hostd's answer is one to that; when it has ended `permitted` is taken back, and then the
// turn is given back. What leaves loses its label first, and is `unlabelled` once the API server says so.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/change_budget.h"
#include "agent/kata_wish.h"
#include "agent/node_events.h"
#include "agent/node_report.h"
#include "kata-manager/class_file.h"
#include "kata-manager/wanted_classes.h"

namespace ferry {

struct PullState {
  std::string error;   ///< of the last try; empty: none, or it was well
  bool rests = false;  ///< it is not tried again just now
};

struct KataView {
  KataSource source;
  std::map<std::string, PullState> pulls;  ///< by class
  std::string unwritable = {};             ///< why kata-classes.json could not be written; empty: it could
  bool pulls_no_more = false;              ///< the agent ends: what is to be pulled stays missing
};

/// A class whose files are to be fetched.
struct PullOrder {
  ClassFile file;
  KataClass kata;
  std::string configuration;  ///< kata_configuration_id() of the file: another one may be tried at once
};

/// All but what depends on the turn.
struct KataPlan {
  KataWish wish;
  /// As kata-classes.json shall be, with `permitted` as it is; absent: there is none, and none is to be.
  std::optional<WantedClasses> next;
  std::optional<ClassFile> file;  ///< what `next` carries; absent: it cannot be read
  bool answered = false;          ///< hostd has read what `next` says
  NodeChange change;              ///< for the turn
};

struct KataStep {
  std::optional<WantedClasses> file;  ///< to be written; absent: it stays
  std::vector<PullOrder> pulls;       ///< in this order; what is pulled and not among them is stopped
  /// How long hostd is given to answer; absent: nothing is awaited of it.
  std::optional<std::chrono::seconds> awaited;
  bool awaits_kubelet = false;  ///< it is to list a handler, for at most kListPatience
  std::string trouble;          ///< one line of at most kMostTold bytes; empty: nothing
  std::vector<NodeEvent> events;
};

KataPlan kata_plan(const NodeObject& node, const HostSide& host, const KataView& view,
                   const ChangeBudget* budget);

/// `turn`: what has come of KataPlan::change.
KataStep kata_step(const NodeObject& node, const HostSide& host, const KataView& view, const KataPlan& plan,
                   const BudgetStep& turn);

/// A kubelet asks its container runtime every few seconds, and tells of it with the next status of the node.
/// What it does not list for longer it does not get: it has another container runtime than the one that hostd
/// has changed. No label is set, the turn is given back as failed, so that no other node begins, and people
/// are told.
inline constexpr std::chrono::seconds kListPatience{120};

/// Those of `handlers` that the kubelet lists too (status.runtimeHandlers, where it exists); all of them
/// where it lists none. One that it lacks is of another container runtime than its own, or too new.
std::set<std::string> known_to_kubelet(const NodeObject& node, const std::set<std::string>& handlers);
/// The others.
std::set<std::string> unknown_to_kubelet(const NodeObject& node, const std::set<std::string>& handlers);

/// The handlers that the node shall have a label for. One that hostd was told to have none is first taken off
/// what it was told.
std::set<std::string> labelled_handlers(const NodeObject& node, const HostSide& host);

}  // namespace ferry
