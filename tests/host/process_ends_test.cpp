// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <stop_token>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "host/usage/process_facts.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/idle_process.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;

class ProcessEndsTest : public testing::Test {
 protected:
  ProcessEndsTest() { be_numbered_as("pid:[4026531836]"); }
  void be_numbered_as(const std::string& shown) {
    std::filesystem::remove_all(tree_.path() / "proc");
    for (const char* process : {"self", "1"}) {
      const auto folder = tree_.path() / "proc" / process / "ns";
      std::filesystem::create_directories(folder);
      std::filesystem::create_symlink(process == std::string("1") ? shown : "pid:[4026531836]",
                                      folder / "pid");
    }
  }
  /// Runs the loop until so many ends have been reported; false: not in time.
  bool reported(int number) {
    stop_ = {};
    awaited_ = number;
    const auto patience = loop_->at(EventLoop::Clock::now() + 20s, [this] { stop_.request_stop(); });
    if (reported_ < number) loop_->run(stop_.get_token());
    loop_->cancel(patience);
    return reported_ == number;
  }
  /// Reports the ends that are ready, and waits for none.
  void turn() {
    stop_ = {};
    loop_->at(EventLoop::Clock::now(), [this] { stop_.request_stop(); });
    loop_->run(stop_.get_token());
  }
  static std::set<int> numbers(const std::vector<test::IdleProcess>& processes) {
    std::set<int> out;
    for (const auto& process : processes) out.insert(process.pid());
    return out;
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  std::stop_source stop_;
  int awaited_ = 0;
  int reported_ = 0;
  ProcessEnds ends_{*loop_, host_, [this] {
                      if (++reported_ == awaited_) stop_.request_stop();
                    }};
};

TEST_F(ProcessEndsTest, TellsOfEachOnce) {
  const std::vector<test::IdleProcess> processes(3);
  EXPECT_TRUE(ends_.watch(numbers(processes)));
  for (const auto& process : processes) process.end_now();
  EXPECT_TRUE(reported(3));
  EXPECT_TRUE(ends_.watch(numbers(processes))) << "though somebody says still that they hold something";
  turn();
  EXPECT_EQ(reported_, 3);
}

TEST_F(ProcessEndsTest, WatchesNoMoreThanItSays) {
  const std::vector<test::IdleProcess> processes(ProcessEnds::kMost + 1);
  std::set<int> all = numbers(processes);
  EXPECT_FALSE(ends_.watch(all));
  all.erase(all.begin());
  EXPECT_TRUE(ends_.watch(all)) << "who is left";
}

TEST_F(ProcessEndsTest, LeavesMostDescriptorsToOthers) {
  const std::vector<test::IdleProcess> processes(10);
  const auto all_watched_of = [&](rlim_t most) {
    const test::FewDescriptors few(most);
    return ends_.watch(numbers(processes));
  };
  EXPECT_TRUE(all_watched_of(40));
  EXPECT_TRUE(ends_.watch({}));
  EXPECT_FALSE(all_watched_of(39));
}

TEST_F(ProcessEndsTest, GivesBackWhatItHasOfTheLastDescriptors) {
  const std::vector<test::IdleProcess> processes(10);
  // A sanitizer's first look at the type of an object takes a pipe, which is not to be had below.
  EXPECT_TRUE(ends_.watch({processes.front().pid()}));
  EXPECT_TRUE(ends_.watch({}));
  const test::FewDescriptors few(100);
  std::vector<UniqueFd> others;
  do others.emplace_back(::dup(STDERR_FILENO));
  while (others.back().valid());
  others.resize(others.size() - 5);  // the last is none
  EXPECT_FALSE(ends_.watch(numbers(processes)));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(others.emplace_back(::dup(STDERR_FILENO)).valid());
}

TEST_F(ProcessEndsTest, TellsNothingOfAnotherNamespacesNumbers) {
  be_numbered_as("pid:[4026532000]");
  const std::vector<test::IdleProcess> processes(1);
  EXPECT_FALSE(ends_.watch(numbers(processes)));
  processes[0].end_now();
  turn();
  EXPECT_EQ(reported_, 0);
}

}  // namespace
}  // namespace ferry::host
