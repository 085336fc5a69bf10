// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/group_errands.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace ferry {

struct GroupErrands::Errand {
  const std::uint32_t group;
  const std::chrono::steady_clock::time_point until;
  Job job;
  bool done = false;
};

struct GroupErrands::State {
  std::mutex mutex;
  std::condition_variable answered;
  std::map<std::uint32_t, std::shared_ptr<Errand>> under_way;

  // The thread that stays.
  std::condition_variable called;
  bool idle = false;             // it waits to be called
  std::shared_ptr<Errand> next;  // what it is called for
  bool over = false;             // nobody will call it again
};

GroupErrands::GroupErrands(std::chrono::milliseconds deadline)
    : deadline_(deadline), state_(std::make_shared<State>()) {}

GroupErrands::~GroupErrands() {
  const std::scoped_lock lock(state_->mutex);
  state_->over = true;
  state_->called.notify_one();
}

GroupErrands::Done GroupErrands::begin(std::uint32_t group, Job job) const {
  std::unique_lock lock(state_->mutex);
  if (const auto known = state_->under_way.find(group); known != state_->under_way.end()) {
    return [this, group, before = known->second, job = std::move(job)]() mutable {
      return wait_for(*before) && begin(group, std::move(job))();
    };
  }
  auto errand = std::make_shared<Errand>(
      Errand{.group = group, .until = std::chrono::steady_clock::now() + deadline_, .job = std::move(job)});
  state_->under_way.emplace(group, errand);
  Done done = [this, errand] { return wait_for(*errand); };
  if (std::exchange(state_->idle, false)) {
    state_->next = std::move(errand);
    lock.unlock();  // it wants it as soon as it wakes
    state_->called.notify_one();
    return done;
  }
  try {
    std::thread(serve, state_, std::move(errand)).detach();
  } catch (const std::system_error&) {  // no thread to be had
    state_->under_way.erase(group);
    return [] { return false; };
  }
  return done;
}

bool GroupErrands::wait_for(const Errand& errand) const {
  std::unique_lock lock(state_->mutex);
  return state_->answered.wait_until(lock, errand.until, [&] { return errand.done; });
}

void GroupErrands::serve(const std::shared_ptr<State>& state, std::shared_ptr<Errand> errand) {
  std::unique_lock lock(state->mutex, std::defer_lock);
  while (errand != nullptr) {
    errand->job();
    lock.lock();
    errand->done = true;
    state->under_way.erase(errand->group);
    state->answered.notify_all();
    errand.reset();
    if (state->idle || state->next != nullptr) return;  // another one stays already
    state->idle = true;
    state->called.wait(lock, [&] { return state->next != nullptr || state->over; });
    errand = std::exchange(state->next, nullptr);
    lock.unlock();
  }
}

}  // namespace ferry
