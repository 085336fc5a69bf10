// SPDX-License-Identifier: Apache-2.0
// With programs that stand for ferry-fetch.
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

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
    return runner.begin(
        {.name = "kata-a", .url = "registry.example/a:1"},
        [this](const kata::FetchProgress& progress) { progress_.push_back(progress.done); },
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

  std::unique_ptr<EventLoop> loop_ = test::must(EventLoop::create());
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
  std::stop_source stop_;
  std::vector<std::uint64_t> progress_;
  std::optional<Result<kata::Artifact>> ended_;
};

TEST_F(FetchRunnerTest, HearsHowFarItIsAndWhatHasComeOfIt) {
  FetchRunner runner(*loop_, host_,
                     program("cat > " + (scratch_.path() / "request").string() +
                             "\n"
                             "echo '{\"progress\":{\"done\":1,\"total\":2}}'\n"
                             "echo '{\"error\":{\"category\":\"ferry\",\"code\":1,\"message\":\"nobody "
                             "answers\",\"hint\":\"h\"}}'\n"));
  ASSERT_TRUE(begin(runner));
  EXPECT_FALSE(ended_) << "never from within the call";
  ASSERT_TRUE(ends());
  EXPECT_THAT(progress_, testing::ElementsAre(1U));
  EXPECT_EQ(ended_->error().message, "nobody answers");
  EXPECT_THAT(test::must(host_.read_file("request")), testing::HasSubstr(R"("url":"registry.example/a:1")"));
  // And another one behind it.
  ended_.reset();
  ASSERT_TRUE(begin(runner));
  EXPECT_TRUE(ends());
}

TEST_F(FetchRunnerTest, OneThatIsStoppedIsGoneAndReportsNothing) {
  FetchRunner runner(*loop_, host_,
                     program("echo $$ > " + (scratch_.path() / "pid").string() +
                             "\necho '{\"progress\":{\"done\":1,\"total\":2}}'\nexec sleep 600\n"));
  ASSERT_TRUE(begin(runner));
  while (progress_.empty()) ends(20ms);
  const int pid = std::stoi(test::must(host_.read_file("pid")));
  EXPECT_EQ(::kill(pid, 0), 0);
  runner.stop();
  for (int i = 0; i < 1000 && ::kill(pid, 0) == 0; ++i) ends(20ms);
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_FALSE(ends(50ms));
}

TEST_F(FetchRunnerTest, OneThatIsStoppedIsNotWaitedForAndTheNextBeginsAfterItsEnd) {
  // The output stays open for a while, as that of a process whose disk hangs.
  FetchRunner runner(
      *loop_, host_,
      program("echo >> " + (scratch_.path() / "starts").string() +
              "\nsleep 3 &\necho '{\"progress\":{\"done\":1,\"total\":2}}'\nexec sleep 600\n"));
  ASSERT_TRUE(begin(runner));
  while (progress_.empty()) ends(20ms);
  const auto before = EventLoop::Clock::now();
  runner.stop();
  ASSERT_TRUE(begin(runner));
  EXPECT_LT(EventLoop::Clock::now() - before, 2s);
  ends(200ms);
  EXPECT_EQ(test::must(host_.read_file("starts")), "\n") << "the first one has not ended";
  for (int i = 0; i < 1000 && progress_.size() < 2; ++i) ends(20ms);
  EXPECT_EQ(test::must(host_.read_file("starts")), "\n\n");
  EXPECT_EQ(progress_.size(), 2U);
  EXPECT_FALSE(ended_);
}

TEST_F(FetchRunnerTest, OneThatWaitsForAnothersEndCanBeStoppedToo) {
  FetchRunner runner(*loop_, host_,
                     program("echo '{\"progress\":{\"done\":1,\"total\":2}}'\nexec sleep 600\n"));
  ASSERT_TRUE(begin(runner));
  while (progress_.empty()) ends(20ms);
  runner.stop();
  ASSERT_TRUE(begin(runner));
  runner.stop();
  EXPECT_FALSE(ends(300ms));
  EXPECT_EQ(progress_.size(), 1U);
}

TEST_F(FetchRunnerTest, OneThatIsNotThereOrDiesIsAnError) {
  FetchRunner none(*loop_, host_, scratch_.path() / "nothing");
  EXPECT_EQ(begin(none).error().code, Errc::unreachable);
  FetchRunner dies(*loop_, host_, program("kill -9 $$\n"));
  ASSERT_TRUE(begin(dies));
  ASSERT_TRUE(ends());
  EXPECT_THAT(ended_->error().message, testing::HasSubstr("137"));
  ended_.reset();
  FetchRunner babbles(*loop_, host_, program("echo hello\nexec sleep 600\n"));
  ASSERT_TRUE(begin(babbles));
  ASSERT_TRUE(ends());
  EXPECT_EQ(ended_->error().code, Errc::malformed_host);
}

}  // namespace
}  // namespace ferry::agent
