// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/background_scan.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/nvidia_rules.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;

/// What scans meet, which may outlive a test.
struct Reading {
  std::atomic<int> scans = 0;
  std::promise<void> unblock;
  std::shared_future<void> may_go_on{unblock.get_future()};

  Result<mdev::VgpuInventory> read() {
    ++scans;
    const auto go_on = may_go_on;
    if (go_on.wait_for(20s) != std::future_status::ready) return fail(Errc::failed, "nobody lets it go on");
    return mdev::VgpuInventory{};
  }
};

/// A host whose scans wait until they are let go on.
class BackgroundScanTest : public testing::Test {
 protected:
  /// Runs the loop until so many scans have ended.
  void run_until(int ended) {
    desired_ = ended;
    const auto late = loop_->at(EventLoop::Clock::now() + 30s, [this] { loop_->finish(); });
    loop_->run({});
    loop_->cancel(late);
    EXPECT_EQ(ended_, ended);
  }
  void begin_first() {
    scan_->begin();
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (reading_->scans == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ASSERT_EQ(reading_->scans, 1);
  }

  test::FakeKernel kernel_;
  const std::shared_ptr<Reading> reading_ = std::make_shared<Reading>();
  int ended_ = 0;
  int desired_ = 0;
  std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  std::unique_ptr<BackgroundScan> scan_ = std::make_unique<BackgroundScan>(
      kernel_, test::nvidia_rules(), [reading = reading_](auto&&...) { return reading->read(); }, *loop_,
      [this](const Result<ResourceSet>& offer) {
        EXPECT_TRUE(offer);
        if (++ended_ == desired_) loop_->finish();
      });
};

// What is under way may have seen the host as it was before.
TEST_F(BackgroundScanTest, ScansOnceMoreHoweverOftenItIsAskedMeanwhile) {
  begin_first();
  for (int i = 0; i < 3; ++i) scan_->begin();
  reading_->unblock.set_value();
  run_until(2);
  EXPECT_EQ(reading_->scans, 2);
}

TEST_F(BackgroundScanTest, CallsNoCallerThatHasGone) {
  begin_first();
  scan_.reset();
  reading_->unblock.set_value();
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (reading_.use_count() > 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(reading_.use_count(), 1) << "the scan has ended";
  bool over = false;
  loop_->post([&] {
    over = true;
    loop_->finish();
  });
  loop_->run({});
  EXPECT_TRUE(over);
  EXPECT_EQ(ended_, 0);
}

}  // namespace
}  // namespace ferry::plugin
