// SPDX-License-Identifier: Apache-2.0
// Sends the changes of the Node that a reconcile asks for, and records its events once the Node shows their
// cause. Only one thread may use it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "agent/agent_memory.h"
#include "agent/cluster_watches.h"
#include "agent/reconcile.h"
#include "agent/reconcile_queue.h"
#include "common/result.h"
#include "kube/api_client.h"
#include "kube/backoff.h"
#include "kube/event_recorder.h"
#include "kube/timers.h"

namespace ferry::agent {

class NodePatch {
 public:
  /// Reconciles with the Node as the API server has it now. Absent: the agent ends, and begins no change.
  using Reconcile = std::function<std::optional<ReconcileResult>(const nlohmann::json& node)>;

  /// The references must outlive this object.
  NodePatch(kube::ApiClient& client, kube::Timers& timers, kube::Random random,
            kube::EventRecorder::WallClock wall_clock, std::string node, AgentMemory& memory,
            ClusterWatches& watches, ReconcileQueue& queue, Reconcile reconcile);

  /// A patch whose answer was lost has been applied if `node` shows it: its events are recorded.
  void observe(const nlohmann::json& node);

  /// Sends the patch, or records the events of a result without one. True: a patch is sent, whose answer
  /// schedules the next reconcile.
  bool act(const ReconcileResult& result, const nlohmann::json& node);

  bool is_sending() const { return sending_; }

 private:
  void send(const nlohmann::json& node);
  void not_accepted(const Error& error);
  void accepted(const ReconcileResult& sent);
  void forget_refusals();
  void record(const ReconcileResult& result);
  bool is_news(const NodeEvent& event);

  kube::ApiClient& client_;
  kube::Timers& timers_;
  const kube::Random random_;
  const std::string node_;
  AgentMemory& memory_;
  ClusterWatches& watches_;
  ReconcileQueue& queue_;
  const Reconcile reconcile_;
  kube::EventRecorder events_;
  bool sending_ = false;
  std::optional<ReconcileResult> sent_;  ///< of the patch under way, or whose answer was lost
};

}  // namespace ferry::agent
