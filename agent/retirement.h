// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry {

/// The end of all of a cluster's agents, while they have their rights: their DaemonSet is removed behind its
/// pods (propagationPolicy Foreground). An agent that is told to end lets come back whom it keeps away, and
/// uncordons; whoever takes its rights first keeps it from that (docs/adr/0027).
///
/// One that Helm has not installed stays: who renders the chart and applies what comes of it, the Job that is
/// for its end included, does not mean that.
///
/// One thread.
class Retirement {
 public:
  /// Transport, client and timers must outlive this. `ended` is called once, and must not destroy this:
  /// success when there is no such DaemonSet, or none of Helm's; Errc::stuck when there still is after
  /// `patience`; what the server has against it. That it is forbidden counts only then, for the right to it
  /// is as young as who asks.
  Retirement(ApiTransport& transport, ApiClient& client, Timers& timers, Random random, ObjectRef daemon_set,
             std::chrono::seconds patience, std::function<void(Result<>)> ended);
  Retirement(const Retirement&) = delete;
  Retirement& operator=(const Retirement&) = delete;
  Retirement(Retirement&&) = delete;
  Retirement& operator=(Retirement&&) = delete;
  ~Retirement();

  /// Errc::usage: no object can be called so.
  Result<> begin();

 private:
  void look();
  void remove();
  void give_up();
  void end(Result<> how);

  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  const ObjectRef daemon_set_;
  const std::chrono::seconds patience_;
  std::function<void(Result<>)> ended_;  ///< empty once it has been called
  ObjectWatch watch_;
  std::string removed_;           ///< the UID of the one that we have asked to be removed
  std::optional<Error> refusal_;  ///< what the server has had against that
  std::optional<ApiClient::Call> call_;
  Backoff backoff_;
  Timers::Timer again_;
  Timers::Timer deadline_;
};

}  // namespace ferry
