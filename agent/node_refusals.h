// SPDX-License-Identifier: Apache-2.0
// Patches of a Node that the API server refused, as when an admission policy forbids a kind of change.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "agent/operator_compat/operands.h"
#include "api/labels.h"
#include "common/event_loop.h"
#include "common/result.h"
#include "kube/backoff.h"

namespace ferry::agent {

using Moment = EventLoop::Clock::time_point;

/// Changes of a Node, to be sent as a single patch, without values that are right already.
struct NodePatchContent {
  LabelChanges labels = {};
  LabelChanges annotations = {};
  std::optional<bool> unschedulable = {};  ///< new spec.unschedulable; absent: unchanged
  bool operator==(const NodePatchContent&) const = default;

  bool empty() const { return labels.empty() && annotations.empty() && !unschedulable; }
  /// True if only the text of the node's error changes.
  bool is_error_alone() const {
    return labels.empty() && !unschedulable && annotations.size() == 1 &&
           annotations.contains(api::kErrorAnnotation);
  }
  /// True if labels change that only select nodes for pods: feature labels and those of Kata's handlers. If
  /// these are refused, all other changes go on.
  bool has_labels_that_can_wait() const;
  /// True if other labels change.
  bool has_own_labels() const;
};

/// Annotations for people, on which nothing depends.
inline constexpr std::array kNotes = {api::kErrorAnnotation, api::kKataErrorAnnotation};

/// True if the API server understands a request and does not permit it. RBAC and admission policies do so.
bool is_refusal(const Error& error);

/// A refused kind of change is left out for a growing time, since most refusals last until a person acts. The
/// other kinds go on.
class NodeRefusals {
 public:
  /// The server refused `sent`. The first kind in it that may be the cause is left out.
  void refuse(const NodePatchContent& sent, const std::string& why, Moment now, const kube::Random& random);
  /// The Node accepted `sent`.
  void take(const NodePatchContent& sent);
  /// Call this when the Node shows the agent's own labels, or none are to be set.
  void forget_own();

  /// Why the kind is left out now; empty: it is not.
  std::string labels(Moment now) const { return labels_.now(now); }  ///< labels that can wait
  std::string own(Moment now) const { return own_.now(now); }        ///< the other labels
  std::string cordon(Moment now) const { return cordon_.now(now); }
  bool are_notes_left_out(Moment now) const { return now < notes_.until; }
  /// True if neither labels nor annotations are accepted.
  bool is_all_left_out(Moment now) const { return all_ && now < own_.until; }
  /// True if the Node can show that events were recorded.
  bool remembers(Moment now) const { return own_.why.empty() && !are_notes_left_out(now); }
  bool may_forget_own(Moment now) const { return now >= own_.until; }

  /// The time when a kind may be tried again; some times may be over.
  std::vector<Moment> moments() const { return {cordon_.until, labels_.until, notes_.until, own_.until}; }

  /// Removes the annotations for people from `changes` while they are refused.
  void leave_out(NodePatchContent& changes, Moment now) const {
    if (!are_notes_left_out(now)) return;
    for (const char* note : kNotes) changes.annotations.erase(note);
  }

 private:
  struct Kind {
    std::string why = {};  ///< empty: accepted since
    Moment until = {};     ///< not tried again before
    kube::Backoff backoff = {};

    std::string now(Moment moment) const { return moment < until ? why : std::string(); }
    void refuse(int pauses, const std::string& reason, Moment now, const kube::Random& random);
    void taken() {
      why.clear();
      backoff.reset();
    }
  };
  bool is_refused_again(const NodePatchContent& sent) const;

  Kind labels_;
  Kind own_;
  Kind cordon_;
  Kind notes_;  ///< its reason is not read
  bool all_ = false;
};

}  // namespace ferry::agent
