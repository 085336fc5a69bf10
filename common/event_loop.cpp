// SPDX-License-Identifier: Apache-2.0
#include "common/event_loop.h"

#include <cerrno>
#include <limits>
#include <poll.h>
#include <sys/eventfd.h>

namespace ferry {

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail(error_from_errno(errno, "make an eventfd"));
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(wake)));
}

void EventLoop::watch(int fd, Job readable) {
  watch(fd, {.read = true, .write = false}, [job = std::move(readable)](Readiness) { job(); });
}

void EventLoop::watch(int fd, Readiness awaited, std::function<void(Readiness)> ready) {
  watched_.insert_or_assign(fd, std::make_shared<const Watch>(awaited, std::move(ready)));
}

void EventLoop::forget(int fd) {
  watched_.erase(fd);
}

EventLoop::Timer EventLoop::at(Clock::time_point when, Job job) {
  const Timer timer(when, ++last_timer_);
  timers_.emplace(timer, std::move(job));
  return timer;
}

void EventLoop::cancel(Timer timer) {
  timers_.erase(timer);
}

void EventLoop::post(Job job) {
  {
    const std::scoped_lock lock(mutex_);
    posted_.push_back(std::move(job));
  }
  wake();
}

void EventLoop::wake() const {
  // The write fails only if the counter is full, and then the loop is awake.
  [[maybe_unused]] const int written = ::eventfd_write(wake_.get(), 1);
}

void EventLoop::run_posted() {
  std::vector<Job> jobs;
  {
    const std::scoped_lock lock(mutex_);
    jobs.swap(posted_);
  }
  for (const auto& job : jobs) job();
}

void EventLoop::run_ready(int fd, const Watch* polled, short events) {
  if (events == 0) return;
  // A job may forget any descriptor, including its own. A watch that was added since poll(2), perhaps under a
  // closed descriptor's number, has not been polled.
  const auto now = watched_.find(fd);
  if (now == watched_.end() || now->second.get() != polled) return;
  const auto kept = now->second;
  const bool broken = (events & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  kept->ready({.read = broken || (events & POLLIN) != 0, .write = broken || (events & POLLOUT) != 0});
}

void EventLoop::run_due() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) timers_.extract(timers_.begin()).mapped()();
}

int EventLoop::milliseconds_to_wait() const {
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now());
  if (left.count() <= 0) return 0;
  return static_cast<int>(std::min<std::int64_t>(left.count(), std::numeric_limits<int>::max()));
}

void EventLoop::run(const std::stop_token& stop) {
  const std::stop_callback wake_on_stop(stop, [this] { wake(); });
  while (!finished_ && !stop.stop_requested()) {
    std::vector<pollfd> fds = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    // Keeps the old watches alive, so that no new watch has an old one's address.
    std::vector<std::shared_ptr<const Watch>> polled;
    for (const auto& [fd, watched] : watched_) {
      const int events = (watched->awaited.read ? POLLIN : 0) | (watched->awaited.write ? POLLOUT : 0);
      fds.push_back({.fd = fd, .events = static_cast<short>(events), .revents = 0});
      polled.push_back(watched);
    }
    if (::poll(fds.data(), fds.size(), milliseconds_to_wait()) < 0) continue;  // interrupted by a signal

    if (fds.front().revents != 0) {
      eventfd_t count = 0;
      [[maybe_unused]] const int read = ::eventfd_read(wake_.get(), &count);
    }
    run_posted();
    for (std::size_t i = 0; i < polled.size(); ++i)
      run_ready(fds[i + 1].fd, polled[i].get(), fds[i + 1].revents);
    run_due();
  }
}

}  // namespace ferry
