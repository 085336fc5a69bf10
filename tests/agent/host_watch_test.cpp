// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stop_token>

#include <gtest/gtest.h>

#include "agent/desired_state/written_policy.h"
#include "agent/host_files.h"
#include "api/files.h"
#include "api/host_status.h"
#include "tests/support/inotify_limits.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class HostWatchTest : public testing::Test {
 protected:
  HostWatchTest() { EXPECT_TRUE(watch_.begin()); }

  /// True if a change of a file is reported within some time.
  bool is_notified(std::chrono::milliseconds most = seconds(10)) {
    stop_ = {};
    const auto late = loop_->at(EventLoop::Clock::now() + most, [this] { stop_.request_stop(); });
    const int before = notifications_;
    loop_->run(stop_.get_token());
    loop_->cancel(late);
    return notifications_ > before;
  }
  /// Runs until every report has arrived.
  void be_still() {
    while (is_notified(std::chrono::milliseconds(50)))
      ;
  }
  fs::path folder() const { return (scratch_.path() / api::kStatusFile).parent_path(); }

  std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
  std::stop_source stop_;
  int notifications_ = 0;
  HostWatch watch_{*loop_, host_, [this] {
                     ++notifications_;
                     stop_.request_stop();
                   }};
};

TEST_F(HostWatchTest, HearsOfBothFiles) {
  for (const char* file : {api::kDesiredFile, api::kStatusFile}) {
    ASSERT_TRUE(host_.write_file(file, "{}"));
    EXPECT_TRUE(is_notified()) << file;
    be_still();
  }
}

TEST_F(HostWatchTest, HearsOfAFileThatAPersonWritesInto) {
  ASSERT_TRUE(host_.write_file(api::kStatusFile, "{}"));
  be_still();
  std::ofstream(scratch_.path() / api::kStatusFile, std::ios::app) << " ";
  EXPECT_TRUE(is_notified());
}

TEST_F(HostWatchTest, HearsOnInAFolderThatHasTakenTheFormersPlace) {
  fs::rename(folder(), scratch_.path() / "former");
  EXPECT_TRUE(is_notified());
  be_still();
  ASSERT_TRUE(host_.write_file(api::kStatusFile, "{}"));
  EXPECT_TRUE(is_notified());
  fs::remove_all(folder());
  EXPECT_TRUE(is_notified());
  be_still();
  ASSERT_TRUE(host_.write_file(api::kStatusFile, "{}"));
  EXPECT_TRUE(is_notified());
}

TEST_F(HostWatchTest, MakesNoHostThatIsNotThere) {
  HostFs nowhere(scratch_.path() / "nowhere");
  HostWatch watch(*loop_, nowhere, [] {});
  const auto begun = watch.begin();
  ASSERT_FALSE(begun);
  EXPECT_NE(begun.error().message.find("nowhere"), std::string::npos) << begun.error().message;
  EXPECT_FALSE(host_.exists("nowhere"));
}

TEST(HostWatchWithoutInotify, Begins) {
  const auto loop = test::must(EventLoop::create());
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  for (const auto what : {test::Inotify::instance, test::Inotify::watch}) {
    const test::NoMoreOf limit(what);
    HostWatch watch(*loop, host, [] {});
    const auto begun = watch.begin();
    EXPECT_TRUE(begun) << begun.error().message;
  }
}

}  // namespace
}  // namespace ferry::agent
