// SPDX-License-Identifier: Apache-2.0
#include "common/directory_watch.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "tests/support/event_flood.h"
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

TEST(DirectoryWatch, TellsOfWritingOnlyWhereItIsAsked) {
  const test::ScratchDirectory tree;
  tree.file("a", "1");
  const auto told = test::must(DirectoryWatch::open(tree.path(), Contents::told));
  const auto untold = test::must(DirectoryWatch::open(tree.path()));
  tree.file("a", "2");
  EXPECT_THAT(kinds(told), testing::ElementsAre(Kind::written));
  EXPECT_THAT(kinds(untold), testing::IsEmpty());
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

}  // namespace
}  // namespace ferry
