// SPDX-License-Identifier: Apache-2.0
#include "common/directory_watch.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace ferry
