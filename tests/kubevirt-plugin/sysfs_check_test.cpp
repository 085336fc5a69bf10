// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/sysfs_check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <sched.h>
#include <set>
#include <string>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/nvidia_rules.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/log_of.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr auto kPatience = 20s;

class SysfsCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.file("dev/vfio/vfio", "");
    kernel.add_function({.address = "0000:01:00.0", .ids = "10de:2684", .group = 15, .driver = "vfio-pci"});
  }
  /// In the GPU's group, and in the way.
  void add_audio_on_the_host() {
    kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel.add_function({.address = "0000:01:00.1",
                         .ids = "10de:22ba",
                         .class_code = 0x040300,
                         .group = 15,
                         .driver = "snd_hda_intel"});
  }
  static ScannedDevice gpu() {
    return {.id = "0000:01:00.0",
            .model = "10de:2684",
            .driver = "vfio-pci",
            .iommu_group = 15,
            .numa_node = {},
            .nodes = {},
            .problem = {}};
  }
  std::unique_ptr<SysfsCheck> check_that_opens(int error) const {
    return std::make_unique<SysfsCheck>(
        kernel, rules, kPatience, [error](const HostFs& /*host*/, std::uint32_t /*group*/) { return error; });
  }
  static HostAnswer ask(const SysfsCheck& check, const std::vector<ScannedDevice>& devices) {
    HandOut what{.groups = {}, .containers = {devices}};
    for (const auto& device : devices) what.groups.insert(device.iommu_group);
    std::promise<HostAnswer> answer;
    auto answered = answer.get_future();
    // On a thread that may be held up, as the transport's.
    std::thread([&check, what, answer = std::move(answer)]() mutable {
      const auto promised = std::make_shared<std::promise<HostAnswer>>(std::move(answer));
      check.ask(what, [promised](HostAnswer said) { promised->set_value(std::move(said)); });
    }).detach();
    return answered.get();
  }
  /// Of one device, in a closed group.
  static Result<std::vector<std::string>> nodes(const SysfsCheck& check, const ScannedDevice& device) {
    return ask(check, {device}).containers.at(0).nodes.at(0);
  }
  static GroupState state(const SysfsCheck& check, const ScannedDevice& device) {
    return ask(check, {device}).groups.at(device.iommu_group);
  }
  GroupState state(int error) const { return state(*check_that_opens(error), gpu()); }

  test::FakeKernel kernel;
  const ResourceRules rules = test::nvidia_rules();
};

TEST_F(SysfsCheckTest, DistinguishesOnlyABusyNodeFromOthers) {
  EXPECT_EQ(state(EBUSY), GroupState::open);
  EXPECT_EQ(state(0), GroupState::closed);
  EXPECT_EQ(state(ENODEV), GroupState::closed);
  EXPECT_EQ(state(ENOENT), GroupState::closed);
  {
    const test::LogOf log;
    EXPECT_EQ(state(EPERM), GroupState::closed) << "which it cannot learn";
    EXPECT_THAT(log.text(), HasSubstr("/dev/vfio/15 may not be opened"));
    EXPECT_THAT(log.text(), HasSubstr("SECURITY.md"));
  }
  for (const int error : {EMFILE, ENFILE, ENOMEM, EINTR}) {
    EXPECT_EQ(state(error), GroupState::silent) << "and another time it does";
    EXPECT_THAT(check_that_opens(error)->open_groups({15}), ElementsAre(15)) << "nothing is released by that";
  }
}

TEST_F(SysfsCheckTest, AsksAboutTheDevicesOfAClosedGroup) {
  const SysfsCheck check(kernel, rules, kPatience);
  const auto answer = ask(check, {gpu()});
  EXPECT_THAT(answer.groups, ElementsAre(Pair(15, GroupState::closed)));
  ASSERT_THAT(answer.containers, SizeIs(1));
  ASSERT_THAT(answer.containers[0].nodes, SizeIs(1));
  EXPECT_THAT(*answer.containers[0].nodes[0], ElementsAre("/dev/vfio/vfio", "/dev/vfio/15"));
  EXPECT_THAT(ask(*check_that_opens(EBUSY), {gpu()}).containers, IsEmpty());
}

/// The descriptors that lead into the host's sysfs, but for those that the fake kernel has, of drivers'
/// links.
std::set<std::string> kept_open(const HostFs& host) {
  std::set<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const auto target = std::filesystem::read_symlink(entry.path(), closed_meanwhile).string();
    if (target.starts_with((host.root() / "sys").string()) && target.find("/driver") == std::string::npos)
      kept.insert(entry.path().filename());
  }
  return kept;
}

TEST_F(SysfsCheckTest, AsksAgainInTheDirectoriesThatItHasKept) {
  const SysfsCheck check(kernel, rules, kPatience);
  ASSERT_TRUE(nodes(check, gpu()));
  const auto kept = kept_open(kernel);
  EXPECT_THAT(kept, SizeIs(3));
  ASSERT_TRUE(nodes(check, gpu()));
  EXPECT_EQ(kept_open(kernel), kept)
      << "while others are opened these are open still, and have others' numbers";
}

TEST_F(SysfsCheckTest, KeepsTheDirectoriesOfNoMoreThanSoMany) {
  const SysfsCheck check(kernel, rules, kPatience);
  std::size_t most = 0;
  for (unsigned i = 0; i < SysfsCheck::kMostKept + 20; ++i) {
    auto device = gpu();
    device.id = fmt::format("0000:{:02x}:00.0", i + 2);
    device.iommu_group = 100 + i;
    kernel.add_function(
        {.address = device.id, .ids = "10de:2684", .group = device.iommu_group, .driver = "vfio-pci"});
    ASSERT_TRUE(nodes(check, device)) << device.id;
    most = std::max(most, kept_open(kernel).size());
  }
  EXPECT_EQ(most, 3 * SysfsCheck::kMostKept);
}

TEST_F(SysfsCheckTest, KeepsNothingOfWhatHasGone) {
  const SysfsCheck check(kernel, rules, kPatience);
  ASSERT_TRUE(nodes(check, gpu()));
  kernel.remove_function("0000:01:00.0");
  EXPECT_FALSE(nodes(check, gpu()));
  EXPECT_THAT(kept_open(kernel), IsEmpty());
}

TEST_F(SysfsCheckTest, SeesWhatHasComeInThePlaceOfWhatItHasKept) {
  const SysfsCheck check(kernel, rules, kPatience);
  ASSERT_TRUE(nodes(check, gpu()));
  kernel.remove_function("0000:01:00.0");
  const test::FakeFunction again = {
      .address = "0000:01:00.0", .ids = "10de:2684", .group = 15, .driver = "vfio-pci"};
  kernel.add_function(again);
  EXPECT_TRUE(nodes(check, gpu())) << "the same";

  kernel.add_function({.address = "0000:01:00.1", .ids = "10de:22ba", .group = 15, .driver = "vfio-pci"});
  kernel.remove_function("0000:01:00.0");
  kernel.add_function(again);
  EXPECT_TRUE(nodes(check, gpu())) << "in a group that has stayed";
  kernel.remove_function("0000:01:00.1");

  kernel.remove_function("0000:01:00.0");
  auto other = again;
  other.ids = "10de:2330";
  kernel.add_function(other);
  const auto another = nodes(check, gpu());
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().message, "its model is 10de:2330 now and was 10de:2684");

  kernel.remove_function("0000:01:00.0");
  other = again;
  other.group = 16;
  kernel.add_function(other);
  const auto elsewhere = nodes(check, gpu());
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().message, "its IOMMU group is 16 now and was 15");
}

// A group that has gone while no function has, as those that vfio makes without an IOMMU do: sysfs leaves its
// list empty, and anybody may be in the one that has its number by now.
TEST_F(SysfsCheckTest, TakesTheEmptyListOfAGroupThatHasGoneForNoAnswer) {
  const SysfsCheck check(kernel, rules, kPatience);
  ASSERT_TRUE(nodes(check, gpu()));
  const std::string group = "sys/kernel/iommu_groups/15";
  const std::string member = group + "/devices/0000:01:00.0";
  kernel.remove(member);
  std::filesystem::rename(kernel.root() / group, kernel.root() / "gone");
  kernel.link(member, "../../../../devices/pci0000:00/0000:01:00.0");
  add_audio_on_the_host();
  const auto refused = nodes(check, gpu());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "0000:01:00.1 (snd_hda_intel) shares its IOMMU group 15 and is not on a vfio driver");
}

/// What is done to a file while this is there, as inotify tells it.
class FileWatch {
 public:
  explicit FileWatch(const std::filesystem::path& file) : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(events_.get(), file.c_str(), IN_OPEN | IN_ACCESS), 0);
  }
  std::vector<std::uint32_t> seen() const {
    std::array<inotify_event, 64> events{};
    const ssize_t size = ::read(events_.get(), events.data(), sizeof(events));
    std::vector<std::uint32_t> masks;
    for (std::size_t i = 0; size > 0 && i < static_cast<std::size_t>(size) / sizeof(inotify_event); ++i)
      masks.push_back(events[i].mask);
    return masks;
  }

 private:
  UniqueFd events_;
};

// A driver may take long to say what is refused.
TEST_F(SysfsCheckTest, AsksOnceWhatIsRefusedAndIsStillTheSame) {
  const SysfsCheck check(kernel, rules, kPatience);
  ASSERT_TRUE(nodes(check, gpu()));
  add_audio_on_the_host();
  const FileWatch config(kernel.root() / "sys/bus/pci/devices/0000:01:00.0/config");
  EXPECT_FALSE(nodes(check, gpu()));
  EXPECT_THAT(config.seen(), ElementsAre(IN_ACCESS, IN_OPEN)) << "it is only looked whether it is another";
  kernel.remove_function("0000:01:00.1");
  EXPECT_TRUE(nodes(check, gpu())) << "and what is well again is given";
}

// The kernel answers once it has reset what a VM has let go of.
TEST_F(SysfsCheckTest, TakesANodeThatDoesNotOpenForOpen) {
  struct Hang {
    std::promise<void> unblock;
    std::shared_future<void> released = unblock.get_future().share();
  };
  const auto hang = std::make_shared<Hang>();
  const SysfsCheck check(kernel, rules, 1s, [hang](const HostFs& /*host*/, std::uint32_t /*group*/) {
    hang->released.wait();
    return 0;
  });
  EXPECT_EQ(state(check, gpu()), GroupState::open);
  EXPECT_EQ(state(check, gpu()), GroupState::silent) << "nobody has asked";
  hang->unblock.set_value();
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  GroupState now = GroupState::open;
  while (now != GroupState::closed && std::chrono::steady_clock::now() < give_up) now = state(check, gpu());
  EXPECT_EQ(now, GroupState::closed);
}

TEST_F(SysfsCheckTest, SaysWhichGroupsAreOpenThoughOneDoesNotAnswer) {
  const auto hang = std::make_shared<std::promise<void>>();
  const auto released = hang->get_future().share();
  const SysfsCheck check(kernel, rules, 1s, [released](const HostFs& /*host*/, std::uint32_t group) {
    if (group == 15) released.wait();
    return group == 16 ? EBUSY : 0;
  });
  EXPECT_THAT(check.open_groups({15, 16, 17}), ElementsAre(15, 16));
  EXPECT_THAT(check.open_groups({}), IsEmpty());
  hang->set_value();
}

// A driver that does not answer is played by a file that nobody writes to.
TEST_F(SysfsCheckTest, WaitsForNoDriverThatHangs) {
  const auto config = kernel.root() / "sys/bus/pci/devices/0000:01:00.0/config";
  std::filesystem::remove(config);
  ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
  kernel.add_function({.address = "0000:02:00.0", .ids = "10de:2684", .group = 16, .driver = "vfio-pci"});
  auto other = gpu();
  other.id = "0000:02:00.0";
  other.iommu_group = 16;
  const SysfsCheck check(kernel, rules, 2s);
  EXPECT_EQ(state(check, gpu()), GroupState::silent);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(state(check, gpu()), GroupState::silent) << "nor is it asked once more";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1500ms);
  const SysfsCheck patient(kernel, rules, kPatience);
  EXPECT_EQ(state(patient, other), GroupState::closed) << "others are asked as ever";
  const SysfsCheck both(kernel, rules, 1s);
  EXPECT_THAT(ask(both, {other, gpu()}).groups,
              ElementsAre(Pair(15, GroupState::silent), Pair(16, GroupState::closed)));

  // The reader is let go, and finds nothing to read.
  const UniqueFd writer(::open(config.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(writer.valid());
}

// The kernel's own EBUSY, by the way that a probe takes: a terminal that is somebody's alone stands for a
// group that is. In a user namespace, since it is nobody's alone for the administrator.
enum class Proof { right, wrong, not_to_be_had };

Proof prove_with_a_terminal(const std::filesystem::path& root) {
  const std::string terminals = (root / "dev/vfio").string();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
      ::mount("devpts", terminals.c_str(), "devpts", 0, "newinstance,ptmxmode=0666") != 0)
    return Proof::not_to_be_had;
  const UniqueFd master(::open((terminals + "/ptmx").c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  int unlocked = 0;
  if (!master.valid() || ::ioctl(master.get(), TIOCSPTLCK, &unlocked) != 0) return Proof::not_to_be_had;
  const UniqueFd owner(::open((terminals + "/0").c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!owner.valid()) return Proof::not_to_be_had;

  const HostFs host(root);  // as it is since the mount
  const SysfsCheck check(host, test::nvidia_rules(), kPatience);
  const auto is_open = [&] { return !check.open_groups({0}).empty(); };
  if (is_open()) return Proof::wrong;  // open, and not alone
  if (::ioctl(owner.get(), TIOCEXCL) != 0 || !is_open()) return Proof::wrong;
  return ::ioctl(owner.get(), TIOCNXCL) == 0 && !is_open() ? Proof::right : Proof::wrong;
}

// Absent: the child ended otherwise.
std::optional<Proof> prove_in_a_child(const std::filesystem::path& root) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(static_cast<int>(prove_with_a_terminal(root)));
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return std::nullopt;
  const auto proof = static_cast<Proof>(WEXITSTATUS(status));
  return proof <= Proof::not_to_be_had ? std::optional(proof) : std::nullopt;
}

// The threads that earlier tests have left behind: what one of them had locked as it ended would stay so for
// a child for ever.
void wait_until_alone() {
#ifdef __SANITIZE_THREAD__
  constexpr int kOwn = 2;  // the sanitizer has one
#else
  constexpr int kOwn = 1;
#endif
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  while (threads() > kOwn && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
}

TEST_F(SysfsCheckTest, LearnsFromTheKernelThatANodeIsBusy) {
  wait_until_alone();
  const auto proof = prove_in_a_child(kernel.root());
  if (proof == Proof::not_to_be_had) GTEST_SKIP() << "no terminals of one's own in a user namespace here";
  EXPECT_EQ(proof, Proof::right);
}

}  // namespace
}  // namespace ferry::plugin
