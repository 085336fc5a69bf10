// SPDX-License-Identifier: Apache-2.0
#include "hostfs/host_fs.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "common/unique_fd.h"
#include "hostfs/descriptor_reads.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::ScratchDirectory;
using testing::ElementsAre;

class HostFsTest : public testing::Test {
 protected:
  ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(HostFsTest, StripsOneTrailingNewlineOfAnAttributeOnly) {
  tree_.file("sys/a", "0x10de\n");
  tree_.file("sys/b", "x\n\n");
  tree_.file("sys/c", "");
  EXPECT_EQ(host_.read_attribute("sys/a").value(), "0x10de");
  EXPECT_EQ(host_.read_attribute("sys/b").value(), "x\n");
  EXPECT_EQ(host_.read_attribute("sys/c").value(), "");
  EXPECT_EQ(host_.read_file("sys/a").value(), "0x10de\n");
}

TEST_F(HostFsTest, ReadsPastTheSizeThatAFileReports) {
  const std::string long_text(10000, 'x');
  tree_.file("long", long_text);
  EXPECT_EQ(host_.read_file("long").value(), long_text);
}

TEST_F(HostFsTest, NamesThePathAndTheReasonOfAFailure) {
  const auto missing = host_.read_attribute("sys/none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(missing.error().message, "open /sys/none: No such file or directory");
  EXPECT_TRUE(is_gone(missing.error()));
}

TEST_F(HostFsTest, GivesTheLastPartOfALinkWithoutFollowingIt) {
  tree_.link("dev/driver", "../../bus/pci/drivers/vfio-pci");
  EXPECT_EQ(host_.link_name("dev/driver").value(), "vfio-pci");
  EXPECT_EQ(host_.link_target("dev/driver").value(), "../../bus/pci/drivers/vfio-pci");
  EXPECT_FALSE(host_.exists("dev/driver"));
  tree_.file("dev/plain", "");
  EXPECT_EQ(host_.link_name("dev/plain").error().code, std::errc::invalid_argument);
}

TEST_F(HostFsTest, ResolvesAbsoluteLinksInsideTheRoot) {
  tree_.file("etc/hostname", "inside\n");
  tree_.link("var/name", "/etc/hostname");
  EXPECT_EQ(host_.read_attribute("var/name").value(), "inside");
  tree_.link("escape", "../../../../../../../../etc/passwd");
  EXPECT_FALSE(host_.read_file("escape"));
}

TEST_F(HostFsTest, RefusesToClimbOutOfTheRoot) {
  EXPECT_EQ(host_.read_file("../x").error().code, std::errc::cross_device_link);
  EXPECT_EQ(host_.write_attribute("a/../../x", "1").error().code, std::errc::cross_device_link);
  EXPECT_EQ(host_.write_file("../x", "1").error().code, std::errc::cross_device_link);
  EXPECT_EQ(host_.remove_file("../x").error().code, std::errc::cross_device_link);
  tree_.file("x", "");
  EXPECT_TRUE(host_.exists("x"));
  EXPECT_FALSE(host_.exists("../x")) << "which openat2 would take for that one";
  EXPECT_FALSE(host_.exists(std::filesystem::path("a") / ".." / ".." / "x"));
}

/// In a thread for which openat2 fails so: before Linux 5.6 with ENOSYS, by an old container runtime with
/// EPERM.
void without_openat2(int error, const std::function<void()>& use) {
  std::thread([&] {
    std::array filter = {
        sock_filter{.code = BPF_LD | BPF_W | BPF_ABS, .jt = 0, .jf = 0, .k = offsetof(seccomp_data, nr)},
        sock_filter{.code = BPF_JMP | BPF_JEQ | BPF_K, .jt = 0, .jf = 1, .k = SYS_openat2},
        sock_filter{.code = BPF_RET | BPF_K,
                    .jt = 0,
                    .jf = 0,
                    .k = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)},
        sock_filter{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = SECCOMP_RET_ALLOW}};
    const sock_fprog program{.len = filter.size(), .filter = filter.data()};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    ASSERT_EQ(::syscall(SYS_openat2, AT_FDCWD, ".", nullptr, 0), -1);
    ASSERT_EQ(errno, error);
    use();
  }).join();
}

// SECURITY.md says both: Ferry works there, and follows links out of the root.
TEST_F(HostFsTest, WithoutOpenat2ChecksThePathAlone) {
  const ScratchDirectory outside;
  outside.file("secret", "outside\n");
  tree_.file("etc/hostname", "inside\n");
  tree_.link("var/name", "../etc/hostname");
  tree_.link("out", outside.path() / "secret");
  EXPECT_FALSE(host_.read_file("out"));
  for (const int error : {ENOSYS, EPERM}) {
    without_openat2(error, [&] {
      SCOPED_TRACE(error);
      EXPECT_EQ(host_.read_attribute("var/name").value_or(""), "inside");
      EXPECT_TRUE(host_.write_file("run/a/b", "1"));
      EXPECT_EQ(host_.read_file("run/a/b").value_or(""), "1");
      EXPECT_THAT(host_.list("run/a").value_or(std::vector<std::string>()), ElementsAre("b"));
      EXPECT_TRUE(host_.remove_file("run/a/b"));
      EXPECT_TRUE(is_gone(host_.read_file("run/a/b").error()));
      EXPECT_EQ(host_.read_file("out").value_or(""), "outside\n");
      EXPECT_EQ(host_.read_file("../x").error().code, std::errc::cross_device_link);
      EXPECT_EQ(host_.write_file("a/../../x", "1").error().code, std::errc::cross_device_link);
      EXPECT_EQ(host_.remove_file("../x").error().code, std::errc::cross_device_link);
    });
  }
}

TEST_F(HostFsTest, ListsSortedNames) {
  tree_.file("d/b", "");
  tree_.file("d/a", "");
  tree_.directory("d/c");
  EXPECT_THAT(host_.list("d").value(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(host_.list("d/a").error().code, std::errc::not_a_directory);
  EXPECT_EQ(host_.list("none").error().code, std::errc::no_such_file_or_directory);
}

TEST_F(HostFsTest, DistinguishesDirectoriesFromLinksToThem) {
  tree_.directory("d/b");
  tree_.file("d/a", "");
  tree_.link("d/c", "b");
  EXPECT_THAT(host_.entries("d").value(),
              ElementsAre(DirectoryEntry{"a", false}, DirectoryEntry{"b", true}, DirectoryEntry{"c", false}));
}

TEST_F(HostFsTest, NeverCreatesAnAttribute) {
  tree_.directory("sys");
  const auto written = host_.write_attribute("sys/none", "1");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, std::errc::no_such_file_or_directory);
  EXPECT_FALSE(host_.exists("sys/none"));
}

TEST_F(HostFsTest, WritesAnAttributeWithoutTruncatingIt) {
  tree_.file("sys/a", "longer");
  ASSERT_TRUE(host_.write_attribute("sys/a", "xy"));
  EXPECT_EQ(host_.read_file("sys/a").value(), "xynger");
}

TEST_F(HostFsTest, ReplacesAFileKeepingItsMode) {
  ASSERT_TRUE(host_.write_file("run/ferry/new", "one\n", 0640));
  const auto path = tree_.path() / "run/ferry/new";
  EXPECT_EQ(static_cast<int>(std::filesystem::status(path).permissions()), 0640);
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  ASSERT_TRUE(host_.write_file("run/ferry/new", "two\n", 0644));
  EXPECT_EQ(host_.read_file("run/ferry/new").value(), "two\n");
  EXPECT_EQ(static_cast<int>(std::filesystem::status(path).permissions()), 0600);
  EXPECT_THAT(host_.list("run/ferry").value(), ElementsAre("new"));
}

// As var/run is on every host: a container sees it below /host, and has a /run of its own.
TEST_F(HostFsTest, WritesAndRemovesWhereItReads) {
  tree_.directory("run");
  tree_.link("var/run", "/run");
  const std::string mine = std::filesystem::path(tree_.path()).filename().string();
  const std::string file = "var/run/" + mine + "/cdi/a.yaml";
  ASSERT_TRUE(host_.write_file(file, "one", 0640));
  EXPECT_EQ(host_.read_file("run/" + mine + "/cdi/a.yaml").value(), "one");
  EXPECT_FALSE(std::filesystem::exists("/run/" + mine)) << "not outside the root";
  const auto written = tree_.path() / "run" / mine / "cdi/a.yaml";
  std::filesystem::permissions(written, std::filesystem::perms(0600));
  ASSERT_TRUE(host_.write_file(file, "two", 0644));
  EXPECT_EQ(static_cast<int>(std::filesystem::status(written).permissions()), 0600);
  ASSERT_TRUE(host_.remove_file(file));
  EXPECT_FALSE(std::filesystem::exists(written));
  EXPECT_TRUE(host_.remove_file(file)) << "gone already";
  EXPECT_TRUE(host_.remove_file("none/at/all"));
}

TEST_F(HostFsTest, FindsWhichDeviceAProcessHasOpen) {
  const HostFs real("/");
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto entry = "proc/self/fd/" + std::to_string(null.get());
  const OpenedDevice expected{.number = {.major = 1, .minor = 3}, .block = false};
  EXPECT_EQ(real.opened_device(entry).value(), expected);
  const UniqueFd directory(::open("/", O_PATH | O_CLOEXEC));
  EXPECT_EQ(real.opened_device("proc/self/fd/" + std::to_string(directory.get())).value(), std::nullopt);
  tree_.link("proc/12/fd/0", "/dev/null");
  EXPECT_EQ(host_.opened_device("proc/12/fd/0").value(), expected);
  EXPECT_EQ(host_.opened_device("proc/12/fd/1").error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(host_.opened_device("../x").error().code, std::errc::cross_device_link);
}

TEST_F(HostFsTest, ReadsThroughLinksWhileOthersRenameFiles) {
  tree_.file("sys/d/value", "1\n");
  std::string target;
  for (int i = 0; i < 10; ++i) target += "d/../";
  tree_.link("sys/x", target + "d/value");
  const ScratchDirectory elsewhere;
  elsewhere.file("a", "");
  const std::jthread renamer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::filesystem::rename(elsewhere.path() / "a", elsewhere.path() / "b");
      std::filesystem::rename(elsewhere.path() / "b", elsewhere.path() / "a");
    }
  });
  for (int i = 0; i < 20000; ++i) {
    const auto read = host_.read_attribute("sys/x");
    ASSERT_TRUE(read) << read.error().message;
  }
}

// Another process's file that is a FIFO or too large must not keep this one.
TEST_F(HostFsTest, ReadsRegularFilesOfSensibleSizeOnly) {
  ASSERT_EQ(::mkfifo((tree_.path() / "fifo").c_str(), 0600), 0);
  const Error fifo = host_.read_file("fifo").error();
  EXPECT_EQ(fifo.message, "read /fifo: it is no regular file");
  EXPECT_EQ(fifo.hint, "put a regular file of up to 16 MiB there, or remove it if no program needs it");
  tree_.file("large", "");
  std::filesystem::resize_file(tree_.path() / "large", std::uintmax_t{1} << 40U);
  const Error large = host_.read_file("large").error();
  EXPECT_EQ(large.code, std::errc::file_too_large);
  EXPECT_EQ(large.message, "read /large: File too large");
  EXPECT_EQ(large.hint, fifo.hint);
}

// It says that it is empty, and has 8 bytes for each page that the process could ever have.
TEST_F(HostFsTest, ReadsNoFileWithoutEnd) {
  const HostFs host("/");
  EXPECT_EQ(host.read_file("proc/self/pagemap").error().code, std::errc::file_too_large);
  EXPECT_EQ(host.read_attribute("proc/self/pagemap").error().code, std::errc::file_too_large);
}

TEST_F(HostFsTest, ReadsNoMoreOfAFileThatGrowsThanOfAnother) {
  const UniqueFd endless(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kMost = 1'000'000;
  const auto read = read_to_end(
      endless.get(), [] { return std::string("read it"); }, kMost);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, std::errc::file_too_large);
  EXPECT_THAT(read.error().message, testing::StartsWith("read it: "));
}

TEST_F(HostFsTest, MakesDirectoriesBelowTheRootAndNeverTheRoot) {
  EXPECT_TRUE(host_.make_directory("run/ferry/hostd"));
  EXPECT_TRUE(host_.make_directory("run/ferry/hostd"));
  EXPECT_TRUE(std::filesystem::is_directory(tree_.path() / "run/ferry/hostd"));
  const HostFs nowhere(tree_.path() / "nowhere");
  EXPECT_FALSE(nowhere.make_directory("run/ferry"));
  EXPECT_FALSE(std::filesystem::exists(tree_.path() / "nowhere"));
}

TEST_F(HostFsTest, ReadsNoLinkInAFolderOfAProcessWithFewerRights) {
  tree_.file("etc/secret", "secret\n");
  tree_.link("var/lib/ferry/desired.json", "../../../etc/secret");
  EXPECT_EQ(host_.read_file("var/lib/ferry/desired.json").value(), "secret\n");
  const auto refused = host_.read_file("var/lib/ferry/desired.json", HostFs::Links::refused);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::malformed_host);
  EXPECT_EQ(host_.read_file("etc/secret", HostFs::Links::refused).value(), "secret\n");
}

TEST_F(HostFsTest, SaysWhenTheRootItselfIsMissing) {
  const HostFs host(tree_.path() / "nowhere");
  const auto read = host.read_file("x");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, testing::HasSubstr("open host root"));
}

}  // namespace
}  // namespace ferry
