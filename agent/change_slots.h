// SPDX-License-Identifier: Apache-2.0
// Inside this room: the Leases of a ChangeBudget as this node sees and writes them. What it knows of them is
// told, and only while somebody needs to know; what is to be done change_budget.h says.
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

/// One thread. While this node has nothing to begin and no slot there is no request open and no timer.
class ChangeSlots {
 public:
  using WallClock = std::function<std::chrono::system_clock::time_point()>;
  struct Settings {
    std::string node;
    std::string space;
    std::size_t most = 1;
  };

  /// `changed` is called, never from within a call, when budget() may be another, or time has come for act().
  /// What is named here must outlive this.
  ChangeSlots(ApiTransport& transport, ApiClient& client, Timers& timers, Random random, WallClock wall_clock,
              Settings settings, std::function<void()> changed);
  ChangeSlots(const ChangeSlots&) = delete;
  ChangeSlots& operator=(const ChangeSlots&) = delete;
  ChangeSlots(ChangeSlots&&) = delete;
  ChangeSlots& operator=(ChangeSlots&&) = delete;
  ~ChangeSlots();

  ChangeBudget budget();
  /// Does what is to be done of `step`, one write at a time; `policy` is what people call its configuration.
  void act(const BudgetStep& step, const std::string& policy);

  /// A slot is this node's, as far as is known, or a write is on its way that may make one so.
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
  /// Null: there is none.
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
  std::map<std::string, nlohmann::json> ours_;  ///< as our writes left them, until the watch is as far
  std::map<std::size_t, Seen> seen_;            ///< how long others' slots have been as they are
  bool searched_ = false;  ///< the slots have been seen once: one that we had before we started is known
  std::string watch_trouble_;
  std::string write_trouble_;
  std::optional<std::size_t> renewed_;  ///< the slot that was ours by our last write
  Moment renewed_at_;
  std::optional<ApiClient::Call> writing_;
  Backoff backoff_;
  std::optional<Moment> not_before_;  ///< no write before then
  bool drawn_ = false;                ///< not_before_ is the pause before a free slot is taken
  Timers::Timer timer_;
};

}  // namespace ferry
