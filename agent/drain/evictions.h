// SPDX-License-Identifier: Apache-2.0
// Evicts the pods that drain.h selects, and repeats an eviction that does not succeed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/drain/drain.h"
#include "agent/node_refusals.h"
#include "common/pinned.h"
#include "kube/api_client.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry::agent {

/// Only one thread may use it. Without pods to evict there is neither a request nor a timer.
class Evictions : Pinned {
 public:
  /// `changed` is called, never from within a call, when refused() may differ or act() is due. The references
  /// must outlive this object.
  Evictions(kube::ApiClient& client, kube::Timers& timers, kube::Random random,
            std::function<void()> changed);
  ~Evictions();

  /// Forgets all pods that are not in `pods`. Their evictions are cancelled: a request under way may still
  /// succeed, but is not repeated. Starts no eviction.
  void leave_out_others(const std::vector<PodOnNode>& pods);

  /// The same; also evicts each of `pods` whose last eviction is long enough ago.
  void act(const std::vector<PodOnNode>& pods);

  /// Why further evictions are useless; empty: they are not. Cleared once there is no pod to evict.
  const std::string& refused() const { return refused_; }

  /// Why pods were not evicted at their last try, an entry for each pod: a disruption budget, a webhook, an
  /// admission policy.
  std::vector<std::string> delayed() const;

 private:
  struct Asked {
    std::optional<kube::ApiClient::Call> call;
    Moment again;
    kube::Backoff backoff;
    std::string why;  ///< reason of the last failure
  };

  void ask(const PodOnNode& pod, Asked& asked);
  void answered(const PodOnNode& pod, Asked& asked, Result<kube::Eviction> eviction);

  kube::ApiClient& client_;
  kube::Timers& timers_;
  const kube::Random random_;
  const std::function<void()> changed_;
  std::map<std::string, Asked> asked_;  ///< by UID
  /// Reasons by UID. They outlast leave_out_others(): the reason of a drain's end is written after that call
  /// and before act().
  std::map<std::string, std::string> delays_;
  std::optional<Moment> refused_since_;
  std::string refused_;
  kube::OwnedTimer timer_;
};

}  // namespace ferry::agent
