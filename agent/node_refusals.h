// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "agent/node_step.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry::agent {

/// Patches of a Node that the API server refused, as when an admission policy forbids a kind of change. A
/// refused kind is left out for a growing time, since most refusals last until a person acts. The other kinds
/// go on.
class NodeRefusals {
 public:
  using Moment = kube::Timers::Clock::time_point;

  explicit NodeRefusals(kube::Random random) : random_(std::move(random)) {}

  /// The server refused `sent`. The first kind in it that may be the cause is left out.
  void refuse(const NodeStep& sent, const std::string& why, Moment now);
  /// The Node accepted `sent`.
  void take(const NodeStep& sent);
  /// To be called when the Node shows the agent's own labels, or none are to be set.
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

  /// When a kind may be tried again; some times may be over.
  std::vector<Moment> moments() const { return {cordon_.until, labels_.until, notes_.until, own_.until}; }

  /// Removes the annotations for people from `step` while they are refused.
  void leave_out(NodeStep& step, Moment now) const;

 private:
  struct Kind {
    std::string why = {};  ///< empty: accepted since
    Moment until = {};     ///< not tried again before
    kube::Backoff backoff = {};

    std::string now(Moment moment) const { return moment < until ? why : std::string(); }
    void taken() {
      why.clear();
      backoff.reset();
    }
  };
  void refuse(Kind& kind, int pauses, const std::string& why, Moment now);
  bool is_refused_again(const NodeStep& sent) const;

  const kube::Random random_;
  Kind labels_;
  Kind own_;
  Kind cordon_;
  Kind notes_;  ///< its reason is not read
  bool all_ = false;
};

}  // namespace ferry::agent
