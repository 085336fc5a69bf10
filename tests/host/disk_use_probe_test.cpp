// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <map>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kDevice = "0000:01:00.2";

vfio::DeviceNode disk(const std::string& name, std::uint32_t minor) {
  return {.name = name, .number = {.major = 8, .minor = minor}, .block = true};
}

/// A host whose process 1 has mounted partitions of sda, sdb and sdc.
class DiskUseProbeTest : public testing::Test {
 protected:
  DiskUseProbeTest() {
    tree_.file("proc/1/mountinfo",
               "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
               "90 22 8:17 /sub /media/disk rw shared:9 master:2 - vfat /dev/sdb1 rw\n"
               "91 22 0:44 / /media/btrfs rw - btrfs /dev/sdc rw\n"
               "92 22 244:9 / /media/zram rw - ext4 /dev/zram9 rw\n");
    tree_.link("proc/1/ns/mnt", "mnt:[4026531841]");
  }
  void process(int pid, const std::string& space, const std::string& mountinfo) {
    const std::string directory = "proc/" + std::to_string(pid);
    tree_.file(directory + "/mountinfo", mountinfo);
    if (!space.empty()) tree_.link(directory + "/ns/mnt", space);
  }
  vfio::UseReport look(const std::vector<vfio::DeviceNode>& nodes) {
    const auto claim = [this](const vfio::DeviceNode& node) -> Result<> {
      asked_.push_back(node.name);
      if (!claims_.contains(node.name)) return {};
      return fail(error_from_errno(claims_.at(node.name), "open " + node.name));
    };
    const std::vector<vfio::UseQuestion> questions = {{.device = kDevice, .nodes = nodes}};
    return must(disk_users(host_, claim, questions));
  }
  std::vector<std::string> users(const std::vector<vfio::DeviceNode>& nodes) {
    const vfio::UseReport report = look(nodes);
    EXPECT_THAT(report.unknown, IsEmpty());
    EXPECT_EQ(report.blind, "");
    std::vector<std::string> out;
    for (const vfio::DeviceUser& user : report.of(kDevice)) out.push_back(user.text());
    return out;
  }
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  std::map<std::string, int> claims_;  // the errno of an open, by node
  std::vector<std::string> asked_;
};

TEST_F(DiskUseProbeTest, NamesTheMountPoint) {
  EXPECT_THAT(users({disk("/dev/sdb1", 17)}),
              ElementsAre("the file system mounted at /media/disk holds /dev/sdb1"));
}

TEST_F(DiskUseProbeTest, FindsAFileSystemThatShowsNumbersOfItsOwn) {
  EXPECT_THAT(users({disk("/dev/sdc", 32)}),
              ElementsAre("the file system mounted at /media/btrfs holds /dev/sdc"));
}

TEST_F(DiskUseProbeTest, FindsNothingOfADiskThatIsNotUsed) {
  EXPECT_THAT(users({disk("/dev/sdd", 48)}), IsEmpty());
}

TEST_F(DiskUseProbeTest, DoesNotTakeACharacterDeviceForABlockDeviceOfThatNumber) {
  EXPECT_THAT(users({{.name = "/dev/vfio/9", .number = {.major = 244, .minor = 9}, .block = false}}),
              IsEmpty());
}

TEST_F(DiskUseProbeTest, FindsWhatOnlyAContainerHasMounted) {
  process(412, "mnt:[4026532500]", "300 299 8:33 / /data rw - xfs /dev/data rw\n");
  tree_.file("proc/412/cgroup", "0::/kubepods/pod0123456789abcdef0123456789abcdef/x\n");
  process(413, "mnt:[4026532500]",
          "300 299 8:33 / /data rw - xfs /dev/data rw\n301 299 8:34 / /x rw - xfs /dev/y rw\n");
  EXPECT_THAT(users({disk("/dev/sdc1", 33)}),
              ElementsAre("the file system mounted at /data (pid 412) in pod "
                          "0123456789abcdef0123456789abcdef holds /dev/sdc1"));
  EXPECT_THAT(users({disk("/dev/sdc2", 34)}), IsEmpty()) << "that namespace has been read already";
}

TEST_F(DiskUseProbeTest, ReadsProcessesWhoseNamespaceIsUnknownAsWell) {
  process(412, "", "300 299 8:33 / /data rw - xfs /dev/data rw\n");
  EXPECT_THAT(users({disk("/dev/sdc1", 33)}),
              ElementsAre("the file system mounted at /data (pid 412) holds /dev/sdc1"));
}

TEST_F(DiskUseProbeTest, TellsTheCopiesThatContainersHaveOfTheHostsMountOnce) {
  process(412, "mnt:[4026532500]", "300 299 8:17 / /host/media/disk rw - vfat /dev/sdb1 rw\n");
  EXPECT_THAT(users({disk("/dev/sdb1", 17)}),
              ElementsAre("the file system mounted at /media/disk holds /dev/sdb1"));
}

// In a namespace of his own anybody may mount a tmpfs and call its source what he likes.
TEST_F(DiskUseProbeTest, BelievesNoSourceInAnotherNamespace) {
  process(412, "mnt:[4026532500]", "300 299 0:77 / /tmp/x rw - tmpfs /dev/sdd rw\n");
  EXPECT_THAT(users({disk("/dev/sdd", 48)}), IsEmpty());
}

TEST_F(DiskUseProbeTest, FindsSwap) {
  tree_.file(
      "proc/swaps",
      "Filename\tType\tSize\tUsed\tPriority\n/dev/sdd2   partition\t8388604\t0\t-2\n/swapfile file 4 0 -3\n");
  EXPECT_THAT(users({disk("/dev/sdd", 48), disk("/dev/sdd2", 50)}),
              ElementsAre("/dev/sdd2 is swap of the host"));
}

// Neither claims what it lends.
TEST_F(DiskUseProbeTest, FindsLoopDevicesAndNvmeTargets) {
  tree_.file("sys/class/block/loop3/loop/backing_file", "/dev/sdd\n");
  tree_.file("sys/class/block/loop4/loop/backing_file", "/var/lib/image\n");
  tree_.directory("sys/class/block/loop5");
  const std::string spaces = "sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/";
  tree_.file(spaces + "1/device_path", "/dev/sde1\n");
  tree_.file(spaces + "1/enable", "1\n");
  tree_.file(spaces + "2/device_path", "/dev/sdf\n");
  tree_.file(spaces + "2/enable", "0\n");
  EXPECT_THAT(users({disk("/dev/sdd", 48)}), ElementsAre("/dev/sdd is claimed in the kernel by loop3"));
  EXPECT_THAT(users({disk("/dev/sde", 64), disk("/dev/sde1", 65)}),
              ElementsAre("/dev/sde1 is claimed in the kernel by NVMe target nqn.a"));
  EXPECT_THAT(users({disk("/dev/sdf", 80)}), IsEmpty());
}

TEST_F(DiskUseProbeTest, KnowsALentDiskByAnyOfItsNames) {
  tree_.directory("dev/disk/by-id");
  if (::mknod((tree_.path() / "dev/sdd").c_str(), S_IFBLK | 0600, ::makedev(8, 48)) != 0)
    GTEST_SKIP() << "no device nodes can be made here";
  tree_.link("dev/disk/by-id/my-disk", "../../sdd");
  tree_.file("sys/class/block/loop3/loop/backing_file", "/dev/disk/by-id/my-disk\n");
  EXPECT_THAT(users({disk("/dev/sdd", 48)}), ElementsAre("/dev/sdd is claimed in the kernel by loop3"));
}

TEST_F(DiskUseProbeTest, AsksTheKernelOfWhatNobodyIsSeenToUse) {
  claims_ = {{"/dev/sdd", EBUSY}, {"/dev/sdd1", EBUSY}};
  tree_.directory("sys/class/block/sdd1/holders/dm-0");
  tree_.directory("sys/class/block/sdd1/holders/dm-1");
  EXPECT_THAT(
      users({disk("/dev/sdd", 48), disk("/dev/sdd1", 49), disk("/dev/sdd2", 50)}),
      ElementsAre("/dev/sdd is claimed in the kernel", "/dev/sdd1 is claimed in the kernel by dm-0, dm-1"));
}

TEST_F(DiskUseProbeTest, DisturbsNoDiskThatIsKnownToBeUsed) {
  EXPECT_THAT(users({disk("/dev/sdb", 16), disk("/dev/sdb1", 17)}), testing::SizeIs(1));
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(DiskUseProbeTest, TakesADriveWithoutAMediumForFree) {
  claims_ = {{"/dev/sdd", ENOMEDIUM}, {"/dev/sde", ENXIO}};
  EXPECT_THAT(users({disk("/dev/sdd", 48), disk("/dev/sde", 64)}), IsEmpty());
}

TEST_F(DiskUseProbeTest, IsBlindWhereTheKernelCannotBeAsked) {
  for (const int error : {EPERM, EACCES, ENOENT, ENODEV, EIO}) {
    claims_ = {{"/dev/sdd", error}};
    asked_.clear();
    const vfio::UseReport report = look({disk("/dev/sdd", 48), disk("/dev/sdd1", 49)});
    EXPECT_THAT(report.blind, HasSubstr("what the kernel has on /dev/sdd: open /dev/sdd: ")) << error;
    EXPECT_THAT(report.unknown, ElementsAre(report.blind));
    EXPECT_THAT(asked_, ElementsAre("/dev/sdd")) << "one that hangs would hang again";
  }
}

TEST_F(DiskUseProbeTest, IsBlindWhereMountsCannotBeRead) {
  tree_.remove("proc/1/mountinfo");
  const vfio::UseReport report = look({disk("/dev/sdb", 16)});
  EXPECT_THAT(report.unknown,
              ElementsAre(HasSubstr("mounted file systems: open /proc/1/mountinfo: No such file")));
  EXPECT_EQ(report.blind, report.unknown.at(0));
}

TEST_F(DiskUseProbeTest, SaysWhenSwapCannotBeRead) {
  tree_.directory("proc/swaps");
  const vfio::UseReport report = look({disk("/dev/sdd", 48)});
  EXPECT_THAT(report.unknown, ElementsAre(HasSubstr("swap: read /proc/swaps: Is a directory")));
  EXPECT_EQ(report.blind, "") << "the kernel's own answer counts";
}

TEST_F(DiskUseProbeTest, ReadsNothingWhereNoBlockDeviceIsAskedAbout) {
  tree_.remove("proc/1/mountinfo");
  EXPECT_THAT(users({{.name = "/dev/vfio/9", .number = {.major = 244, .minor = 9}}}), IsEmpty());
  EXPECT_THAT(asked_, IsEmpty());
}

// A captured machine has none.
TEST_F(DiskUseProbeTest, IsBlindInATreeWithoutDeviceNodes) {
  const std::vector<vfio::UseQuestion> questions = {{.device = kDevice, .nodes = {disk("/dev/sdd", 48)}}};
  const vfio::UseReport report = must(disk_users(host_, claim_by_another_process(host_), questions));
  EXPECT_THAT(report.blind, HasSubstr("/dev/sdd: No such file or directory"));
}

}  // namespace
}  // namespace ferry::host
