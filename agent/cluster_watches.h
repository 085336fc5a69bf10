// SPDX-License-Identifier: Apache-2.0
// The objects of the cluster that the agent watches: the Node, the pods on it, NVIDIA's DaemonSets, and the
// ConfigMaps with policies and with Kata's classes. Only one thread may use it.
//
// RBAC may forbid objects, the server may fail at some kinds of them, and there may be more than are kept.
// After a patience the agent goes on without such objects. If the server reports nothing at all, it waits.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/agent_settings.h"
#include "agent/reconcile.h"
#include "agent/reconcile_queue.h"
#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/field_filter.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry::agent {

class ClusterWatches : Pinned {
 public:
  using Objects = kube::ObjectWatch::Objects;

  /// Each change of an object schedules a reconcile. The references must outlive this object.
  ClusterWatches(kube::ApiTransport& transport, kube::Timers& timers, kube::Random random,
                 const AgentSettings& settings, ReconcileQueue& queue);

  /// Errc::usage: a name that no object can have.
  Result<> begin();

  /// Null: there is no such Node, or it is not listed yet.
  const nlohmann::json* node() const;
  bool lists_node() const { return node_.watch->listed(); }
  /// Call this before a patch of the Node is sent.
  void expect_patch() { reported_since_patch_ = false; }
  /// Takes the Node of the answer, which counts until the watch reports the Node. It is ignored if the watch
  /// has reported since expect_patch(): that report may be the newer one.
  void patched(nlohmann::json node) {
    if (!reported_since_patch_) patched_ = std::move(node);
  }

  /// Null: they are not watched, not listed, or known only in part.
  const Objects* pods() const { return objects(pods_); }
  const Objects* daemon_sets() const { return objects(daemon_sets_); }

  /// While the sources of the GPUs' desired state are not known yet, no reconcile is possible: the end of the
  /// patience, or Moment::max() if the API server has to answer first. Absent: they are known.
  std::optional<Moment> unknown_until() const;

  /// Sets the parts of the snapshot that are about the ConfigMaps. Kata's may be unknown: the GPUs' desired
  /// state does not wait for it.
  void add_configurations(NodeSnapshot& snapshot) const;

 private:
  struct Watched {
    std::unique_ptr<kube::ObjectWatch> watch = {};  ///< null: not watched
    /// The newest error of the watch, and the time of the first one of its kind.
    std::optional<Error> error = {};
    Moment error_since = {};
  };

  void watch(Watched& watched, kube::Selection selection, kube::FieldChoice fields = kube::whole_object());
  const Objects* objects(const Watched& watched) const;
  std::optional<Moment> unknown_until(const Watched& watched) const;
  Moment end_of_patience(const Watched& watched) const;

  kube::ApiTransport& transport_;
  kube::Timers& timers_;
  const kube::Random random_;
  const AgentSettings& settings_;
  ReconcileQueue& queue_;
  Watched node_;
  Watched pods_;
  Watched daemon_sets_;
  Watched kata_;
  std::deque<Watched> config_maps_;
  bool node_in_trouble_ = false;           ///< the watch of the Node has an error too
  Moment node_well_since_;                 ///< end of the last such error
  std::optional<nlohmann::json> patched_;  ///< the Node after the last patch, until the watch reports it
  bool reported_since_patch_ = false;
};

}  // namespace ferry::agent
