// SPDX-License-Identifier: Apache-2.0
// Inside this room: reads and writes the Leases of a ChangeBudget for this node. They are watched only while
// BudgetStep::looks; change_budget.h decides.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "agent/change_budget.h"
#include "kube/api_client.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry {

/// For one thread. While this node has no change to begin and no slot, there is neither a request nor a
/// timer.
class ChangeSlots {
 public:
  using WallClock = std::function<std::chrono::system_clock::time_point()>;
  struct Settings {
    std::string node;
    std::string space;
    std::size_t most = 1;
  };

  /// `changed` is called, never from within a call, when budget() may differ or act() is due. The references
  /// must outlive this object.
  ChangeSlots(ApiTransport& transport, ApiClient& client, Timers& timers, Random random, WallClock wall_clock,
              Settings settings, std::function<void()> changed);
  ChangeSlots(const ChangeSlots&) = delete;
  ChangeSlots& operator=(const ChangeSlots&) = delete;
  ChangeSlots(ChangeSlots&&) = delete;
  ChangeSlots& operator=(ChangeSlots&&) = delete;
  ~ChangeSlots();

  ChangeBudget budget();
  /// Carries out `step`, a single write at a time; `policy` is the configuration's name, for people.
  void act(const BudgetStep& step, const std::string& policy);

  /// True if this node has a slot, as far as is known, or a write that may take a slot is under way.
  bool may_have_one() const;
  bool is_writing() const { return writing_.has_value(); }

 private:
  using Moment = Timers::Clock::time_point;
  struct Seen {
    std::string sign;
    Moment since;
  };

  void open();
  void close();
  void forget_older();
  /// Null: the slot has no Lease.
  nlohmann::json lease(std::size_t slot) const;
  bool is_ours(std::size_t slot) const;
  std::map<std::string, nlohmann::json> leases() const;
  void observe(ChangeSlot& slot, const nlohmann::json& lease);
  void write(const BudgetStep& step, const std::string& policy);
  void written(std::size_t slot, Moment sent, Result<nlohmann::json> result);
  void call_at(Moment when);
  void wait_for(const BudgetStep& step);

  ApiTransport& transport_;
  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  const WallClock wall_clock_;
  const Settings settings_;
  const std::function<void()> changed_;

  std::unique_ptr<ObjectWatch> watch_;
  std::map<std::string, nlohmann::json> ours_;  ///< as written by this node, until the watch shows it
  std::map<std::size_t, Seen> seen_;            ///< since when the slots of other nodes are unchanged
  bool searched_ = false;  ///< the Leases have been listed once: a slot from before a restart is known
  std::string watch_trouble_;
  std::string write_trouble_;
  std::optional<std::size_t> renewed_;  ///< the slot that this node last took or renewed
  Moment renewed_at_;
  std::optional<ApiClient::Call> writing_;
  Backoff backoff_;
  std::optional<Moment> not_before_;  ///< earliest time of the next write
  bool drawn_ = false;                ///< not_before_ is the pause before a free slot is taken
  Timers::Timer timer_;
};

}  // namespace ferry
