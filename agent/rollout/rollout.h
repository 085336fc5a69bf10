// SPDX-License-Identifier: Apache-2.0
// Decides how many nodes may change at once, and if this node may begin: a wrong configuration must stop at
// its first node. Pure; the input comes from Leases (rollout_leases.h).
//
// A change needs one of a fixed number of rollout leases, from before its first action until its end. A
// configuration that no node has passed needs lease 0, so that a single node goes first. A configuration that
// has failed on a node begins on no other node, also if it failed outside a lease, as when a blocked change
// is tried again later. If desired.json already holds the configuration, as after a boot, no lease is needed:
// a change that has begun goes on.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/config_tree.h"
#include "policy/policy.h"

namespace ferry::agent {

/// Identity of a policy's content, as in "8f3a09c6d1e2b745"; the policy's name does not count.
std::string configuration_id(const policy::Policy& policy);
/// Identity of a text.
std::string configuration_id(std::string_view text);

struct RolloutLease {
  std::size_t index = 0;
  std::string holder;         ///< a Node's name; empty: the lease is free
  std::string configuration;  ///< the configuration that the holder changes to
  bool silent = false;        ///< the holder has not renewed the lease within kLeaseLife
};

/// Results of configurations, by configuration_id().
struct CanaryResults {
  std::set<std::string> passed;               ///< a node has reached the configuration
  std::map<std::string, std::string> failed;  ///< node and reason: "gpu-7: why"
};

/// The rollout leases of the cluster, as this node knows them.
struct Rollout {
  std::size_t most = 1;   ///< nodes that may change at once
  std::string space;      ///< namespace of the Leases
  bool known = false;     ///< the fields below are up to date
  bool searched = false;  ///< they have been so once, and would have shown a lease of this node
  std::string trouble;    ///< why the Leases cannot be read or written; empty: no lasting error
  /// The leases that have an object; a lease without one is free.
  std::vector<RolloutLease> leases;
  CanaryResults results;
  bool renewed = false;  ///< this node's lease was renewed so lately that no other node can have it
};

/// Result of the configuration in desired.json.
enum class ChangeOutcome {
  none,     ///< there is no desired.json
  open,     ///< the change goes on
  done,     ///< the host is in the desired state
  blocked,  ///< devices are in use; nothing was written to them
  failed,
};

/// This node's change, as input of the rollout.
struct NodeChange {
  std::string node;
  std::string begin;      ///< configuration to begin; empty: none
  bool by_label = false;  ///< a label that was set on this very node asks for it
  std::string written;    ///< configuration in desired.json; empty: none
  ChangeOutcome outcome = ChangeOutcome::none;
  std::string why;       ///< reason of `failed`
  bool is_news = false;  ///< of `failed`: other nodes do not know of it, so it counts without a lease
  bool has_any = true;   ///< of `done`: the policy selects a GPU here, so that `done` proves it
};

struct RolloutStep {
  enum class Kind {
    nothing,    ///< no write to a Lease
    take,       ///< write this node's lease, to take it or to renew it
    give_back,  ///< free this node's lease, and write the result if there is one
    report,     ///< write only the result
    close,      ///< free the lease of a silent holder, and write the result
  };
  Kind kind = Kind::nothing;
  std::size_t index = 0;      ///< of the lease
  std::string configuration;  ///< the configuration to take, or of the result
  /// Absent: no result. Empty: the configuration has passed. Otherwise the reason of its failure.
  std::optional<std::string> result;
  bool may_begin = true;        ///< false: the change has to wait
  bool watches_leases = false;  ///< the Leases have to be watched
  std::string waits_for;        ///< why the change waits, for people
  std::string held;             ///< why it waits until a person acts; empty: it waits for nodes or time
  bool unknown = false;         ///< `held` because the API server does not answer, not for a result
};

/// The index of the lease follows. Annotations of lease 0 hold the results.
inline constexpr const char* kRolloutLeasePrefix = "ferry-rollout-";
/// Prefixes of lease 0's annotations; a configuration_id() follows.
inline constexpr const char* kPassedPrefix = "passed.gpu-ferry.io/";
inline constexpr const char* kFailedPrefix = "failed.gpu-ferry.io/";

/// The next write to the Leases, and if the node's change may begin.
RolloutStep rollout_step(const Rollout& rollout, const NodeChange& change);

// Shares the node's rollout lease between its two kinds of change: the GPUs, and Kata's runtimes, which need
// a restart of the container runtime. Pure.

/// The configuration_id() of a class file, marked to differ from configurations of GPUs.
std::string kata_configuration_id(const ConfigText& config);
bool is_kata_configuration(const std::string& id);

struct SharedLease {
  RolloutStep gpus;  ///< if the GPUs' change may begin; its write to a Lease is in `lease`
  RolloutStep kata;  ///< the same for Kata's runtimes
  RolloutStep lease;
};

/// The kind that has the lease keeps it to its end. Without a lease the GPUs' change comes first, unless it
/// is held until a person acts.
SharedLease share_lease(const Rollout& rollout, const NodeChange& gpus, const NodeChange& kata);

}  // namespace ferry::agent
