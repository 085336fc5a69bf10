// SPDX-License-Identifier: Apache-2.0
// How many nodes may change at once, and whether this one may begin: a wrong configuration must not take
// every GPU node before anybody sees what it does. Pure; what it goes by lies in Leases (change_leases.h).
//
// A change needs one of so many slots, from before anything is done for it until it has ended. A
// configuration that has not proven itself on any node yet needs slot 0, so that one node goes first; one
// that has failed on a node is begun on no other, also where that had its slot no more, as when what was
// refused is done later. Where wanted.json says it already, as after a boot, nothing
// is needed: what has begun goes on.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "policy/policy.h"

namespace ferry {

/// "8f3a09c6d1e2b745": the same for all policies that say the same, whatever they are called.
std::string configuration_id(const Policy& policy);
/// The same of a text.
std::string configuration_id(std::string_view text);

struct ChangeSlot {
  std::size_t index = 0;
  std::string holder;         ///< a Node's name; empty: it is free
  std::string configuration;  ///< what its holder changes to
  bool silent = false;        ///< its holder has not been heard of for too long
};

/// What has come of configurations, by configuration_id().
struct Verdicts {
  std::set<std::string> proven;               ///< some node is as it says
  std::map<std::string, std::string> failed;  ///< "gpu-7: why"
};

/// All that is known of the cluster's changes.
struct ChangeBudget {
  std::size_t most = 1;   ///< nodes that may change at once
  std::string space;      ///< the namespace of the Leases
  bool known = false;     ///< whether the rest is what the cluster has
  bool searched = false;  ///< whether it has ever been, so that a slot of ours would have been seen
  std::string trouble;    ///< why it is not, or cannot be written; empty: that is a matter of moments
  /// Those that somebody has had; of the others nobody has written yet.
  std::vector<ChangeSlot> slots;
  Verdicts verdicts;
  bool renewed = false;  ///< we have written to our slot so lately that nobody can have taken it
};

/// What became of what is written down in wanted.json.
enum class ChangeOutcome {
  none,     ///< nothing is
  open,     ///< it is on its way
  done,     ///< the host is so
  refused,  ///< in use; nothing of that was written
  failed,
};

/// This node, as far as the budget is concerned.
struct NodeChange {
  std::string node;
  std::string begin;      ///< the configuration that is to be begun; empty: none
  bool by_label = false;  ///< it is begun because somebody has set a label of this very node
  std::string written;    ///< the configuration in wanted.json; empty: none
  ChangeOutcome outcome = ChangeOutcome::none;
  std::string why;  ///< of `failed`
  bool is_news =
      false;  ///< of `failed`: it was refused before, and nobody has been told: it counts without a slot
  bool has_any = true;  ///< of `done`: something here is as the configuration says, so that it is proven
};

struct BudgetStep {
  enum class Kind {
    nothing,    ///< to be done to Leases
    take,       ///< our slot is to be written, for the first time or to say that we are here
    give_back,  ///< with the verdict, if there is one
    judge,      ///< the verdict alone is to be written
    close,      ///< the slot of one that has gone silent is to be made free, with the verdict
  };
  Kind kind = Kind::nothing;
  std::size_t slot = 0;
  std::string configuration;  ///< of `take`, and whom the verdict is about
  /// Absent: none. Empty: it has proven itself. Else why it has failed.
  std::optional<std::string> verdict;
  bool may_begin = true;  ///< false: what is to be begun has to wait
  bool looks = false;     ///< the Leases are to be watched
  std::string waits_for;  ///< why it has to wait, for people
  std::string held;       ///< why it waits until a person does something; empty: it is a matter of time
  bool unknown = false;   ///< held for want of an answer of the API server, and no verdict
};

/// Its name is told of slot 0: its annotations hold the verdicts.
inline constexpr const char* kChangeLease = "ferry-change-";
/// Before a configuration_id(), annotations of slot 0.
inline constexpr const char* kProvenPrefix = "proven.gpu-ferry.io/";
inline constexpr const char* kFailedPrefix = "failed.gpu-ferry.io/";

/// What is to be done now.
BudgetStep budget_step(const ChangeBudget& budget, const NodeChange& change);

}  // namespace ferry
