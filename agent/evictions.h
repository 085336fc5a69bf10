// SPDX-License-Identifier: Apache-2.0
// Inside this room: pods are asked to go, again and again while something stands against it; which ones
// drain.h says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/drain.h"
#include "kube/api_client.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry {

/// One thread. While there is nobody to be asked there is no request under way and no timer.
class Evictions {
 public:
  /// `changed` is called, never from within a call, when refused() may be another, or time has come for
  /// act(). What is named here must outlive this.
  Evictions(ApiClient& client, Timers& timers, Random random, std::function<void()> changed);
  Evictions(const Evictions&) = delete;
  Evictions& operator=(const Evictions&) = delete;
  Evictions(Evictions&&) = delete;
  Evictions& operator=(Evictions&&) = delete;
  ~Evictions();

  /// Who is not among them is no longer asked, and forgotten; a request of theirs that is under way, and may
  /// be tried again, is not. Nobody is asked anew.
  void leave_out_others(const std::vector<NodePod>& pods);

  /// The same, and those among them that have not been asked lately are.
  void act(const std::vector<NodePod>& pods);

  /// Why asking again is no use; empty: it may be some. Forgotten once there is nobody to be asked.
  const std::string& refused() const { return refused_; }

  /// Why pods were not evicted when they were last asked for, by pod: a disruption budget, a webhook, a
  /// policy.
  std::vector<std::string> delayed() const;

 private:
  using Moment = Timers::Clock::time_point;
  struct Asked {
    std::optional<ApiClient::Call> call;
    Moment again;
    Backoff backoff;
    std::string why;  ///< what stood against it last
  };

  void ask(const NodePod& pod, Asked& asked);
  void answered(const NodePod& pod, Asked& asked, Result<Eviction> eviction);
  void forget(Asked& asked);
  void wait();

  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  const std::function<void()> changed_;
  std::map<std::string, Asked> asked_;  ///< by UID
  /// Reasons by UID. They outlast leave_out_others(): the reason of a drain's end is written between that and
  /// act().
  std::map<std::string, std::string> delays_;
  std::optional<Moment> refused_since_;
  std::string refused_;
  Timers::Timer timer_;
};

}  // namespace ferry
