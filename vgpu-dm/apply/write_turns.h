// SPDX-License-Identifier: Apache-2.0
// Limits the number of GPUs written to at a time to half the number of processors.
//
// Making a vGPU takes kernel locks that all GPUs share, and keeps kernel threads as busy as the writer
// (devtmpfs, RCU). More writers together take longer than one after the other.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/pinned.h"

namespace ferry::vgpu {

class WriteTurns {
 public:
  /// A caller that has waited `longest_wait` goes on without a permit: the callers before it may hang.
  explicit WriteTurns(unsigned at_a_time, std::chrono::milliseconds longest_wait = std::chrono::seconds(1))
      : free_(std::max(1U, at_a_time)), longest_wait_(longest_wait) {}

  /// The instance of this process, with at_once() permits.
  static WriteTurns& shared() {
    static WriteTurns turns(at_once());
    return turns;
  }
  static unsigned at_once() { return std::max(1U, std::thread::hardware_concurrency() / 2); }

  /// Holds a permit as long as it lives.
  class Permit : Pinned {
   public:
    explicit Permit(WriteTurns& turns) : turns_(turns), has_it_(turns.take()) {}
    ~Permit() {
      if (has_it_) turns_.give_back();
    }

   private:
    WriteTurns& turns_;
    const bool has_it_;
  };

 private:
  // std::counting_semaphore is no choice: the wait of GCC 12's sleeps half as long again as it has waited.
  bool take() {
    std::unique_lock lock(mutex_);
    if (!given_back_.wait_for(lock, longest_wait_, [this] { return free_ > 0; })) return false;
    --free_;
    return true;
  }
  void give_back() {
    {
      const std::scoped_lock lock(mutex_);
      ++free_;
    }
    given_back_.notify_one();
    std::this_thread::yield();  // the caller's remaining work holds up no other writer
  }

  std::mutex mutex_;
  std::condition_variable given_back_;
  unsigned free_;
  const std::chrono::milliseconds longest_wait_;
};

}  // namespace ferry::vgpu
