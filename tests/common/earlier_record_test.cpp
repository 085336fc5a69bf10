// SPDX-License-Identifier: Apache-2.0
#include "hostfs/earlier_record.h"

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using testing::IsEmpty;

TEST(EarlierRecords, AreNamedWithTheCommandThatHasThemRead) {
  const test::ScratchDirectory tree;
  const HostFs host(tree.path());
  EXPECT_THAT(earlier_records(host), IsEmpty());
  tree.directory("run/ferry/moves");
  tree.file("run/ferry/hostd/moves/15.json", "{}");
  EXPECT_THAT(earlier_records(host), IsEmpty()) << "an empty folder, and what is read";
  tree.file("run/ferry/stopped-services.json", "{}");
  const auto found = earlier_records(host);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, Errc::refused);
  EXPECT_EQ(found[0].message,
            "/run/ferry/stopped-services.json is of an earlier version of Ferry and is not read: the device "
            "plugin could write it");
  EXPECT_EQ(
      found[0].hint,
      "if Ferry did not write it, remove it; then no service that it names is started again. If its content "
      "is "
      "right, run `mkdir -p /run/ferry/hostd && mv /run/ferry/stopped-services.json /run/ferry/hostd/`");
}

TEST(EarlierRecords, OfEachKindAreFound) {
  const test::ScratchDirectory tree;
  for (const char* file :
       {"moves/15.json", "stopped-services.json", "unbind-locks/0000:01:00.0", "stuck/7.json"})
    tree.file(std::string("run/ferry/") + file, "{}");
  const auto found = earlier_records(HostFs(tree.path()));
  ASSERT_EQ(found.size(), 4U);
  EXPECT_THAT(found[0].hint,
              testing::HasSubstr(
                  "`mkdir -p /run/ferry/hostd/moves && mv /run/ferry/moves/* /run/ferry/hostd/moves/`"));
  EXPECT_THAT(found[3].hint,
              testing::HasSubstr(
                  "`mkdir -p /run/ferry/stuck-writes && mv /run/ferry/stuck/* /run/ferry/stuck-writes/`"));
}

}  // namespace
}  // namespace ferry
