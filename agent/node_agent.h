// SPDX-License-Identifier: Apache-2.0
// The agent's control loop. A change of the Node, a configuration, NVIDIA's pods or hostd's files starts a
// reconcile (reconcile.h), and so does a timer. The loop observes the cluster and the host, performs the
// actions that the reconcile returns, and waits for the next event or deadline. Each action starts the next
// reconcile.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "agent/agent_memory.h"
#include "agent/agent_settings.h"
#include "agent/cluster_objects.h"
#include "agent/cluster_watches.h"
#include "agent/drain/evictions.h"
#include "agent/host_observer.h"
#include "agent/kata/artifact_pulls.h"
#include "agent/labels/node_feature.h"
#include "agent/node_patch.h"
#include "agent/reconcile.h"
#include "agent/reconcile_queue.h"
#include "agent/rollout/rollout_leases.h"
#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "kube/api_client.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/event_recorder.h"
#include "kube/timers.h"

namespace ferry::agent {

/// Only one thread may use it. When idle it has an open watch for the Node, for each configuration, for the
/// pods on the node and for the DaemonSets of NVIDIA's operator. It has no timer except the watches' own.
/// While the node changes, or waits for a rollout lease, it also watches the Leases. FeatureWay::nfd adds a
/// watch for its NodeFeature, and another for the owner if that is not the Node. Pods are watched where there
/// may be an operator, or where pods may be evicted; the ConfigMap with Kata's classes where one is named.
class NodeAgent : Pinned {
 public:
  /// The references must outlive this object.
  NodeAgent(HostFs& host, kube::ApiTransport& transport, kube::Timers& timers, const kube::Random& random,
            kube::EventRecorder::WallClock wall_clock, AgentSettings settings);

  /// Errc::usage: a name that no object can have.
  Result<> begin();

  /// Call this when a file shared with hostd may have changed, or hostd may have started or stopped.
  void host_changed() { observer_.read(); }

  /// Call this when a configuration file may have changed.
  void configurations_changed() { queue_.schedule(); }

  /// Prepares the end of the process. No change begins any more. Once hostd has ended its change or stopped,
  /// paused operands are resumed and the node's rollout lease is given back (LastLease). Then `left` is
  /// called, once: at once if there is nothing to do, after a minute at the latest, also without an answer of
  /// the API server.
  void leave(EventLoop::Job left);

  /// Absent: this agent pulls nothing.
  std::optional<PullCounts> pulls() const;

  /// KubeVirt's VirtualMachineInstances on this node by their pods ("namespace/name"); empty if pods are not
  /// watched.
  std::map<std::string, std::string> vmis() const;
  /// The Node's labels; empty: it is not known.
  std::map<std::string, std::string> node_labels() const;

 private:
  void reconcile_now();
  ReconcileResult reconcile_with(const nlohmann::json& node);
  NodeSnapshot observe(const nlohmann::json& node);
  OtherPrograms observe_others(const nlohmann::json& node);
  void log_doubts(const std::vector<PodOnNode>& pods);
  DrainSnapshot observe_drain(const nlohmann::json& node, const NodeSnapshot& snapshot);
  std::chrono::seconds seconds_since(Moment begin) const;
  void act(const ReconcileResult& result, const nlohmann::json& node);
  bool is_written(const Result<>& written, std::string& unwritable);
  bool act_on_kata(const KataStep& step);
  bool act_on_desired_file(const ReconcileResult& result);
  void go_on_leaving();
  void undo(bool with_cordon);
  void give_lease_back(const nlohmann::json& node);
  void keep_lease(const std::string& why);
  void end();

  HostFs& host_;
  kube::Timers& timers_;
  const kube::EventRecorder::WallClock wall_clock_;
  const AgentSettings settings_;
  AgentMemory memory_;
  ReconcileQueue queue_;
  kube::ApiClient client_;
  HostObserver observer_;
  ClusterWatches watches_;
  NodePatch patch_;
  Evictions evictions_;
  NamedDaemonSets owners_;  ///< of pods that use GPUs
  FormerNodeFeature former_feature_;
  std::unique_ptr<RolloutLeases> leases_;      ///< null: any number of nodes may change
  std::unique_ptr<NodeFeature> node_feature_;  ///< null: not configured
  std::unique_ptr<ArtifactPulls> pulls_;       ///< null: nothing is pulled

  // State of an agent that ends.
  bool leaves_ = false;
  EventLoop::Job left_;  ///< empty once called
  Moment leave_by_;
  kube::OwnedTimer leave_timer_;
  bool is_undoing_ = false;
  bool is_undone_ = false;  ///< undo() is done, or has failed
};

// A single agent on a host: two would overwrite each other's desired.json, each with a higher generation.

/// Starts the agent's work once it has the instance lock. In a rolling update the former agent may still have
/// it. An agent that is not root also waits until it may write the lock's folder, which hostd permits.
class AgentInstance {
 public:
  /// The loop and the host must outlive this object.
  AgentInstance(EventLoop& loop, HostFs& host, std::function<Result<>()> begin)
      : loop_(loop), host_(host), begin_(std::move(begin)) {}

  /// Runs the loop until `stop`. Errors: those of `begin`, or of the lock's file.
  Result<> run(const std::stop_token& stop);

 private:
  void try_now();
  void wait_for(std::string what);

  EventLoop& loop_;
  HostFs& host_;
  const std::function<Result<>()> begin_;
  std::optional<InstanceLock> only_;
  Result<> begun_;
  std::string waits_for_;  ///< last logged message
};

}  // namespace ferry::agent
