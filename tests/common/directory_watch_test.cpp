// SPDX-License-Identifier: Apache-2.0
#include "hostfs/directory_watch.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "tests/support/event_flood.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/inotify_limits.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using Contents = DirectoryWatch::Contents;
using Kind = DirectoryEvent::Kind;

std::vector<Kind> kinds(const DirectoryWatch& watch) {
  std::vector<Kind> out;
  for (const DirectoryEvent& event : watch.read()) out.push_back(event.kind);
  return out;
}

TEST(DirectoryWatch, ReportsWritingOnlyWhereItIsAsked) {
  const test::ScratchDirectory tree;
  tree.file("a", "1");
  const auto asked = test::must(DirectoryWatch::open(tree.path(), Contents::written));
  const auto not_asked = test::must(DirectoryWatch::open(tree.path()));
  tree.file("a", "2");
  EXPECT_THAT(kinds(asked), testing::ElementsAre(Kind::written));
  EXPECT_THAT(kinds(not_asked), testing::IsEmpty());
}

TEST(DirectoryWatch, ReportsAnotherModeOnlyWhereItIsAsked) {
  const test::ScratchDirectory tree;
  tree.file("a", "1");
  const auto asked = test::must(DirectoryWatch::open(tree.path(), Contents::attributes));
  const auto not_asked = test::must(DirectoryWatch::open(tree.path()));
  std::filesystem::permissions(tree.path() / "a", std::filesystem::perms(0640));
  const auto events = asked.read();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Kind::changed);
  EXPECT_EQ(events[0].name, "a");
  EXPECT_THAT(kinds(not_asked), testing::IsEmpty());
}

TEST(DirectoryWatch, SaysAfterAllThatItKeptThatEventsWereLost) {
  const test::ScratchDirectory tree;
  const auto watch = test::must(DirectoryWatch::open(tree.path()));
  test::flood(tree.path());
  const auto events = watch.read();
  ASSERT_EQ(events.size(), test::kept_events() + 1);
  EXPECT_EQ(events.back().kind, Kind::lost);
  EXPECT_EQ(events.back().name, "");
  EXPECT_EQ(std::ranges::count(events, Kind::lost, &DirectoryEvent::kind), 1);
  tree.file("news", "");
  EXPECT_THAT(kinds(watch), testing::ElementsAre(Kind::appeared)) << "it goes on";
}

TEST(DirectoryWatch, HearsNothingMoreOnceItHasLeft) {
  const test::ScratchDirectory tree;
  const auto watch = test::must(DirectoryWatch::open(tree.path()));
  watch.leave();
  tree.file("news", "");
  EXPECT_THAT(kinds(watch), testing::ElementsAre(Kind::gone));
  watch.leave();
  EXPECT_THAT(kinds(watch), testing::IsEmpty()) << "there is nothing to leave";
}

class DirectoryWatchWithout : public testing::TestWithParam<std::pair<test::Inotify, const char*>> {
 protected:
  /// The events that come next, and whether any came in time.
  static std::vector<Kind> next(const DirectoryWatch& watch) {
    constexpr int kPatienceMs = 10'000;
    pollfd waits{.fd = watch.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waits, 1, kPatienceMs), 1);
    return kinds(watch);
  }
};

TEST_P(DirectoryWatchWithout, ATimerHasTheDirectoryLookedAtAndTheLimitIsNamed) {
  const auto [what, sysctl] = GetParam();
  const test::ScratchDirectory tree;
  const test::LogOf log;
  std::optional<test::NoMoreOf> limit(what);
  const auto watch =
      test::must(DirectoryWatch::open(tree.path(), Contents::written, std::chrono::milliseconds(1)));
  EXPECT_THAT(log.text(), testing::HasSubstr(std::string("raise the sysctl ") + sysctl));
  EXPECT_THAT(log.text(), testing::HasSubstr(tree.path().string()));
  EXPECT_THAT(next(watch), testing::ElementsAre(Kind::lost));
  EXPECT_THAT(next(watch), testing::ElementsAre(Kind::lost)) << "time and again";
  limit.reset();
  EXPECT_THAT(next(watch), testing::ElementsAre(Kind::lost)) << "what came before inotify is in no event";
  tree.file("news", "");
  EXPECT_THAT(next(watch), testing::ElementsAre(Kind::appeared, Kind::written)) << "inotify is back";
}

TEST_P(DirectoryWatchWithout, ADirectoryThatIsRemovedIsGone) {
  const test::ScratchDirectory tree;
  tree.directory("a");
  const test::NoMoreOf limit(GetParam().first);
  const auto watch =
      test::must(DirectoryWatch::open(tree.path() / "a", Contents::written, std::chrono::milliseconds(1)));
  std::filesystem::remove(tree.path() / "a");
  auto events = next(watch);
  if (events == std::vector{Kind::lost}) events = next(watch);  // looked at just before
  EXPECT_THAT(events, testing::ElementsAre(Kind::gone));
}

TEST_P(DirectoryWatchWithout, OneThatIsNotThereIsAnError) {
  const test::ScratchDirectory tree;
  const test::NoMoreOf limit(GetParam().first);
  const auto watch = DirectoryWatch::open(tree.path() / "a");
  ASSERT_FALSE(watch);
  EXPECT_TRUE(is_gone(watch.error())) << watch.error().message;
}

INSTANTIATE_TEST_SUITE_P(Limits, DirectoryWatchWithout,
                         testing::Values(std::pair(test::Inotify::instance, "fs.inotify.max_user_instances"),
                                         std::pair(test::Inotify::watch, "fs.inotify.max_user_watches")),
                         [](const auto& row) {
                           return row.param.first == test::Inotify::instance ? "Instances" : "Watches";
                         });

TEST(DirectoryWatch, SaysThatNoDescriptorIsLeft) {
  const test::ScratchDirectory tree;
  const auto there = test::must(DirectoryWatch::open(tree.path()));
  const test::FewDescriptors few(static_cast<rlim_t>(there.fd()));
  const auto watch = DirectoryWatch::open(tree.path());
  ASSERT_FALSE(watch);
  EXPECT_EQ(watch.error().code, std::errc::too_many_files_open);
}

}  // namespace
}  // namespace ferry
