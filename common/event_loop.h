// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

/// One thread's wait for descriptors, times and other threads' jobs. Sleeps while there is none of them. All
/// but post() belongs to the thread that calls run(), or to nobody else before it does.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Job = std::function<void()>;
  /// What a descriptor can do without waiting.
  struct Readiness {
    bool read = false;
    bool write = false;
  };
  /// What names a waiting timer; a default one names none.
  using Timer = std::pair<Clock::time_point, std::uint64_t>;

  /// Errors: no descriptor is to be had.
  static Result<std::unique_ptr<EventLoop>> create();

  /// Runs `readable` whenever `fd` can be read, or has hung up, until forget(fd). The caller keeps it open.
  void watch(int fd, Job readable);
  /// The same for any of `awaited`; takes the place of an earlier watch of `fd`. One that has hung up or
  /// failed can do both, whatever was awaited.
  void watch(int fd, Readiness awaited, std::function<void(Readiness)> ready);
  void forget(int fd);

  Timer at(Clock::time_point when, Job job);
  /// That it has run or was never set is no error.
  void cancel(Timer timer);

  /// Runs `job` in the loop. Any thread may call; jobs keep their order.
  void post(Job job);

  /// Until `stop` is requested or finish() called.
  void run(const std::stop_token& stop);
  void finish() { finished_ = true; }

 private:
  struct Watch {
    Readiness awaited;
    std::function<void(Readiness)> ready;
  };

  explicit EventLoop(UniqueFd wake) : wake_(std::move(wake)) {}
  void wake() const;
  void run_posted();
  void run_ready(int fd, const Watch* polled, short events);
  void run_due();
  int milliseconds_to_wait() const;

  const UniqueFd wake_;
  std::map<int, std::shared_ptr<const Watch>> watched_;
  std::map<Timer, Job> timers_;
  std::uint64_t last_timer_ = 0;
  bool finished_ = false;

  std::mutex mutex_;
  std::vector<Job> posted_;
};

}  // namespace ferry
