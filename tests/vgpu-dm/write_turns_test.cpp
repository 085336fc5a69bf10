// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/write_turns.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

namespace ferry::vgpu {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(WriteTurns, LeaveTheKernelAProcessorOfItsOwn) {
  EXPECT_GE(WriteTurns::at_once(), 1U);
  EXPECT_LE(WriteTurns::at_once(), std::max(1U, std::thread::hardware_concurrency() / 2));
}

TEST(WriteTurns, AreNotMoreThanThereAre) {
  WriteTurns turns(2, 1h);
  std::optional<WriteTurns::Permit> first(std::in_place, turns);
  const WriteTurns::Permit second(turns);
  std::atomic<bool> waited = true;
  std::promise<void> begun;
  auto third = std::async(std::launch::async, [&] {
    begun.set_value();
    const WriteTurns::Permit permit(turns);
    EXPECT_FALSE(waited) << "before one of the others was over";
  });
  begun.get_future().wait();
  EXPECT_EQ(third.wait_for(20ms), std::future_status::timeout);
  waited = false;
  first.reset();
  third.get();
}

TEST(WriteTurns, DoNotWaitForEverForOneThatHangs) {
  WriteTurns turns(1, 20ms);
  const WriteTurns::Permit hangs(turns);
  const auto begin = Clock::now();
  { const WriteTurns::Permit second(turns); }
  { const WriteTurns::Permit third(turns); }  // the second had none that it could give back
  EXPECT_GE(Clock::now() - begin, 40ms);
}

}  // namespace
}  // namespace ferry::vgpu
