// SPDX-License-Identifier: Apache-2.0
// Asks the API server for the DaemonSets that pods name as their owners, as `kubectl drain` does. Any tenant
// may write an owner into a pod, and a drain leaves the pods of DaemonSets alone.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agent/drain.h"
#include "kube/api_client.h"
#include "kube/timers.h"

namespace ferry {

/// For one thread. While no relevant pod names a DaemonSet, there is neither a request nor a timer.
class NamedDaemonSets {
 public:
  /// `changed` is called, never from within a call, when kept_because() may differ or ask() is due. The
  /// references must outlive this object.
  NamedDaemonSets(ApiClient& client, Timers& timers, std::function<void()> changed);
  NamedDaemonSets(const NamedDaemonSets&) = delete;
  NamedDaemonSets& operator=(const NamedDaemonSets&) = delete;
  NamedDaemonSets(NamedDaemonSets&&) = delete;
  NamedDaemonSets& operator=(NamedDaemonSets&&) = delete;
  ~NamedDaemonSets();

  /// Asks for the owners that were not asked for lately, and forgets all others.
  void ask(const std::set<NamedOwner>& owners);

  /// Why a pod of this owner is not evicted: the DaemonSet exists, or its absence is not confirmed yet.
  /// Empty: the pod's namespace has no DaemonSet of that name and UID.
  std::string kept_because(const NamedOwner& owner) const;

 private:
  using Moment = Timers::Clock::time_point;
  struct Asked {
    std::optional<ApiClient::Call> call = {};
    Moment again = {};
    std::optional<bool> exists = {};  ///< absent: the server has not answered
    std::string trouble = {};         ///< error of the last request
  };

  void ask_for(const NamedOwner& owner, Asked& asked);
  void answered(const NamedOwner& owner, Asked& asked, const Result<nlohmann::json>& object);

  ApiClient& client_;
  Timers& timers_;
  const std::function<void()> changed_;
  std::map<NamedOwner, Asked> asked_;
  Timers::Timer timer_;
};

}  // namespace ferry
