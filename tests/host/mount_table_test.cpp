// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> mounts(std::string_view text) {
  std::vector<std::string> out;
  for (const Mount& mount : parse_mountinfo(text)) {
    out.push_back(mount.number + " " + mount.point + " " + mount.source);
  }
  return out;
}

TEST(MountTable, TellsNumberPointAndSourceOfEach) {
  EXPECT_THAT(mounts("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                     "23 22 0:5 / /dev rw,nosuid - devtmpfs udev rw\n"
                     "90 22 8:17 /sub /media/my\\040disk\\134x rw shared:9 master:2 - vfat /dev/s\\040b1 rw"),
              ElementsAre("8:1 / /dev/sda1", "0:5 /dev udev", "8:17 /media/my disk\\x /dev/s b1"));
}

TEST(MountTable, TellsThePathsOfSwap) {
  EXPECT_THAT(parse_swaps("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
                          "/dev/sdb2                               partition\t8388604\t\t0\t\t-2\n"
                          "/var/my\\040swap file 4 0 -3\n"),
              ElementsAre("/dev/sdb2", "/var/my swap"));
}

struct OddRow {
  const char* name;
  std::string text;
};
void PrintTo(const OddRow& row, std::ostream* out) {
  *out << row.name;
}
class OddMountinfo : public testing::TestWithParam<OddRow> {};

TEST_P(OddMountinfo, IsPassedOverAndTheNextLineRead) {
  EXPECT_THAT(mounts(GetParam().text + "\n22 1 8:1 / /x rw - ext4 /dev/sda1 rw\n"),
              ElementsAre("8:1 /x /dev/sda1"));
  EXPECT_THAT(mounts(GetParam().text), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Rows, OddMountinfo,
                         testing::Values(OddRow{"OneWord", "malformed"}, OddRow{"EndsEarly", "93 22 8:17"},
                                         OddRow{"NoDash", "94 22 8:17 / /nodash rw shared:1"},
                                         OddRow{"NothingBehindTheDash", "94 22 8:17 / /x rw -"},
                                         OddRow{"NoSource", "94 22 8:17 / /x rw - ext4"},
                                         OddRow{"Blanks", " \t  "}, OddRow{"Nuls", std::string("a\0b\0c", 5)},
                                         OddRow{"DashIsPartOfAWord",
                                                "94 22 8:17 / /x rw -a -- ext4 /dev/sda rw"}),
                         [](const auto& row) { return row.param.name; });

TEST(MountTable, TakesNothingFromSwapsOfAnotherForm) {
  for (const std::string_view text : {"", "\n\n", "Filename", "partition /dev/sdb2", "\\040/dev/sdb2"}) {
    EXPECT_THAT(parse_swaps(text), IsEmpty()) << text;
  }
}

TEST(MountTable, LeavesAnEscapeThatIsNoneAsItIs) {
  EXPECT_THAT(parse_swaps("/a\\04 x\n/b\\048 x\n/c\\ x\n/d\\777 x\n"),
              ElementsAre("/a\\04", "/b\\048", "/c\\", std::string("/d\377")));
}

}  // namespace
}  // namespace ferry::host
