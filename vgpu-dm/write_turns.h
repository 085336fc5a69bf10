// SPDX-License-Identifier: Apache-2.0
// How many GPUs are written to at a time: as many as there are processors.
//
// What makes a vGPU takes locks of the kernel that all GPUs share. More writers than processors contend for
// them, and all together take longer than one after the other.
#pragma once

#include <algorithm>
#include <chrono>
#include <semaphore>
#include <thread>

namespace ferry {

class WriteTurns {
 public:
  /// Who has waited `longest_wait` goes on without a turn: those before it may hang.
  explicit WriteTurns(unsigned at_a_time, std::chrono::milliseconds longest_wait = std::chrono::seconds(1))
      : free_(std::max(1U, at_a_time)), longest_wait_(longest_wait) {}

  /// The one of this process.
  static WriteTurns& shared() {
    static WriteTurns turns(std::thread::hardware_concurrency());
    return turns;
  }

  /// Held as long as this lives.
  class Turn {
   public:
    explicit Turn(WriteTurns& turns)
        : turns_(turns), has_it_(turns.free_.try_acquire_for(turns.longest_wait_)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Turn(Turn&&) = delete;
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (has_it_) turns_.free_.release();
    }

   private:
    WriteTurns& turns_;
    const bool has_it_;
  };

 private:
  std::counting_semaphore<> free_;
  const std::chrono::milliseconds longest_wait_;
};

}  // namespace ferry
