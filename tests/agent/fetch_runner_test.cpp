// SPDX-License-Identifier: Apache-2.0
// With programs that stand for ferry-fetch.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "agent/kata/artifact_pulls.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;

class FetchRunnerTest : public testing::Test {
 protected:
  std::filesystem::path program(const std::string& text) {
    scratch_.file("ferry-fetch", "#!/bin/sh\n" + text);
    const auto file = scratch_.path() / "ferry-fetch";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  Result<> begin(FetchRunner& runner) {
    return runner.begin({.name = "kata-a", .url = "registry.example/a:1"},
                        [this](Result<kata::Artifact> artifact) {
                          ended_.emplace(std::move(artifact));
                          stop_.request_stop();
                        });
  }
  /// The loop runs until it has ended, or for so long.
  bool ends(std::chrono::milliseconds most = 20s) {
    const auto late = loop_->at(EventLoop::Clock::now() + most, [this] { stop_.request_stop(); });
    loop_->run(stop_.get_token());
    loop_->cancel(late);
    stop_ = {};
    return ended_.has_value();
  }
  /// The lines that the programs have written into this file by now.
  std::size_t lines_in(const std::string& file) const {
    const std::string text = host_.read_file(file).value_or("");
    return static_cast<std::size_t>(std::ranges::count(text, '\n'));
  }
  /// Until programs have begun so often, as they say in the file `starts`; false where that does not come.
  bool starts(std::size_t times = 1) {
    for (int i = 0; i < 1000 && lines_in("starts") < times; ++i) ends(20ms);
    return lines_in("starts") == times;
  }
  /// A line in the file `starts`.
  std::string say_start() const { return "echo $$ >> " + (scratch_.path() / "starts").string() + "\n"; }

  std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
  std::stop_source stop_;
  std::optional<Result<kata::Artifact>> ended_;
};

TEST_F(FetchRunnerTest, HearsWhatHasComeOfIt) {
  FetchRunner runner(*loop_, host_,
                     program("cat > " + (scratch_.path() / "request").string() +
                             "\n"
                             "echo '{\"error\":{\"category\":\"ferry\",\"code\":1,\"message\":\"nobody "
                             "answers\",\"hint\":\"h\"}}'\n"));
  ASSERT_TRUE(begin(runner));
  EXPECT_FALSE(ended_) << "never from within the call";
  ASSERT_TRUE(ends());
  EXPECT_EQ(ended_->error().message, "nobody answers");
  EXPECT_THAT(test::must(host_.read_file("request")), testing::HasSubstr(R"("url":"registry.example/a:1")"));
  // And another one behind it.
  ended_.reset();
  ASSERT_TRUE(begin(runner));
  EXPECT_TRUE(ends());
}

TEST_F(FetchRunnerTest, OneThatIsStoppedIsGoneAndReportsNothing) {
  FetchRunner runner(*loop_, host_, program(say_start() + "exec sleep 600\n"));
  ASSERT_TRUE(begin(runner));
  ASSERT_TRUE(starts());
  const int pid = std::stoi(test::must(host_.read_file("starts")));
  EXPECT_EQ(::kill(pid, 0), 0);
  runner.stop();
  for (int i = 0; i < 1000 && ::kill(pid, 0) == 0; ++i) ends(20ms);
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_FALSE(ends(50ms));
}

TEST_F(FetchRunnerTest, OneThatIsStoppedIsNotWaitedForAndTheNextBeginsAfterItsEnd) {
  // The output of the first one stays open until a line comes, as that of a process whose disk hangs.
  ASSERT_EQ(::mkfifo((scratch_.path() / "held").c_str(), 0600), 0);
  const UniqueFd held = test::must(host_.open("held", O_RDWR));
  scratch_.file("first", "");
  FetchRunner runner(
      *loop_, host_,
      program("cd " + scratch_.path().string() + "\ntest -e first && rm first && read line < held &\n" +
              say_start() + "exec sleep 600\n"));
  ASSERT_TRUE(begin(runner));
  ASSERT_TRUE(starts());
  runner.stop();
  ASSERT_TRUE(begin(runner)) << "and at once";
  ends(200ms);
  EXPECT_EQ(lines_in("starts"), 1U) << "the first one has not ended";
  ASSERT_EQ(::write(held.get(), "\n", 1), 1);
  EXPECT_TRUE(starts(2));
  EXPECT_FALSE(ended_);
}

TEST_F(FetchRunnerTest, OneThatWaitsForAnothersEndCanBeStoppedToo) {
  FetchRunner runner(*loop_, host_, program(say_start() + "exec sleep 600\n"));
  ASSERT_TRUE(begin(runner));
  ASSERT_TRUE(starts());
  runner.stop();
  ASSERT_TRUE(begin(runner));
  runner.stop();
  EXPECT_FALSE(ends(300ms));
  EXPECT_EQ(lines_in("starts"), 1U);
}

TEST_F(FetchRunnerTest, OneThatIsNotThereOrDiesIsAnError) {
  FetchRunner none(*loop_, host_, scratch_.path() / "nothing");
  EXPECT_EQ(begin(none).error().code, Errc::unreachable);
  FetchRunner dies(*loop_, host_, program("kill -9 $$\n"));
  ASSERT_TRUE(begin(dies));
  ASSERT_TRUE(ends());
  EXPECT_THAT(ended_->error().message, testing::HasSubstr("137"));
  ended_.reset();
  FetchRunner babbles(*loop_, host_, program("echo hello\n"));
  ASSERT_TRUE(begin(babbles));
  ASSERT_TRUE(ends());
  EXPECT_EQ(ended_->error().code, Errc::malformed_host);
}

}  // namespace
}  // namespace ferry::agent
