// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <optional>
#include <pthread.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

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
using testing::Not;

constexpr DeviceNumber kNull{.major = 1, .minor = 3};
constexpr DeviceNumber kZero{.major = 1, .minor = 5};

vfio::UseQuestion ask(const std::string& device, const std::string& node, DeviceNumber number,
                      bool block = false) {
  return {.device = device, .nodes = {{.name = node, .number = number, .block = block}}};
}

std::vector<std::string> texts(std::span<const vfio::DeviceUser> users) {
  std::vector<std::string> out;
  for (const vfio::DeviceUser& user : users) out.push_back(user.text());
  return out;
}

// -- a host of files: descriptors are links to real device nodes, since numbers are what counts --

class ProcUseProbeTest : public testing::Test {
 protected:
  ProcUseProbeTest() {
    process(1, "init", {});
    tree_.file("proc/uptime", "1\n");
  }
  void process(int pid, const std::string& comm, const std::vector<std::string>& opened) const {
    const std::string directory = "proc/" + std::to_string(pid);
    tree_.file(directory + "/comm", comm + "\n");
    tree_.file(directory + "/cmdline", comm + '\0');
    tree_.file(directory + "/maps", "");
    tree_.directory(directory + "/fd");
    for (std::size_t i = 0; i < opened.size(); ++i) {
      tree_.link(directory + "/fd/" + std::to_string(i), opened[i]);
    }
  }
  vfio::UseReport look(const std::vector<vfio::UseQuestion>& questions) {
    return must(ProcUseProbe(host_).look(questions));
  }

  /// The first of 20 looks that is blind for `blind` alone. A patience of a few milliseconds also runs out
  /// for a process with few files when another program takes the processor.
  vfio::UseReport look_within(std::chrono::milliseconds patience, std::string_view blind,
                              const std::vector<vfio::UseQuestion>& questions) {
    vfio::UseReport report = must(ProcUseProbe(host_, patience).look(questions));
    for (int again = 1; again < 20 && report.blind != blind; ++again)
      report = must(ProcUseProbe(host_, patience).look(questions));
    EXPECT_EQ(report.blind, blind);
    return report;
  }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

// A FIFO nobody writes to keeps its reader as the lock of a process's memory does.
TEST_F(ProcUseProbeTest, IsBlindForAProcessThatKeepsItWaitingAndSeesTheOthers) {
  process(20, "first", {"/dev/null"});
  process(30, "hangs", {});
  process(40, "last", {"/dev/null"});
  tree_.remove("proc/30/maps");
  ASSERT_EQ(::mkfifo((tree_.path() / "proc/30/maps").c_str(), 0600), 0);
  const auto report =
      must(ProcUseProbe(host_, std::chrono::seconds(3)).look(std::vector{ask("gpu", "/dev/null", kNull)}));
  EXPECT_EQ(report.blind, "process 30 (hangs) could not be looked into: the kernel did not answer in time");
  EXPECT_THAT(texts(report.of("gpu")), ElementsAre(HasSubstr("20"), HasSubstr("40")));
  const UniqueFd writer = must(host_.open("proc/30/maps", O_RDWR | O_NONBLOCK));
}

TEST_F(ProcUseProbeTest, TakesPodsWhoseProcessesDoNotAnswerForUsersOfEachDevice) {
  const auto pod = [](int n) { return "0f2c1d3e-1111-2222-3333-44445555666" + std::to_string(n); };
  for (int n = 0; n < 4; ++n) {
    const std::string folder = "proc/" + std::to_string(30 + n);
    process(30 + n, "hangs", {});
    tree_.file(folder + "/cgroup", "0::/kubepods/pod" + pod(n) + "/x\n");
    tree_.remove(folder + "/maps");
    ASSERT_EQ(::mkfifo((tree_.path() / folder / "maps").c_str(), 0600), 0);
  }
  process(40, "last", {"/dev/null"});
  ProcUseProbe probe(host_, std::chrono::milliseconds(300));
  for (const char* look : {"first", "second"}) {
    const auto report = must(probe.look(std::vector{ask("gpu", "/dev/null", kNull)}));
    EXPECT_EQ(report.blind, "") << look;
    EXPECT_THAT(texts(report.of("gpu")),
                testing::UnorderedElementsAre(HasSubstr(pod(0)), HasSubstr(pod(1)), HasSubstr(pod(2)),
                                              HasSubstr(pod(3)), HasSubstr("last")))
        << look;
  }
  for (int n = 0; n < 4; ++n) {
    const UniqueFd writer = must(host_.open("proc/" + std::to_string(30 + n) + "/maps", O_RDWR | O_NONBLOCK));
  }
}

// Each process takes less than the patience.
TEST_F(ProcUseProbeTest, GivesThePatienceToAPodAndNotToEachOfItsProcesses) {
  constexpr int kProcesses = 2000;
  constexpr const char* kPod = "0f2c1d3e-1111-2222-3333-444455556666";
  for (int pid = 30; pid < 30 + kProcesses; ++pid) {
    process(pid, "many", {});
    tree_.file("proc/" + std::to_string(pid) + "/cgroup", std::string("0::/kubepods/pod") + kPod + "/x\n");
  }
  process(20, "first", {"/dev/null"});
  const auto report = look_within(std::chrono::milliseconds(10), "", {ask("gpu", "/dev/null", kNull)});
  EXPECT_THAT(texts(report.of("gpu")),
              testing::UnorderedElementsAre(HasSubstr("first"), HasSubstr(std::string("in pod ") + kPod)));
}

TEST_F(ProcUseProbeTest, AsksNobodyBehindSomeThatDoNotAnswer) {
  constexpr std::array kHanging = {20, 30, 40, 50};
  for (const int pid : kHanging) {
    process(pid, "hangs", {});
    const std::string maps = "proc/" + std::to_string(pid) + "/maps";
    tree_.remove(maps);
    ASSERT_EQ(::mkfifo((tree_.path() / maps).c_str(), 0600), 0);
  }
  const auto report =
      must(ProcUseProbe(host_, std::chrono::seconds(3)).look(std::vector{ask("gpu", "/dev/null", kNull)}));
  EXPECT_THAT(report.blind, HasSubstr("processes 20 (hangs), 30 (hangs), 40 (hangs) could not"));
  for (const int pid : kHanging) {
    const UniqueFd writer = must(host_.open("proc/" + std::to_string(pid) + "/maps", O_RDWR | O_NONBLOCK));
  }
}

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// hostd looks every half minute.
TEST_F(ProcUseProbeTest, LooksOnceAtAProcessThatDoesNotAnswerAndAgainAfterItsAnswer) {
  process(20, "first", {"/dev/null"});
  process(30, "hangs", {});
  tree_.remove("proc/30/maps");
  ASSERT_EQ(::mkfifo((tree_.path() / "proc/30/maps").c_str(), 0600), 0);
  const std::vector questions = {ask("gpu", "/dev/null", kNull)};
  constexpr std::chrono::seconds kPatience{2};
  ProcUseProbe probe(host_, kPatience);
  const auto before = threads();
  const std::string blind = must(probe.look(questions)).blind;
  EXPECT_THAT(blind, HasSubstr("process 30 (hangs) could not be looked into"));
  for (int i = 0; i < 4; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    const auto report = must(probe.look(questions));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kPatience);
    EXPECT_EQ(report.blind, blind);
    EXPECT_THAT(texts(report.of("gpu")), ElementsAre(HasSubstr("20")));
  }
  // The threads of looks that were answered end by themselves, and so does the late one.
  const auto in_time = [](const auto& there) {
    for (int i = 0; i < 2000 && !there(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return there();
  };
  EXPECT_TRUE(in_time([&] { return threads() <= before + 1; }));
  { const UniqueFd writer = must(host_.open("proc/30/maps", O_RDWR | O_NONBLOCK)); }
  tree_.remove("proc/30/maps");
  tree_.file("proc/30/maps", "");
  EXPECT_TRUE(in_time([&] { return must(probe.look(questions)).blind.empty(); }));
}

// In a tree the kernel is not asked which threads share a table, so that each of these is a table of its own.
TEST_F(ProcUseProbeTest, TakesAProcessInAPodWithTooManyFilesForAUserOfEachDevice) {
  constexpr int kTables = 3000;
  constexpr const char* kPod = "0f2c1d3e-1111-2222-3333-444455556666";
  for (const int pid : {30, 40, 41}) {
    process(pid, "opens", {});
    tree_.file("proc/" + std::to_string(pid) + "/cgroup", std::string("0::/kubepods/pod") + kPod + "/x\n");
  }
  for (int thread = 31; thread < 31 + kTables; ++thread)
    tree_.directory("proc/30/task/" + std::to_string(thread) + "/fd");
  process(42, "uses", {"/dev/zero"});
  const auto report = look_within(std::chrono::milliseconds(3), "",
                                  {ask("gpu", "/dev/null", kNull), ask("other", "/dev/zero", kZero),
                                   vfio::UseQuestion{.device = "of no node", .nodes = {}}});
  ASSERT_EQ(report.of("gpu").size(), 1U) << "its pod is named once";
  const vfio::DeviceUser& user = report.of("gpu")[0];
  EXPECT_EQ(user.text(), std::string("process opens (pid 30) in pod ") + kPod +
                             " holds more open files than can be looked through within 3 ms");
  EXPECT_EQ(user.pod_uid, kPod);
  EXPECT_THAT(texts(report.of("other")), ElementsAre(HasSubstr("opens"), HasSubstr("uses")))
      << "the others are seen";
  EXPECT_THAT(report.of("of no node"), IsEmpty());
}

TEST_F(ProcUseProbeTest, IsBlindForAProcessOfTheHostWithTooManyFiles) {
  constexpr int kTables = 3000;
  process(30, "opens", {});
  for (int thread = 31; thread < 31 + kTables; ++thread)
    tree_.directory("proc/30/task/" + std::to_string(thread) + "/fd");
  const auto report =
      look_within(std::chrono::milliseconds(1),
                  "process 30 (opens) could not be looked through within 1 ms: too many open files",
                  {ask("gpu", "/dev/null", kNull)});
  EXPECT_THAT(report.of("gpu"), IsEmpty());
}

// Each of them takes less time than would make the look blind; all of them together take minutes.
TEST_F(ProcUseProbeTest, EndsWhereManyProcessesTakeTooLongTogether) {
  constexpr int kProcesses = 4000;
  for (int pid = 30; pid < 30 + kProcesses; ++pid) process(pid, "many", {});
  const auto report = must(
      ProcUseProbe(host_, std::chrono::milliseconds(1)).look(std::vector{ask("gpu", "/dev/null", kNull)}));
  EXPECT_THAT(report.blind, HasSubstr(" could not be looked into within 30 ms in all, and process "));
}

// Stopping the service would end them, though it is not they that hold this device.
TEST_F(ProcUseProbeTest, TellsNoServiceThatAlsoRunsAVmOrAPod) {
  const auto in_service = [&](int pid, const std::string& comm, const std::vector<std::string>& opened,
                              const std::string& below = "") {
    process(pid, comm, opened);
    tree_.file("proc/" + std::to_string(pid) + "/cgroup", "0::/system.slice/a.service" + below + "\n");
  };
  const auto service = [&] { return look({ask("gpu", "/dev/null", kNull)}).users["gpu"].at(0).service; };
  in_service(20, "manager", {"/dev/null"});
  EXPECT_EQ(service(), "a.service");
  in_service(21, "helper", {});
  EXPECT_EQ(service(), "a.service");
  in_service(21, "qemu-system-x86_64", {});
  EXPECT_EQ(service(), "");
  in_service(21, "qemu-system-x86_64", {}, "/machine");
  EXPECT_EQ(service(), "");
  in_service(21, "pause", {}, "/kubepods/pod0123456789abcdef0123456789abcdef/x");
  EXPECT_EQ(service(), "");
}

TEST_F(ProcUseProbeTest, NamesWhoeverHasANodeOpenWhateverItsPath) {
  process(12, "dcgm", {"/dev/zero", "/dev/null"});
  process(13, "other", {"/dev/zero", "/etc/hostname", "/dev/full"});
  const vfio::UseReport report = look({ask("0000:01:00.0", "/dev/nvidia0", kNull)});
  EXPECT_THAT(texts(report.of("0000:01:00.0")), ElementsAre("process dcgm (pid 12) holds /dev/nvidia0"));
  EXPECT_THAT(report.unknown, IsEmpty());
}

TEST_F(ProcUseProbeTest, TellsAProcessOncePerNodeAndADevicesNodesApart) {
  process(12, "a", {"/dev/null", "/dev/null", "/dev/zero"});
  const vfio::UseReport report = look(
      {{.device = "gpu", .nodes = {{.name = "/dev/n", .number = kNull}, {.name = "/dev/z", .number = kZero}}},
       ask("audio", "/dev/z2", kZero),
       ask("free", "/dev/f", {.major = 1, .minor = 7})});
  EXPECT_THAT(texts(report.of("gpu")),
              ElementsAre("process a (pid 12) holds /dev/n", "process a (pid 12) holds /dev/z"));
  EXPECT_THAT(texts(report.of("audio")), ElementsAre("process a (pid 12) holds /dev/z2"));
  EXPECT_THAT(report.of("free"), IsEmpty());
}

TEST_F(ProcUseProbeTest, DoesNotTakeABlockDeviceForACharacterDeviceOfThatNumber) {
  process(12, "a", {"/dev/null"});
  EXPECT_THAT(look({ask("disk", "/dev/b", kNull, true)}).of("disk"), IsEmpty());
}

TEST_F(ProcUseProbeTest, FindsWhatIsMappedThoughItsDescriptorIsClosed) {
  process(12, "a", {});
  tree_.file("proc/12/maps",
             "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a\n"
             "7f5c00000000-7f5c00021000 rw-p 00000000 00:00 0 \n"
             "00e03000-00e24000 rw-s 00000000 00:06 409         /dev/nvidia0\n"
             "7ffd5a000000-7ffd5a021000 rw-s 00000000 00:01 9   /memfd:x (deleted)\n"
             "malformed\n-\n- rw-s /\n");
  tree_.link("proc/12/map_files/400000-452000", "/dev/null");  // private: a program's own pages
  tree_.link("proc/12/map_files/e03000-e24000", "/dev/zero");
  const vfio::UseReport report = look({ask("gpu", "/dev/z", kZero), ask("n", "/dev/n", kNull)});
  EXPECT_THAT(texts(report.of("gpu")), ElementsAre("process a (pid 12) holds /dev/z"));
  EXPECT_THAT(report.of("n"), IsEmpty());
}

// pthread_exit() in main: proc/12/fd and proc/12/maps are empty then.
TEST_F(ProcUseProbeTest, LooksAtTheThreadsOfAProcessWhoseFirstHasEnded) {
  process(12, "", {});
  for (const std::string thread : {"12", "13", "14", "15"}) tree_.directory("proc/12/task/" + thread + "/fd");
  tree_.link("proc/12/task/13/fd/3", "/dev/null");
  tree_.link("proc/12/task/14/fd/3", "/dev/null");
  tree_.link("proc/12/task/15/fd/4", "/dev/full");  // a table of its own
  tree_.file("proc/12/task/12/maps", "");
  tree_.file("proc/12/task/13/maps", "00e03000-00e24000 rw-s 00000000 00:06 409 /dev/nvidia0\n");
  tree_.link("proc/13/map_files/e03000-e24000", "/dev/zero");
  tree_.file("proc/12/comm", "trainer\n");
  const vfio::UseReport report = look({ask("null", "/dev/n", kNull), ask("zero", "/dev/z", kZero),
                                       ask("full", "/dev/f", {.major = 1, .minor = 7})});
  EXPECT_THAT(texts(report.of("null")), ElementsAre("process trainer (pid 12) holds /dev/n"));
  EXPECT_THAT(texts(report.of("zero")), ElementsAre("process trainer (pid 12) holds /dev/z"));
  EXPECT_THAT(texts(report.of("full")), ElementsAre("process trainer (pid 12) holds /dev/f"));
}

// In another PID namespace nobody says whether they have tables of their own.
TEST_F(ProcUseProbeTest, LooksAtEachThreadWhereTheKernelIsNotAsked) {
  process(12, "a", {"/dev/zero"});
  tree_.link("proc/12/task/13/fd/0", "/dev/null");
  EXPECT_THAT(texts(look({ask("gpu", "/dev/n", kNull)}).of("gpu")),
              ElementsAre("process a (pid 12) holds /dev/n"));
}

TEST_F(ProcUseProbeTest, TellsAVmByWhatItHasOpenWhateverItsName) {
  process(12, "containerd-shim", {"/dev/null", "anon_inode:kvm-vm"});
  tree_.file("proc/12/cgroup", "0::/system.slice/a.service\n");
  const vfio::UseReport report = look({ask("gpu", "/dev/nvidia0", kNull)});
  EXPECT_THAT(texts(report.of("gpu")), ElementsAre("VM containerd-shim (pid 12) holds /dev/nvidia0"));
  process(13, "manager", {"/dev/null"});
  tree_.file("proc/13/cgroup", "0::/system.slice/a.service\n");
  const vfio::UseReport both = look({ask("gpu", "/dev/nvidia0", kNull)});
  EXPECT_THAT(both.of("gpu"), testing::SizeIs(2));
  for (const vfio::DeviceUser& user : both.of("gpu"))
    EXPECT_EQ(user.service, "") << "stopping it would end the VM";
}

TEST_F(ProcUseProbeTest, PassesOverProcessesThatEndMeanwhile) {
  tree_.directory("proc/12");
  process(13, "a", {"/nowhere"});
  const vfio::UseReport report = look({ask("gpu", "/dev/n", kNull)});
  EXPECT_THAT(report.of("gpu"), IsEmpty());
  EXPECT_THAT(report.unknown, IsEmpty());
}

TEST_F(ProcUseProbeTest, FailsWhereNoProcessIsVisible) {
  tree_.remove("proc/1");
  const auto report = ProcUseProbe(host_).look(std::vector{ask("gpu", "/dev/n", kNull)});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::unsupported);
  EXPECT_THAT(report.error().message, HasSubstr("/proc shows no process"));
  tree_.remove("proc");
  const auto missing = ProcUseProbe(host_).look(std::vector{ask("gpu", "/dev/n", kNull)});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, std::errc::no_such_file_or_directory);
}

TEST_F(ProcUseProbeTest, IsBlindInAContainersProc) {
  tree_.link("proc/1/ns/pid", "pid:[4026532188]");
  const vfio::UseReport report = look({ask("gpu", "/dev/n", kNull)});
  EXPECT_EQ(report.blind, "/proc shows the processes of a container alone");
  tree_.link("proc/1/ns/pid", "pid:[4026531836]");
  EXPECT_EQ(look({ask("gpu", "/dev/n", kNull)}).blind, "");
}

TEST_F(ProcUseProbeTest, NeedsNoProcForDevicesWithoutNodes) {
  tree_.remove("proc");
  EXPECT_THAT(look({{.device = "0000:01:00.0", .nodes = {}}}).users, IsEmpty());
}

// -- this machine --

/// A child that does something, says so by one byte, and lives until it is ended.
class Child {
 public:
  template <typename Act>
  explicit Child(Act act) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      if constexpr (std::is_invocable_v<Act, int>) {
        act(ends[1]);  // says so itself
      } else {
        act();
      }
      if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ends[1]);  // so that a child which ends without a word ends the wait for it
    char byte = 0;
    if (::read(ends[0], &byte, 1) != 1) std::abort();
    ::close(ends[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  int pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

/// The number of a device of this machine; absent: there is none of that name.
std::optional<DeviceNumber> number_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return DeviceNumber{.major = ::major(status.st_rdev), .minor = ::minor(status.st_rdev)};
}

/// A terminal of this test's own: a device that nobody else has open.
struct Terminal {
  UniqueFd master{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  std::string path;
  DeviceNumber number;
  Terminal() {
    if (::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0) std::abort();
    path = ::ptsname(master.get());
    number = number_of(path).value();
  }
};

TEST(ProcUseProbeForReal, FindsTheChildThatHoldsATerminalAndNobodyElse) {
  const Terminal terminal;
  const HostFs host("/");
  ProcUseProbe probe(host);
  const std::vector questions = {ask("terminal", "/dev/of-another-name", terminal.number)};
  EXPECT_THAT(must(probe.look(questions)).of("terminal"), IsEmpty());
  {
    const Child child([&] {
      if (::open(terminal.path.c_str(), O_RDWR | O_NOCTTY) < 0) ::_exit(1);
    });
    const vfio::UseReport report = must(probe.look(questions));
    ASSERT_EQ(report.of("terminal").size(), 1U);
    EXPECT_EQ(report.of("terminal")[0].pid, child.pid());
    EXPECT_EQ(report.of("terminal")[0].name, "host_test");
    EXPECT_EQ(report.of("terminal")[0].what, "/dev/of-another-name");
  }
  EXPECT_THAT(must(probe.look(questions)).of("terminal"), IsEmpty());
}

// What a thread opens behind unshare(2) is in its own table alone.
TEST(ProcUseProbeForReal, FindsTheThreadThatHasATableOfItsOwn) {
  const Terminal terminal;
  const Child child([&](int ready) {
    std::thread([&terminal, ready] {
      if (::unshare(CLONE_FILES) != 0) ::_exit(1);
      // Under a number that the process has too.
      const int fd = ::open(terminal.path.c_str(), O_RDWR | O_NOCTTY);
      if (fd < 0 || ::dup2(fd, STDIN_FILENO) != STDIN_FILENO || ::close(fd) != 0) ::_exit(1);
      if (::write(ready, "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }).join();
  });
  const HostFs host("/");
  const vfio::UseReport report =
      must(ProcUseProbe(host).look(std::vector{ask("t", "/dev/t", terminal.number)}));
  ASSERT_EQ(report.of("t").size(), 1U);
  EXPECT_EQ(report.of("t")[0].pid, child.pid());
}

// To compare each table with each other one takes longer than the deadline, and a process in a pod would keep
// every device from being bound.
TEST(ProcUseProbeForReal, LooksThroughAProcessWithThousandsOfTables) {
  const Terminal terminal;
  constexpr int kThreads = 3000;
  const Child child([&](int ready) {
    constexpr std::size_t kStack = std::size_t{64} << 10U;
    pthread_attr_t attributes;
    if (::pthread_attr_init(&attributes) != 0 || ::pthread_attr_setstacksize(&attributes, kStack) != 0)
      ::_exit(1);
    static std::atomic<int> done = 0;
    const auto own_table = [](void* path) -> void* {
      if (::unshare(CLONE_FILES) != 0) ::_exit(1);
      if (path != nullptr && ::open(static_cast<const char*>(path), O_RDWR | O_NOCTTY) < 0) ::_exit(1);
      ++done;
      done.notify_one();
      for (;;) ::pause();
    };
    std::string path = terminal.path;
    for (int i = 0; i < kThreads; ++i) {
      pthread_t thread{};
      char* const opened = i + 1 == kThreads ? path.data() : nullptr;
      if (::pthread_create(&thread, &attributes, own_table, opened) != 0) ::_exit(1);
    }
    for (int now = done; now < kThreads; now = done) done.wait(now);
    if (::write(ready, "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  });
  const HostFs host("/");
  const vfio::UseReport report =
      must(ProcUseProbe(host).look(std::vector{ask("t", "/dev/t", terminal.number)}));
  EXPECT_THAT(report.blind, Not(HasSubstr(std::to_string(child.pid()))));
  ASSERT_EQ(report.of("t").size(), 1U);
  EXPECT_EQ(report.of("t")[0].pid, child.pid());
}

// As a C program does whose main() ends in pthread_exit().
TEST(ProcUseProbeForReal, FindsAChildWhoseFirstThreadHasEnded) {
  const Terminal terminal;
  const Child child([&](int ready) {
    if (::open(terminal.path.c_str(), O_RDWR | O_NOCTTY) < 0) ::_exit(1);
    std::thread([ready] {
      const HostFs host("/");
      const std::string first = "proc/" + std::to_string(::getpid()) + "/stat";
      while (host.read_file(first).value_or("").find(") Z ") == std::string::npos) std::this_thread::yield();
      if (::write(ready, "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);  // of this thread alone; pthread_exit() would unwind gtest's frames
  });
  const HostFs host("/");
  const vfio::UseReport report =
      must(ProcUseProbe(host).look(std::vector{ask("t", "/dev/t", terminal.number)}));
  ASSERT_EQ(report.of("t").size(), 1U);
  EXPECT_EQ(report.of("t")[0].pid, child.pid());
}

TEST(ProcUseProbeForReal, FindsTheChildThatMappedADeviceAndClosedIt) {
  // Mapping needs a device whose driver keeps the file; /dev/zero mapped shared becomes memory of another
  // name.
  const HostFs host("/");
  const auto number = number_of("/dev/mem");
  if (!number) GTEST_SKIP() << "no /dev/mem here to map";
  int status = 0;
  const pid_t can = ::fork();
  if (can == 0) {
    const int fd = ::open("/dev/mem", O_RDONLY);
    ::_exit(fd >= 0 && ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0xf0000) != MAP_FAILED ? 0 : 1);
  }
  ::waitpid(can, &status, 0);
  if (status != 0) GTEST_SKIP() << "/dev/mem cannot be mapped here";
  const Child child([] {
    const int fd = ::open("/dev/mem", O_RDONLY);
    if (::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0xf0000) == MAP_FAILED) ::_exit(1);
    ::close(fd);
  });
  const vfio::UseReport report = must(ProcUseProbe(host).look(std::vector{ask("mem", "/dev/mem", *number)}));
  ASSERT_EQ(report.of("mem").size(), 1U);
  EXPECT_EQ(report.of("mem")[0].pid, child.pid());
}

TEST(ProcUseProbeForReal, NamesTheProcessesThatItMayNotLookInto) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to look as somebody else";
  // As nobody: process 1 and the test itself are not ours to look into.
  const Child child([] {
    constexpr uid_t kNobody = 65534;
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    const HostFs host("/");
    const auto report =
        ProcUseProbe(host).look(std::vector{ask("x", "/dev/n", {.major = 511, .minor = 511})});
    const bool reported = report && report->unknown.size() == 1 &&
                          report->unknown[0].ends_with(" could not be looked into: not permitted") &&
                          report->unknown[0].starts_with("processes 1 (");
    if (!reported) ::_exit(1);
  });
  EXPECT_GT(child.pid(), 0);
}

}  // namespace
}  // namespace ferry::host
