// SPDX-License-Identifier: Apache-2.0
#include "agent/only_agent.h"

#include <chrono>
#include <memory>
#include <stop_token>

#include <gtest/gtest.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
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
  OnlyAgent only;
};

TEST(OnlyAgent, BeginsWhenTheOtherOneHasEnded) {
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

TEST(OnlyAgent, EndsWithWhatKeptItFromBeginning) {
  const test::ScratchDirectory scratch;
  HostFs host(scratch.path());
  Agent agent(host, fail(Errc::usage, "no name"));
  const auto run = agent.only.run({});
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().message, "no name");
}

}  // namespace
}  // namespace ferry
