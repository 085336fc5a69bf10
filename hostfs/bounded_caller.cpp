// SPDX-License-Identifier: Apache-2.0
#include "hostfs/bounded_caller.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace ferry {

/// Shared by a caller and a worker: one job at a time.
struct BoundedCaller::Desk {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> job;  // empty: no job, or the job is done
  bool closed = false;

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closed || job; });
      if (!job) return;
      const std::function<void()> mine = job;
      lock.unlock();
      mine();
      lock.lock();
      job = nullptr;
      changed.notify_all();
      if (closed) return;
    }
  }
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }
};

BoundedCaller::~BoundedCaller() {
  if (desk_) desk_->close();
}

bool BoundedCaller::run(std::function<void()> job) {
  if (!desk_) {
    auto desk = std::make_shared<Desk>();
    try {
      std::thread([desk] { desk->work(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    desk_ = std::move(desk);
  }
  std::unique_lock lock(desk_->mutex);
  desk_->job = std::move(job);
  desk_->changed.notify_all();
  if (desk_->changed.wait_for(lock, patience_, [&] { return !desk_->job; })) return true;
  lock.unlock();
  desk_->close();  // the worker ends with its job; the next job gets another
  desk_.reset();
  return false;
}

}  // namespace ferry
