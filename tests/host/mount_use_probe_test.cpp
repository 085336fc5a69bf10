// SPDX-License-Identifier: Apache-2.0
#include "host/mount_use_probe.h"

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kMountinfo =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "23 22 0:5 / /dev rw,nosuid - devtmpfs udev rw\n"
    "90 22 8:17 /sub /media/my\\040disk\\134x rw shared:9 master:2 - vfat /dev/sdb1 rw\n"
    "91 22 0:44 / /media/btrfs rw - btrfs /dev/sdc rw\n"
    "92 22 244:9 / /media/zram rw - ext4 /dev/zram9 rw\n"
    "malformed\n"
    "93 22 8:17\n"
    "94 22 8:17 / /nodash rw shared:1\n";

class MountUseProbeTest : public testing::Test {
 protected:
  MountUseProbeTest() { tree_.file("proc/1/mountinfo", kMountinfo); }
  std::vector<std::string> holders(const DeviceNode& node) {
    std::vector<std::string> out;
    const std::vector<UseQuestion> questions = {{.device = "0000:01:00.2", .nodes = {node}}};
    const UseReport report = must(MountUseProbe(host_).look(questions));
    EXPECT_THAT(report.unknown, IsEmpty());
    for (const Holder& holder : report.of("0000:01:00.2")) out.push_back(holder.text());
    return out;
  }
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(MountUseProbeTest, NamesTheMountPoint) {
  EXPECT_THAT(holders({.name = "/dev/sdb1", .number = {.major = 8, .minor = 17}, .block = true}),
              ElementsAre("the file system mounted at /media/my disk\\x holds /dev/sdb1"));
}

TEST_F(MountUseProbeTest, FindsAFileSystemThatShowsNumbersOfItsOwn) {
  EXPECT_THAT(holders({.name = "/dev/sdc", .number = {.major = 8, .minor = 32}, .block = true}),
              ElementsAre("the file system mounted at /media/btrfs holds /dev/sdc"));
}

TEST_F(MountUseProbeTest, FindsNothingOfADiskThatIsNotMounted) {
  EXPECT_THAT(holders({.name = "/dev/sdd", .number = {.major = 8, .minor = 48}, .block = true}), IsEmpty());
}

TEST_F(MountUseProbeTest, DoesNotTakeACharacterDeviceForABlockDeviceOfThatNumber) {
  EXPECT_THAT(holders({.name = "/dev/vfio/9", .number = {.major = 244, .minor = 9}, .block = false}),
              IsEmpty());
}

TEST_F(MountUseProbeTest, SaysWhenMountsCannotBeRead) {
  tree_.remove("proc/1/mountinfo");
  const std::vector<UseQuestion> questions = {
      {.device = "x", .nodes = {{.name = "/dev/sdb", .number = {.major = 8, .minor = 16}, .block = true}}}};
  const UseReport report = must(MountUseProbe(host_).look(questions));
  EXPECT_THAT(report.unknown,
              ElementsAre(HasSubstr("mounted file systems: open /proc/1/mountinfo: No such file")));
  EXPECT_EQ(report.blind, report.unknown[0]);
}

TEST_F(MountUseProbeTest, ReadsNothingWhereNoBlockDeviceIsAskedAbout) {
  tree_.remove("proc/1/mountinfo");
  EXPECT_THAT(holders({.name = "/dev/vfio/9", .number = {.major = 244, .minor = 9}}), IsEmpty());
}

}  // namespace
}  // namespace ferry
