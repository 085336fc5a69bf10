// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "agent/node_step.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry {

/// What the API server has refused of the changes of a Node, as an admission policy may be against one kind
/// of them. Each kind is left out for a while that grows (for what is refused is mostly refused until a
/// person acts), and the others go on.
class NodeRefusals {
 public:
  using Moment = Timers::Clock::time_point;

  explicit NodeRefusals(Random random) : random_(std::move(random)) {}

  /// `sent` has been refused, for what it has of the first kind that may be the cause.
  void refuse(const NodeStep& sent, const std::string& why, Moment now);
  /// The Node has taken `sent`.
  void take(const NodeStep& sent);
  /// The Node shows our own labels, or there are none to be said.
  void forget_own();

  /// Why they are left out now; empty: they are not.
  std::string labels(Moment now) const { return labels_.now(now); }  ///< those that can wait
  std::string own(Moment now) const { return own_.now(now); }        ///< the other labels
  std::string cordon(Moment now) const { return cordon_.now(now); }
  bool are_notes_left_out(Moment now) const { return now < notes_.until; }
  /// Nothing at all is taken: neither labels nor annotations.
  bool is_all_left_out(Moment now) const { return all_ && now < own_.until; }
  /// Whether the Node would remember what it is told.
  bool remembers(Moment now) const { return own_.why.empty() && !are_notes_left_out(now); }
  bool may_forget_own(Moment now) const { return now >= own_.until; }

  /// When something of it may be tried again; some of them are over.
  std::vector<Moment> moments() const { return {cordon_.until, labels_.until, notes_.until, own_.until}; }

  /// Takes from `step` what is wrong with the node, which it does not take now.
  void leave_out(NodeStep& step, Moment now) const;

 private:
  struct Kind {
    std::string why = {};  ///< empty: it has been taken since
    Moment until = {};     ///< before that it is not tried again
    Backoff backoff = {};

    std::string now(Moment moment) const { return moment < until ? why : std::string(); }
    void taken() {
      why.clear();
      backoff.reset();
    }
  };
  void refuse(Kind& kind, int pauses, const std::string& why, Moment now);
  bool is_refused_again(const NodeStep& sent) const;

  const Random random_;
  Kind labels_;
  Kind own_;
  Kind cordon_;
  Kind notes_;  ///< its reason nobody asks for
  bool all_ = false;
};

}  // namespace ferry
