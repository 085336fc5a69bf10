// SPDX-License-Identifier: Apache-2.0
// Reads and writes the Leases of a Rollout for this node. They are watched only while
// RolloutStep::watches_leases; rollout.h decides.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "agent/agent_settings.h"
#include "agent/node_refusals.h"
#include "agent/rollout/rollout.h"
#include "common/pinned.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry::agent {

// The Leases that store a Rollout. Pure.
//
//   ferry-rollout-0 … ferry-rollout-(N-1), label gpu-ferry.io/rollout-lease: "0" …
//     spec.holderIdentity               the Node that changes; absent: the lease is free
//     spec.renewTime                    last renewal, by that node's clock
//     gpu-ferry.io/configuration        configuration_id() of the change
//     gpu-ferry.io/policy               its name, for people
//   only on ferry-rollout-0
//     passed.gpu-ferry.io/ID: "gpu-3"
//     failed.gpu-ferry.io/ID: "gpu-7: why"

/// A holder that does not renew its lease for this long, as other nodes observe it, has lost the lease.
/// Clocks of nodes differ and are not compared.
inline constexpr std::chrono::seconds kLeaseLife{600};

kube::ObjectRef rollout_lease_ref(const std::string& space, std::size_t index);
kube::Selection rollout_lease_objects(const std::string& space);

/// Absent: the Lease is not a rollout lease. The caller sets `silent`.
std::optional<RolloutLease> rollout_lease_of(const nlohmann::json& lease);
/// Adds the results of lease 0; other Leases have none.
void read_canary_results(const nlohmann::json& lease, CanaryResults& out);
/// A merge patch of lease 0 that writes a RolloutStep::result. At most kMostResults of a kind are kept; the
/// patch removes others.
nlohmann::json patch_to_report(const nlohmann::json& lease, const std::string& node,
                               const std::string& configuration, const std::string& result);
inline constexpr std::size_t kMostResults = 32;

/// Only one thread may use it. While this node has no change to begin and no lease, there is neither a
/// request nor a timer.
class RolloutLeases : Pinned {
 public:
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

  /// `changed` is called, never from within a call, when rollout() may differ or act() is due. The references
  /// must outlive this object.
  RolloutLeases(kube::ApiTransport& transport, kube::ApiClient& client, kube::Timers& timers,
                kube::Random random, WallClock wall_clock, const AgentSettings& settings,
                std::function<void()> changed);
  ~RolloutLeases();

  Rollout rollout();
  /// Performs `step`, a single write at a time; `policy` is the configuration's name, for people.
  void act(const RolloutStep& step, const std::string& policy);

  /// True if this node has a lease, as far as is known, or a write that may take a lease is under way.
  bool may_have_one() const;
  bool is_writing() const { return writing_.has_value(); }

 private:
  struct Observed {
    std::string sign;
    Moment since;
  };

  void open();
  void close();
  void forget_older();
  /// Null: it has no object.
  nlohmann::json lease(std::size_t index) const;
  bool is_ours(const nlohmann::json& lease) const;
  std::map<std::string, nlohmann::json> leases() const;
  void write(const RolloutStep& step, const std::string& policy);
  void written(std::size_t index, Moment sent, Result<nlohmann::json> result);
  void wait_for(const RolloutStep& step);

  kube::ApiTransport& transport_;
  kube::ApiClient& client_;
  kube::Timers& timers_;
  const kube::Random random_;
  const WallClock wall_clock_;
  const AgentSettings& settings_;
  const std::function<void()> changed_;

  std::unique_ptr<kube::ObjectWatch> watch_;
  std::map<std::string, nlohmann::json> ours_;  ///< as written by this node, until the watch shows it
  std::map<std::size_t, Observed> observed_;    ///< since when the leases of other nodes are unchanged
  bool searched_ = false;  ///< the Leases have been listed once: a lease from before a restart is known
  std::string watch_trouble_;
  std::string write_trouble_;
  std::optional<std::size_t> renewed_;  ///< the lease that this node last took or renewed
  Moment renewed_at_;
  std::optional<kube::ApiClient::Call> writing_;
  kube::Backoff backoff_;
  std::optional<Moment> not_before_;  ///< earliest time of the next write
  bool drawn_ = false;                ///< not_before_ is the pause before a free lease is taken
  kube::OwnedTimer timer_;
};

}  // namespace ferry::agent
