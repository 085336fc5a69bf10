// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <stop_token>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "agent/node_agent.h"
#include "common/log.h"
#include "host/system/agent_folders.h"
#include "tests/support/as_user.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

struct Agent {
  explicit Agent(HostFs& host, Result<> outcome = {})
      : only(*loop, host, [this, outcome] {
          ++begun;
          loop->finish();
          return outcome;
        }) {}
  std::unique_ptr<EventLoop> loop = test::must(EventLoop::create());
  int begun = 0;
  AgentInstance only;
};

TEST(AgentInstance, BeginsWhenTheOtherOneHasEnded) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  auto first = std::make_unique<Agent>(host);
  EXPECT_TRUE(first->only.run({}));
  EXPECT_EQ(first->begun, 1);

  Agent second(host);
  std::stop_source stop;
  second.loop->at(EventLoop::Clock::now() + std::chrono::milliseconds(300), [&] { stop.request_stop(); });
  EXPECT_TRUE(second.only.run(stop.get_token()));
  EXPECT_EQ(second.begun, 0) << "there is one";
  first.reset();
  EXPECT_TRUE(second.only.run({}));
  EXPECT_EQ(second.begun, 1);
}

TEST(AgentInstance, EndsWithWhatKeptItFromBeginning) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  Agent agent(host, fail(Errc::usage, "no name"));
  const auto run = agent.only.run({});
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().message, "no name");
}

TEST(AgentInstance, WaitsForAHostdThatGivesItTheFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr gid_t kGroup = 64'711;
  const test::ScratchDirectory scratch;
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  scratch.directory("var/lib/ferry");  // as the kubelet makes it
  HostFs host(scratch.path());
  Agent agent(host);
  std::stop_source stop;
  agent.loop->at(EventLoop::Clock::now() + std::chrono::milliseconds(300), [&] { stop.request_stop(); });
  test::must(set_up_log("info", LogFormat::text));
  testing::internal::CaptureStderr();
  {
    const test::AsUser other(kGroup);
    EXPECT_TRUE(agent.only.run(stop.get_token())) << "it does not end";
  }
  const std::string said = testing::internal::GetCapturedStderr();
  test::must(set_up_log("off", LogFormat::text));
  EXPECT_EQ(agent.begun, 0);
  EXPECT_THAT(said, testing::AllOf(testing::HasSubstr("hostd has not given /var/lib/ferry to group 64711"),
                                   testing::HasSubstr("ferry hostd --agent-group=64711"),
                                   testing::HasSubstr("a hostd of an earlier version does not")));
  host::AgentFolders(host, {.group = kGroup, .lock = "var/lib/ferry/agent.lock", .folders = {}, .trees = {}})
      .give();
  const test::AsUser other(kGroup);
  EXPECT_TRUE(agent.only.run({}));
  EXPECT_EQ(agent.begun, 1);
}

}  // namespace
}  // namespace ferry::agent
