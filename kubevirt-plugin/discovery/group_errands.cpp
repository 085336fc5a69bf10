// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "kubevirt-plugin/discovery/sysfs_check.h"

namespace ferry::plugin {
namespace {

using Clock = std::chrono::steady_clock;

struct Errand {
  const std::set<std::uint32_t> groups;
  const Clock::time_point until;
  GroupErrands::Then then;  // empty: it has been called
  std::optional<std::uint32_t> at = {};
  bool over = false;
};

}  // namespace

struct GroupErrands::State {
  explicit State(std::chrono::milliseconds how_long) : deadline(how_long) {}

  /// A job that uses one of these groups.
  struct Occupant {
    std::shared_ptr<const Errand> errand;
    std::uint32_t group = 0;
  };
  std::optional<Occupant> occupant(const std::set<std::uint32_t>& groups) const {
    for (const auto& errand : under_way) {
      for (const auto group : groups) {
        // A late job occupies only the group at which it is.
        const bool occupies = errand->then ? errand->groups.contains(group) : errand->at == group;
        if (occupies) return Occupant{.errand = errand, .group = group};
      }
    }
    return std::nullopt;
  }

  const std::chrono::milliseconds deadline;
  std::mutex mutex;
  std::condition_variable ended;  // a job has ended or is late
  std::vector<std::shared_ptr<Errand>> under_way;
  std::condition_variable called;  // wakes the watching thread
  bool idle = false;               // the watching thread waits without a deadline
  Clock::time_point looks_at{};    // the deadline until which it waits otherwise
  bool sooner = false;             // a job with an earlier deadline has begun
  bool over = false;
};

GroupErrands::GroupErrands(std::chrono::milliseconds deadline)
    : state_(std::make_shared<State>(deadline)), watcher_([state = state_] { watch(*state); }) {}

GroupErrands::~GroupErrands() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->over = true;
  }
  state_->called.notify_one();
  watcher_.join();
}

void GroupErrands::run(const std::set<std::uint32_t>& groups, const Job& job, Then then) const {
  run(std::shared_ptr<State>(state_), groups, job, std::move(then));
}

void GroupErrands::begin(std::set<std::uint32_t> groups, Job job, Then then) const {
  try {
    std::thread([state = state_, groups = std::move(groups), job = std::move(job), then] {
      run(state, groups, job, then);
    }).detach();
  } catch (const std::system_error&) {  // no thread is available
    then({});
  }
}

void GroupErrands::run(const std::shared_ptr<State>& state, const std::set<std::uint32_t>& groups,
                       const Job& job, Then then) {
  std::unique_lock lock(state->mutex);
  while (const auto other = state->occupant(groups)) {
    if (other->errand->then) {
      state->ended.wait(lock, [&] { return other->errand->over || !other->errand->then; });
      continue;
    }
    lock.unlock();
    return then({.done = false, .behind = other->group});
  }
  constexpr std::ptrdiff_t kMostDeadlines = 4;
  const auto deadlines = std::clamp(std::ssize(groups), std::ptrdiff_t{1}, kMostDeadlines);
  const auto errand = state->under_way.emplace_back(std::make_shared<Errand>(Errand{
      .groups = groups, .until = Clock::now() + deadlines * state->deadline, .then = std::move(then)}));
  // The watching thread is not woken for each job: after its present deadline it looks at all jobs again.
  if (errand->until < state->looks_at) state->sooner = true;
  if (std::exchange(state->idle, false) || state->sooner) state->called.notify_one();
  lock.unlock();

  job([&state, &errand](std::uint32_t group) {
    const std::scoped_lock guard(state->mutex);
    if (!errand->then) return false;
    errand->at = group;
    return true;
  });

  lock.lock();
  errand->over = true;
  std::erase(state->under_way, errand);
  const Then mine = std::exchange(errand->then, {});
  lock.unlock();
  state->ended.notify_all();
  if (mine) mine({.done = true, .behind = {}});
}

void GroupErrands::watch(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    auto first = state.under_way.end();
    for (auto errand = state.under_way.begin(); errand != state.under_way.end(); ++errand)
      if ((*errand)->then && (first == state.under_way.end() || (*errand)->until < (*first)->until))
        first = errand;
    if (first == state.under_way.end()) {
      if (state.over) return;
      state.idle = true;
      state.called.wait(lock, [&] { return !state.idle || state.over; });
      state.idle = false;
      continue;
    }
    const auto errand = *first;
    state.looks_at = errand->until;
    state.sooner = false;
    state.called.wait_until(lock, errand->until, [&] { return state.over || state.sooner; });
    state.looks_at = {};
    if (state.over || Clock::now() >= errand->until) {
      const Then then = std::exchange(errand->then, {});
      lock.unlock();
      state.ended.notify_all();  // its groups other than the current one are free again
      if (then) then({});
      lock.lock();
    }
  }
}

}  // namespace ferry::plugin
