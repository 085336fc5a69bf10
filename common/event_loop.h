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

/// Waits in one thread for descriptors, timers and jobs of other threads, and sleeps while there are none.
/// All but post() belongs to the thread that calls run(), before run() to its creator.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Job = std::function<void()>;
  /// Operations that would not block.
  struct Readiness {
    bool read = false;
    bool write = false;
  };
  /// Identifies a waiting timer; a default value identifies none.
  using Timer = std::pair<Clock::time_point, std::uint64_t>;

  /// Errors: no descriptor is left.
  static Result<std::unique_ptr<EventLoop>> create();

  /// Runs `readable` whenever `fd` can be read or has hung up, until forget(fd). The caller keeps `fd` open.
  void watch(int fd, Job readable);
  /// Runs `ready` for any of `awaited`; replaces an earlier watch of `fd`. A descriptor that failed or hung
  /// up counts as readable and writable.
  void watch(int fd, Readiness awaited, std::function<void(Readiness)> ready);
  void forget(int fd);

  Timer at(Clock::time_point when, Job job);
  /// A timer that has run or was never set is no error.
  void cancel(Timer timer);

  /// Runs `job` in the loop. Any thread may call; jobs keep their order.
  void post(Job job);

  /// Runs until `stop` is requested or finish() is called.
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
