// SPDX-License-Identifier: Apache-2.0
#include "hostfs/write_progress.h"

#include <fcntl.h>

#include <gtest/gtest.h>

#include "tests/support/must.h"

namespace ferry {
namespace {

TEST(WriteProgress, IsSeenByTheOtherSide) {
  auto ours = test::must(WriteProgress::make());
  auto theirs = test::must(WriteProgress::of(UniqueFd(::fcntl(ours.descriptor(), F_DUPFD_CLOEXEC, 0))));
  EXPECT_EQ(ours.done(), 0U);
  EXPECT_FALSE(theirs.each_is_waited_for());
  theirs.one_more();
  theirs.one_more();
  EXPECT_EQ(ours.done(), 2U);
  ours.wait_for_each(true);
  EXPECT_TRUE(theirs.each_is_waited_for());
  ours.start();
  EXPECT_EQ(theirs.done(), 0U);
  EXPECT_FALSE(theirs.each_is_waited_for());
}

TEST(WriteProgress, IsNoOtherFile) {
  EXPECT_FALSE(WriteProgress::of(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
  EXPECT_EQ(WriteProgress::of(UniqueFd()).error().code, std::errc::bad_file_descriptor);
}

}  // namespace
}  // namespace ferry
