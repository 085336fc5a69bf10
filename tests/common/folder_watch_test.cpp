// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stop_token>

#include <gtest/gtest.h>

#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

class FolderWatchTest : public testing::Test {
 protected:
  /// True if a change of a file is reported within some time.
  bool is_notified(std::chrono::milliseconds most = std::chrono::seconds(10)) {
    stop_ = {};
    const auto late = loop_->at(EventLoop::Clock::now() + most, [this] { stop_.request_stop(); });
    const int before = notifications_;
    loop_->run(stop_.get_token());
    loop_->cancel(late);
    return notifications_ > before;
  }
  void write(const fs::path& file) { std::ofstream(scratch_.path() / file) << "a"; }
  /// Whether a file that is written by and by is heard of; a report that waits before that does not count.
  bool hears_of(const fs::path& file) {
    while (is_notified(std::chrono::milliseconds(50)))
      ;
    write(file);
    return is_notified();
  }

  std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  test::ScratchDirectory scratch_;
  std::stop_source stop_;
  int notifications_ = 0;
  FolderWatch watch_{*loop_,
                     [this] {
                       ++notifications_;
                       stop_.request_stop();
                     },
                     std::chrono::milliseconds(1)};
};

TEST_F(FolderWatchTest, HearsOfSeveralFolders) {
  scratch_.directory("a");
  ASSERT_TRUE(watch_.add(scratch_.path() / "a"));
  ASSERT_TRUE(watch_.add(scratch_.path() / "a")) << "two files in one";
  const HostFs host(scratch_.path());
  ASSERT_TRUE(watch_.add(scratch_.path() / "b", [&host] { return host.make_directory("b"); }));
  EXPECT_TRUE(hears_of("a/file"));
  EXPECT_TRUE(hears_of("b/file"));
}

TEST_F(FolderWatchTest, HearsOnInAFolderThatSomebodyMakesAnew) {
  scratch_.directory("a");
  ASSERT_TRUE(watch_.add(scratch_.path() / "a"));
  fs::rename(scratch_.path() / "a", scratch_.path() / "former");
  ASSERT_TRUE(is_notified());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(is_notified()) << "it is looked for";
  EXPECT_FALSE(fs::exists(scratch_.path() / "a"));
  scratch_.directory("a");
  EXPECT_TRUE(hears_of("a/file"));
  EXPECT_TRUE(hears_of("a/other")) << "and is looked for no longer";
}

TEST_F(FolderWatchTest, SaysThatThereIsNone) {
  const auto added = watch_.add(scratch_.path() / "a");
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find((scratch_.path() / "a").string()), std::string::npos);
}

TEST_F(FolderWatchTest, SaysWhyAFolderCannotBeMade) {
  const HostFs nowhere(scratch_.path() / "nowhere");
  const auto added = watch_.add(nowhere.root() / "b", [&nowhere] { return nowhere.make_directory("b"); });
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find(nowhere.root().string()), std::string::npos);
}

}  // namespace
}  // namespace ferry
