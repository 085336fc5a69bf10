// SPDX-License-Identifier: Apache-2.0
// The end of an agent that has got SIGTERM. No change begins any more. Once hostd has ended its change or
// stopped, the agent undoes its own changes that no other program would undo: it resumes operands, uncordons
// the node, and gives back the node's rollout lease (LastLease). Only one thread may use it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "agent/agent_memory.h"
#include "agent/cluster_watches.h"
#include "agent/drain/evictions.h"
#include "agent/host_observer.h"
#include "agent/node_patch.h"
#include "agent/reconcile.h"
#include "agent/reconcile_queue.h"
#include "agent/rollout/rollout_leases.h"
#include "common/event_loop.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kube/api_client.h"
#include "kube/timers.h"

namespace ferry::agent {

class Shutdown {
 public:
  /// The parts of the agent that it needs; all must outlive it.
  struct Parts {
    std::string node;
    HostFs& host;
    kube::Timers& timers;
    kube::ApiClient& client;
    ReconcileQueue& queue;
    HostObserver& observer;
    ClusterWatches& watches;
    NodePatch& patch;
    Evictions& evictions;
    RolloutLeases* leases;  ///< null: no lease is needed
    std::function<NodeSnapshot(const nlohmann::json& node)> observe;
  };

  /// `ended` runs once: at once if there is nothing to do, after a minute at the latest, also without an
  /// answer of the API server.
  Shutdown(Parts parts, EventLoop::Job ended);

  /// Does all that is due now. To be called instead of a reconcile.
  void act();

 private:
  void undo(bool with_cordon);
  void give_lease_back(const nlohmann::json& node);
  void keep_lease(const std::string& why);
  void end();

  const Parts parts_;
  EventLoop::Job ended_;  ///< empty once called
  const Moment deadline_;
  OwnedTimer timer_;
  bool is_undoing_ = false;
  bool is_undone_ = false;  ///< undo() is done, or has failed
};

}  // namespace ferry::agent
