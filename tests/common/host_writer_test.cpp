// SPDX-License-Identifier: Apache-2.0
// The real writer, with the real child: this executable itself (tests/support/test_main.cpp).
#include "hostfs/host_writer.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/process/spawn.h"
#include "hostfs/in_flight_writes.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/locks.h"
#include "hostfs/stuck_writes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::HasSubstr;

class HostWriterTest : public testing::Test {
 protected:
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  SpawningWriter writer_{host_};
};

TEST_F(HostWriterTest, WritesTheValueAsItIs) {
  tree_.file("sys/driver_override", "");
  ASSERT_TRUE(writer_.write("sys/driver_override", "vfio-pci", kWriteDeadline));
  EXPECT_EQ(host_.read_file("sys/driver_override").value(), "vfio-pci");
  tree_.file("sys/driver_override", "");
  ASSERT_TRUE(writer_.write("sys/driver_override", "\n", kWriteDeadline));
  EXPECT_EQ(host_.read_file("sys/driver_override").value(), "\n");
}

TEST_F(HostWriterTest, PassesOnTheErrnoOfTheWrite) {
  HostFs real("/");
  SpawningWriter writer(real);
  const auto written = writer.write("dev/full", "x", kWriteDeadline);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, std::errc::no_space_on_device);
  EXPECT_THAT(written.error().message, HasSubstr("write /dev/full"));
}

TEST_F(HostWriterTest, NeverCreatesAnAttribute) {
  tree_.directory("sys");
  const auto written = writer_.write("sys/none", "1", kWriteDeadline);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, std::errc::no_such_file_or_directory);
  EXPECT_FALSE(host_.exists("sys/none"));
  EXPECT_EQ(writer_.write("sys", "1", kWriteDeadline).error().code, std::errc::is_a_directory);
}

TEST_F(HostWriterTest, WritesInOrderAndNothingBehindAFailure) {
  constexpr std::size_t kMany = 70;  // more than the child is given at once
  std::vector<AttributeWrite> writes;
  for (std::size_t i = 0; i < kMany; ++i) {
    const std::string path = "sys/a" + std::to_string(i);
    tree_.file(path, "");
    writes.push_back({.path = path, .value = std::to_string(i)});
  }
  std::vector<std::size_t> begun;
  const auto note = [&](std::size_t i) { begun.push_back(i); };
  ASSERT_TRUE(writer_.write_in_order(writes, note));
  EXPECT_THAT(begun, testing::SizeIs(kMany));
  EXPECT_TRUE(std::ranges::is_sorted(begun));
  for (const auto& write : writes) EXPECT_EQ(host_.read_file(write.path).value(), write.value);

  for (const std::size_t bad : {std::size_t{0}, std::size_t{3}, std::size_t{40}, kMany - 1}) {
    for (const auto& write : writes) tree_.file(write.path, "");
    std::vector<AttributeWrite> some = writes;
    some[bad].path = "sys/none";
    begun.clear();
    const auto failed = writer_.write_in_order(some, note);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, std::errc::no_such_file_or_directory);
    EXPECT_THAT(begun, testing::SizeIs(bad + 1));
    for (std::size_t i = 0; i < kMany; ++i) {
      EXPECT_EQ(host_.read_file(writes[i].path).value(), i < bad ? writes[i].value : "")
          << i << " of " << bad;
    }
    tree_.file("sys/other", "");
    EXPECT_TRUE(writer_.write("sys/other", "1", kWriteDeadline)) << "the child serves on";
  }
  EXPECT_TRUE(writer_.write_in_order({}, note));
}

long sleeps() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;  // NOLINT(cppcoreguidelines-pro-type-union-access): glibc's own
}

// To a pipe that holds one value, whose reader takes its time.
TEST_F(HostWriterTest, IsWokenOnceForSeveralWrites) {
  constexpr std::size_t kMany = 30;
  constexpr std::size_t kValue = 3600;  // no two of them go into a page
  ASSERT_EQ(::mkfifo((tree_.path() / "pipe").c_str(), 0600), 0);
  const UniqueFd pipe = must(host_.open("pipe", O_RDWR));
  ASSERT_GT(::fcntl(pipe.get(), F_SETPIPE_SZ, 4096), 0);
  const std::jthread reader([&pipe] {
    std::array<char, kValue> value{};
    for (std::size_t i = 0; i < kMany; ++i) {
      std::this_thread::sleep_for(1ms);
      pollfd written{.fd = pipe.get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&written, 1, 20'000), 1);
      EXPECT_EQ(::read(pipe.get(), value.data(), value.size()), static_cast<ssize_t>(kValue));
    }
  });
  SpawningWriter writer(host_, "/proc/self/exe", 1h);  // none of them is slow
  const std::vector<AttributeWrite> writes(kMany, {.path = "pipe", .value = std::string(kValue, 'x')});
  const auto begin = std::chrono::steady_clock::now();
  const long before = sleeps();
  EXPECT_TRUE(writer.write_in_order(writes, {}));
  EXPECT_LE(sleeps() - before, 10) << "the child's start is among them";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

TEST_F(HostWriterTest, HasWhatItNeedsToTellOfActsOnceTheyAreExpected) {
  tree_.file("sys/a", "");
  ASSERT_TRUE(writer_.read("sys/a", 10s));
  EXPECT_FALSE(host_.exists("run/ferry/hostd/acts")) << "who only reads leaves nothing";
  SpawningWriter writer(host_);
  writer.prepare(1);
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!host_.exists("run/ferry/hostd/acts") && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_TRUE(host_.exists("run/ferry/hostd/acts"));
  EXPECT_TRUE(writer.write("sys/a", "1", kWriteDeadline));
  EXPECT_EQ(host_.read_file("sys/a").value(), "1");
}

TEST_F(HostWriterTest, WritesOnlyWhereNothingIsSet) {
  for (const char* unset : {"", "\n", "0", "0\n", " 0 \n"}) {
    tree_.file("sys/type", unset);
    EXPECT_TRUE(writer_.write_in_order({{{.path = "sys/type", .value = "7", .only_if_unset = true}}}, {}));
    EXPECT_THAT(host_.read_file("sys/type").value(), testing::StartsWith("7")) << unset;
  }
  tree_.file("sys/first", "");
  tree_.file("sys/last", "");
  for (const char* set : {"1153", "00", "none"}) {
    tree_.file("sys/type", set);
    const std::vector<AttributeWrite> writes = {{.path = "sys/first", .value = "1", .only_if_unset = true},
                                                {.path = "sys/type", .value = "7", .only_if_unset = true},
                                                {.path = "sys/last", .value = "1", .only_if_unset = true}};
    tree_.file("sys/first", "");
    const auto done = writer_.write_in_order(writes, {});
    ASSERT_FALSE(done) << set;
    EXPECT_EQ(done.error().code, std::errc::file_exists);
    EXPECT_EQ(host_.read_file("sys/first").value(), "1");
    EXPECT_EQ(host_.read_file("sys/type").value(), set);
    EXPECT_EQ(host_.read_file("sys/last").value(), "");
  }
}

TEST_F(HostWriterTest, ReadsAnAttribute) {
  tree_.file("sys/driver_override", "vfio-pci\n");
  tree_.file("sys/empty", "");
  EXPECT_EQ(writer_.read("sys/driver_override", 10s).value(), "vfio-pci");
  EXPECT_EQ(writer_.read("sys/empty", 10s).value(), "");
  const auto none = writer_.read("sys/none", 10s);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, std::errc::no_such_file_or_directory);
  EXPECT_THAT(none.error().message, HasSubstr("read /sys/none"));
}

TEST_F(HostWriterTest, ReadsAPageOfALongerAttribute) {
  tree_.file("sys/long", std::string(100'000, 'x'));
  EXPECT_EQ(writer_.read("sys/long", 10s).value(), std::string(4096, 'x'));
}

TEST_F(HostWriterTest, ClaimsNoNodeThatIsNotTheDevice) {
  tree_.file("dev/sdb", "");
  const auto regular = writer_.try_claim("dev/sdb", {.major = 8, .minor = 16}, kReadDeadline);
  ASSERT_FALSE(regular);
  EXPECT_EQ(regular.error().code, std::errc::no_such_device);
  EXPECT_THAT(regular.error().message, HasSubstr("read the claim on /dev/sdb"));
  EXPECT_EQ(writer_.try_claim("dev/none", {}, kReadDeadline).error().code,
            std::errc::no_such_file_or_directory);
  HostFs real("/");
  SpawningWriter writer(real);
  EXPECT_EQ(writer.try_claim("dev/null", {.major = 1, .minor = 3}, kReadDeadline).error().code,
            std::errc::no_such_device)
      << "a character device of that number";
}

/// One that the kernel has made for whoever comes first, and that nobody has given a file yet.
std::optional<std::string> unused_loop_device(const HostFs& host) {
  for (int i = 7; i >= 0; --i) {
    std::string name = "loop" + std::to_string(i);
    if (!host.exists("sys/class/block/" + name + "/loop") && host.open("dev/" + name, O_RDONLY | O_EXCL))
      return name;
  }
  return std::nullopt;
}

TEST_F(HostWriterTest, TellsWhetherABlockDeviceIsClaimedAndLeavesItFree) {
  HostFs real("/");
  const std::string name = unused_loop_device(real).value_or("");
  if (name.empty()) GTEST_SKIP() << "no unused loop device here that may be opened";
  const DeviceNumber number = must(real.device_number("dev/" + name));
  SpawningWriter writer(real);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(writer.try_claim("dev/" + name, number, kReadDeadline)) << "claimed by the question itself";
  EXPECT_EQ(writer.try_claim("dev/" + name, {.major = number.major, .minor = number.minor + 1}, kReadDeadline)
                .error()
                .code,
            std::errc::no_such_device);
  const UniqueFd opened = must(real.open("dev/" + name, O_RDONLY));
  EXPECT_TRUE(writer.try_claim("dev/" + name, number, kReadDeadline)) << "a process's plain open is no claim";
  const UniqueFd claimed = must(real.open("dev/" + name, O_RDONLY | O_EXCL));
  const auto tried = writer.try_claim("dev/" + name, number, kReadDeadline);
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().code, std::errc::device_or_resource_busy);
}

TEST_F(HostWriterTest, StartsItsChildrenBeforeTheyAreNeeded) {
  const HostFs real("/");
  const auto children = [&] {
    const std::string list = must(real.read_attribute("proc/thread-self/children"));
    return std::count(list.begin(), list.end(), ' ');
  };
  const auto before = children();
  writer_.prepare(2);
  writer_.prepare(1);
  EXPECT_EQ(children(), before + 2);
  tree_.file("sys/a", "");
  ASSERT_TRUE(writer_.write("sys/a", "1", kWriteDeadline));
  EXPECT_EQ(children(), before + 2);
}

TEST_F(HostWriterTest, LeavesItToTheWriteToSayThatNoChildCanBeStarted) {
  SpawningWriter writer(host_, tree_.path() / "no-program");
  writer.prepare(2);
  EXPECT_THAT(writer.write("sys/a", "1", kWriteDeadline).error().message, HasSubstr("start "));
}

TEST_F(HostWriterTest, SaysThatThereIsNoSuchModule) {
  const auto loaded = writer_.load_module("no_such_module_of_ours", kWriteDeadline);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, std::errc::no_such_file_or_directory);
  EXPECT_THAT(loaded.error().message, HasSubstr("load module no_such_module_of_ours"));
}

TEST_F(HostWriterTest, LoadsModulesAsModprobesConfigurationSaysWhereverThatLies) {
  for (const std::string directory : kModprobeDirectories) {
    const std::string module = "ferry_test_" + directory.substr(0, directory.find('/'));
    tree_.file(directory + "/ours.conf", "install " + module + " /bin/true\n");
    const auto loaded = writer_.load_module(module, kWriteDeadline);
    EXPECT_TRUE(loaded) << directory << ": " << (loaded ? "" : loaded.error().message);
    tree_.remove(directory + "/ours.conf");
  }
}

/// Programs of this machine, whose root is the host's.
class HostProgramTest : public testing::Test {
 protected:
  Result<> run(const std::string& script) {
    return writer_.run(
        {.root = {}, .words = {"/bin/sh", "-c", script, "sh", tree_.path().string()}, .device = "d"},
        kWriteDeadline);
  }
  test::ScratchDirectory tree_;
  HostFs host_{"/"};
  SpawningWriter writer_{host_};
};

TEST_F(HostProgramTest, IsGivenItsWordsAndNothingOfOurs) {
  ASSERT_TRUE(::setenv("FERRY_TEST_SECRET", "x", 1) == 0);
  const auto done =
      run("{ env | grep -c SECRET; ls /proc/self/fd | wc -l; readlink /proc/self/fd/0; pwd; } > \"$1/out\"");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(HostFs(tree_.path()).read_file("out").value(), "0\n5\n/dev/null\n/\n")
      << "0, 1, 2, the list itself, and what tells of it";
}

// A service that is stopped takes the host writer's process with it, and not what sleeps in the kernel.
TEST_F(HostProgramTest, IsStillToldOfWhenWhoStartedItIsKilled) {
  tree_.file("out", "");
  ASSERT_EQ(::mkfifo((tree_.path() / "held").c_str(), 0600), 0);
  const UniqueFd held(::open((tree_.path() / "held").c_str(), O_RDWR | O_CLOEXEC));
  const auto done = run(R"(echo $$ $PPID > "$1/out"; kill -9 $PPID; exec cat "$1/held")");
  ASSERT_FALSE(done);
  int pid = 0;
  int parent = 0;
  std::istringstream(must(HostFs(tree_.path()).read_file("out"))) >> pid >> parent;
  const std::string file = "run/ferry/hostd/acts/" +
                           file_name_of({.pid = parent, .pid_namespace = must(own_pid_namespace(host_))});
  const UniqueFd told = must(host_.open(file, O_RDONLY));
  EXPECT_NE(::flock(told.get(), LOCK_SH | LOCK_NB), 0) << "it lives, and holds the lock";
  EXPECT_EQ(std::stoi(must(host_.read_file(file))), pid);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(::flock(told.get(), LOCK_SH), 0);
  (void)host_.remove_file(file);
}

TEST_F(HostProgramTest, TellsItsStatusAndThatThereIsNone) {
  ASSERT_FALSE(run("exit 3"));
  EXPECT_EQ(run("exit 3").error().code, Errc::failed);
  EXPECT_THAT(run("exit 3").error().message, HasSubstr("it ended with status 3"));
  EXPECT_THAT(run("kill -9 $$").error().message, HasSubstr("it ended with status 137"));
  const auto none = writer_.run({.root = {}, .words = {"/no/such/program"}, .device = "d"}, kWriteDeadline);
  EXPECT_EQ(none.error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(
      writer_.run({.root = "no/such/root", .words = {"/bin/sh"}, .device = {}}, kWriteDeadline).error().code,
      std::errc::no_such_file_or_directory);
}

// The one that it has started holds the other end of the pipe for as long as it lives.
TEST_F(HostProgramTest, IsKilledWithWhatItStartedWhereItMayBe) {
  ASSERT_EQ(::mkfifo((tree_.path() / "held").c_str(), 0600), 0);
  const UniqueFd reader(::open((tree_.path() / "held").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto run_late = [&](const std::string& script, std::chrono::milliseconds deadline) {
    return writer_.run({.root = {},
                        .words = {"/bin/sh", "-c", script, "sh", tree_.path().string()},
                        .device = {},
                        .killed_when_late = true},
                       deadline);
  };
  const auto killed =
      run_late(R"(exec > "$1/held"; echo begun; sleep 100 & sleep 100)", std::chrono::milliseconds(1500));
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, Errc::failed) << killed.error().message;
  EXPECT_THAT(killed.error().message, HasSubstr("it did not end within 1.5 s, and was killed"));
  std::array<char, 16> read{};
  EXPECT_EQ(::read(reader.get(), read.data(), read.size()), 6) << "it had begun";
  EXPECT_EQ(::read(reader.get(), read.data(), read.size()), 0) << "nobody has the other end any more";
  const std::vector<StuckWrite> stuck = must(stuck_writes(host_));
  EXPECT_TRUE(std::ranges::none_of(stuck, [&](const StuckWrite& one) {
    return one.act.find(tree_.path().string()) != std::string::npos;
  }));

  EXPECT_TRUE(run_late("exit 0", kWriteDeadline));
  EXPECT_THAT(run_late("exit 3", kWriteDeadline).error().message, HasSubstr("it ended with status 3"));
  const HostCommand none{.root = {}, .words = {"/no/such/program"}, .device = {}, .killed_when_late = true};
  EXPECT_EQ(writer_.run(none, kWriteDeadline).error().code, std::errc::no_such_file_or_directory);
}

TEST_F(HostProgramTest, GivesWhatItPrinted) {
  const auto output = [&](const std::string& script) {
    return writer_.output({.root = {}, .words = {"/bin/sh", "-c", script}, .device = {}}, kWriteDeadline);
  };
  EXPECT_EQ(output("echo one; echo two >&2; echo three").value_or(""), "one\nthree\n");
  EXPECT_EQ(output("true").value_or("an error"), "");
  EXPECT_EQ(output("head -c 61440 /dev/zero").value_or("").size(), 61440U);
  EXPECT_EQ(output("head -c 61441 /dev/zero").error().code, std::errc::message_size);
  EXPECT_EQ(output("echo one; exit 1").error().code, Errc::failed);
  EXPECT_TRUE(run("echo lost")) << "what nobody asks for goes nowhere";
}

TEST_F(HostProgramTest, GivesWhatItPrintedAndIsKilledWhenItIsLate) {
  const auto output = [&](const std::string& script, std::chrono::milliseconds deadline = kWriteDeadline) {
    return writer_.output(
        {.root = {}, .words = {"/bin/sh", "-c", script}, .device = {}, .killed_when_late = true}, deadline);
  };
  EXPECT_EQ(must(output("echo one; echo two >&2")), "one\n");
  EXPECT_EQ(output("echo one; exit 1").error().code, Errc::failed);
  EXPECT_THAT(output("echo one; sleep 100", std::chrono::milliseconds(300)).error().message,
              HasSubstr("did not end within 0.3 s, and was killed"));
}

TEST_F(HostProgramTest, GivesAllThatItPrintedWhateverItsStatus) {
  const auto transcript = [&](const std::string& script,
                              std::chrono::milliseconds deadline = kWriteDeadline) {
    return writer_.transcript(
        {.root = {}, .words = {"/bin/sh", "-c", script}, .device = {}, .killed_when_late = true}, deadline);
  };
  EXPECT_EQ(must(transcript("echo one; echo two >&2; exit 3")), "one\ntwo\n");
  EXPECT_EQ(must(transcript("true")), "");
  const auto late = transcript("echo one; sleep 100", std::chrono::milliseconds(300));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::failed);
  EXPECT_THAT(late.error().message, HasSubstr("did not end within 0.3 s, and was killed"));
  const HostCommand none{.root = {}, .words = {"/no/such/program"}, .device = {}};
  EXPECT_EQ(writer_.transcript(none, kWriteDeadline).error().code, std::errc::no_such_file_or_directory);
}

// Another root directory is entered before the program is looked for there.
TEST_F(HostProgramTest, IsRunBelowItsRootDirectory) {
  const HostFs other(tree_.path());
  HostFs below(tree_.path());
  SpawningWriter writer(below);
  const auto none = writer.run({.root = {}, .words = {"/bin/sh"}, .device = {}}, kWriteDeadline);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code,
            ::geteuid() == 0 ? std::errc::no_such_file_or_directory : std::errc::operation_not_permitted);
}

TEST_F(HostWriterTest, SaysWhenTheChildCannotBeStarted) {
  SpawningWriter writer(host_, tree_.path() / "no-program");
  const auto written = writer.write("sys/a", "1", kWriteDeadline);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("start " + (tree_.path() / "no-program").string()));
}

TEST_F(HostWriterTest, DoesNotTakeAnEndWithoutAnAnswerForSuccess) {
  for (const char* program : {"/bin/true", "/bin/false"}) {
    SpawningWriter writer(host_, program);
    const auto written = writer.write("sys/a", "1", kWriteDeadline);
    ASSERT_FALSE(written) << program;
    EXPECT_EQ(written.error().code, Errc::failed);
    EXPECT_THAT(written.error().message, HasSubstr("without an answer"));
    const std::vector<AttributeWrite> several(3, {.path = "sys/a", .value = "1"});
    EXPECT_EQ(writer.write_in_order(several, {}).error().code, Errc::failed);
  }
}

TEST_F(HostWriterTest, AsksALibraryInAnotherProcess) {
  SpawningWriter writer(host_);
  const auto ask = [&](const std::string& library, const std::string& request) {
    return writer.call({.name = library, .request = request, .device = "d", .what = "ask"}, kWriteDeadline);
  };
  EXPECT_EQ(test::must(ask("echo", std::string("a\0b", 3))), tree_.path().string() + std::string(" a\0b", 4));
  EXPECT_EQ(ask("none", "a").error().code, Errc::unsupported);
  EXPECT_EQ(ask("echo", "too much").error().code, std::errc::message_size);
  EXPECT_EQ(ask("echo", "die").error().message, "ask: the writing process ended without an answer");
  EXPECT_EQ(test::must(ask("echo", "x")), tree_.path().string() + " x") << "after a crash";
}

TEST_F(HostWriterTest, RefusesAWrongCallOfTheChild) {
  std::vector<std::string> words = {"ferry", std::string(kHostActVerb), "erase", "/"};
  std::vector<char*> arguments;
  arguments.reserve(words.size());
  for (std::string& word : words) arguments.push_back(word.data());
  EXPECT_EQ(host_act_main(static_cast<int>(arguments.size()), arguments.data()), 2);
}

/// A write that hangs: nobody reads the FIFO, so opening it for writing does not return.
class StuckChildTest : public HostWriterTest {
 protected:
  void SetUp() override {
    tree_.directory("sys");
    if (::mkfifo((tree_.path() / "sys/unbind").c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
  }
  void TearDown() override {
    if (pid_ > 0 && !returned_) read_what_it_writes();
  }

  Result<> hang() {
    auto written = writer_.write("sys/unbind", "0000:65:00.0", 200ms);
    for (const std::string& name : records()) {
      record_ = nlohmann::json::parse(must(host_.read_file("run/ferry/hostd/stuck/" + name)));
      pid_ = record_.at("pid").get<int>();
    }
    return written;
  }

  /// Their names; of none that is still being written.
  std::vector<std::string> records() const {
    auto names = host_.list("run/ferry/hostd/stuck").value_or(std::vector<std::string>{});
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    return names;
  }
  void wait_for_a_record() const {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (records().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

  // Lets the write return at last, and the child end.
  std::string read_what_it_writes() {
    returned_ = true;
    const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
    std::string value(64, '\0');
    const ssize_t n = ::read(reader.get(), value.data(), value.size());
    value.resize(static_cast<std::size_t>(n < 0 ? 0 : n));
    ::waitpid(pid_, nullptr, 0);
    return value;
  }

  std::string proc(const char* file) const { return "proc/" + std::to_string(pid_) + "/" + file; }

  /// What is told of an act under way; "": there is none.
  std::string act() const {
    for (const std::string& name : acts()) {
      const std::string text = host_.read_file("run/ferry/hostd/acts/" + name).value_or("");
      std::string told = text.substr(0, text.find('\0'));
      if (!told.empty() && told.find('\n') != told.size() - 1) return told;
    }
    return {};
  }
  std::vector<std::string> acts() const {
    return host_.list("run/ferry/hostd/acts").value_or(std::vector<std::string>{});
  }

  nlohmann::json record_;
  int pid_ = 0;
  bool returned_ = false;
};

TEST_F(StuckChildTest, IsReportedAndRecordedAfterTheDeadline) {
  const auto written = hang();
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::stuck);
  EXPECT_THAT(written.error().message, HasSubstr("write /sys/unbind: still in the kernel after 200 ms"));
  EXPECT_EQ(record_.at("act"), "write /sys/unbind");
  EXPECT_EQ(record_.at("value"), "0000:65:00.0");
}

// Whoever waits may be killed long before the deadline: by then the record must be there.
TEST_F(StuckChildTest, IsRecordedLongBeforeTheDeadlineAndForgottenWhenItReturns) {
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  Result<> written = fail(Errc::failed, "not yet");
  std::jthread waiting([&] { written = writer.write("sys/unbind", "0000:65:00.0", kWriteDeadline); });
  wait_for_a_record();
  ASSERT_THAT(records(), testing::SizeIs(1));
  const auto record = nlohmann::json::parse(must(host_.read_file("run/ferry/hostd/stuck/" + records()[0])));
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  EXPECT_GT(record.at("late_at_ms").get<std::int64_t>(), std::int64_t{now.tv_sec} * 1000 + 30'000)
      << "so far it is slow, and not late";
  const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_THAT(records(), testing::IsEmpty());
}

// `ferry status --watch` reads a device time and again, and may have no right to leave a record.
TEST_F(StuckChildTest, IsTheOnlyOneAtARead) {
  tree_.file("sys/other", "1\n");
  const auto read = writer_.read("sys/unbind", 200ms);
  ASSERT_FALSE(read);
  ASSERT_THAT(records(), testing::SizeIs(1));
  pid_ = nlohmann::json::parse(must(host_.read_file("run/ferry/hostd/stuck/" + records()[0])))
             .at("pid")
             .get<int>();
  const auto again = writer_.read("sys/unbind", 200ms);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::stuck);
  EXPECT_EQ(
      again.error().message,
      fmt::format("read /sys/unbind: an earlier read has not returned from the kernel (process {})", pid_));
  EXPECT_THAT(records(), testing::SizeIs(1));
  returned_ = true;
  {
    const UniqueFd writing = must(host_.open("sys/unbind", O_WRONLY));  // the read returns
  }
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT), 0) << "it ends then";
  EXPECT_EQ(must(writer_.read("sys/other", 20s)), "1") << "another file is read";
}

/// Its records of what hangs stay.
class Keeping final : public HostFs {
 public:
  using HostFs::HostFs;
  Result<> remove_file(const std::filesystem::path& relative) override {
    return fail(error_from_errno(EROFS, "remove /" + relative.string()));
  }
};

// A record holds for as long as its process lives, and hostd lives long.
TEST_F(StuckChildTest, WhoseRecordStaysDoesNotOutliveItsAnswer) {
  tree_.file("sys/other", "");
  Keeping keeping(tree_.path());
  SpawningWriter writer(keeping, "/proc/self/exe", 1ms);
  const std::vector<AttributeWrite> writes = {{.path = "sys/unbind", .value = "0000:65:00.0"},
                                              {.path = "sys/other", .value = "1"}};
  Result<> written = fail(Errc::failed, "not yet");
  std::jthread waiting([&] { written = writer.write_in_order(writes, {}); });
  wait_for_a_record();
  ASSERT_THAT(records(), testing::SizeIs(1));
  const int pid = nlohmann::json::parse(must(host_.read_file("run/ferry/hostd/stuck/" + records()[0])))
                      .at("pid")
                      .get<int>();
  const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(host_.read_file("sys/other").value(), "1") << "what is behind it is still written";
  EXPECT_FALSE(HostFs("/").exists("proc/" + std::to_string(pid)));
  EXPECT_THAT(records(), testing::IsEmpty()) << "it takes the record away itself";
}

TEST_F(StuckChildTest, IsCollectedOnceItHasReturned) {
  tree_.file("sys/other", "");
  ASSERT_FALSE(hang());
  {
    const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
    siginfo_t ended{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT), 0);
  }
  returned_ = true;
  ASSERT_TRUE(HostFs("/").exists(proc("stat"))) << "nobody has collected it yet";
  EXPECT_TRUE(writer_.write("sys/other", "1", 10s));
  EXPECT_FALSE(HostFs("/").exists(proc("stat")));
}

TEST_F(StuckChildTest, WritesNothingBehindTheOneThatHangs) {
  tree_.file("sys/next", "");
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  const std::vector<AttributeWrite> writes = {{.path = "sys/unbind", .value = "0000:65:00.0"},
                                              {.path = "sys/next", .value = "1"}};
  Result<> written;
  std::jthread waiting([&] { written = writer.write_in_order(writes, {}); });
  wait_for_a_record();
  ASSERT_THAT(records(), testing::SizeIs(1));
  EXPECT_EQ(host_.read_file("sys/next").value(), "");
  const UniqueFd reader = must(host_.open("sys/unbind", O_RDONLY));
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(host_.read_file("sys/next").value(), "1");
  EXPECT_THAT(records(), testing::IsEmpty());
}

// What is recorded is the one that the child is at, however many of those it was given are slow.
TEST_F(StuckChildTest, IsRecordedWithEachOfSeveralWritesThatIsSlow) {
  ASSERT_EQ(::mkfifo((tree_.path() / "sys/bind").c_str(), 0600), 0);
  std::vector<AttributeWrite> writes;
  for (const char* name : {"sys/a", "sys/unbind", "sys/b", "sys/bind", "sys/c"}) {
    if (!host_.exists(name)) tree_.file(name, "");
    writes.push_back({.path = name, .value = "1"});
  }
  const auto wait_for = [&](const std::string& act) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    std::string recorded;
    while (recorded != act && std::chrono::steady_clock::now() < end) {
      for (const std::string& name : records()) {
        const auto record = nlohmann::json::parse(
            host_.read_file("run/ferry/hostd/stuck/" + name).value_or(""), nullptr, false);
        recorded = record.is_object() ? record.value("act", "") : "";
      }
    }
    return recorded;
  };
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  std::vector<std::size_t> begun;
  Result<> written = fail(Errc::failed, "not yet");
  std::jthread waiting(
      [&] { written = writer.write_in_order(writes, [&](std::size_t i) { begun.push_back(i); }); });
  for (const auto* slow : {"sys/unbind", "sys/bind"}) {
    EXPECT_EQ(wait_for(std::string("write /") + slow), std::string("write /") + slow);
    const UniqueFd reader = must(host_.open(slow, O_RDONLY));
    std::array<char, 1> value{};
    EXPECT_EQ(::read(reader.get(), value.data(), value.size()), 1);
  }
  waiting.join();
  EXPECT_TRUE(written);
  EXPECT_THAT(begun, testing::ElementsAre(0U, 1U, 2U, 3U, 4U));
  EXPECT_EQ(host_.read_file("sys/c").value(), "1");
  EXPECT_THAT(records(), testing::IsEmpty());
}

// Who has given up on it plans anew, and knows nothing of what it would still do.
TEST_F(StuckChildTest, WritesNothingMoreOnceItIsLeftBehind) {
  tree_.file("sys/first", "");
  tree_.file("sys/next", "");
  const std::vector<AttributeWrite> writes = {{.path = "sys/first", .value = "1"},
                                              {.path = "sys/unbind", .value = "0000:65:00.0"},
                                              {.path = "sys/next", .value = "1"}};
  constexpr auto kDeadline = 2000ms;
  for (const auto slow : {1ms, kDeadline}) {  // recorded before the deadline, or only then
    returned_ = false;
    SpawningWriter writer(host_, "/proc/self/exe", slow, kDeadline);
    ASSERT_TRUE(writer.write("sys/first", "0", kWriteDeadline)) << "its child has started";
    std::vector<std::size_t> begun;
    const auto written = writer.write_in_order(writes, [&](std::size_t i) { begun.push_back(i); });
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Errc::stuck);
    EXPECT_THAT(written.error().message, HasSubstr("write /sys/unbind: still in the kernel after 2000 ms"));
    EXPECT_THAT(begun, testing::ElementsAre(0U, 1U));
    ASSERT_THAT(records(), testing::SizeIs(1));
    pid_ = nlohmann::json::parse(must(host_.read_file("run/ferry/hostd/stuck/" + records()[0])))
               .at("pid")
               .get<int>();
    EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
    EXPECT_EQ(host_.read_file("sys/next").value(), "");
    EXPECT_THAT(records(), testing::IsEmpty()) << "it takes the record away itself";
  }
}

TEST_F(HostWriterTest, PassesOverAnIdleChildThatHasDied) {
  tree_.file("sys/a", "");
  ASSERT_TRUE(writer_.write("sys/a", "1", kWriteDeadline));
  const auto acts = must(host_.list("run/ferry/hostd/acts"));
  ASSERT_THAT(acts, testing::SizeIs(1));
  const int pid = std::stoi(must(host_.read_file("run/ferry/hostd/acts/" + acts[0])));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(writer_.write("sys/a", "2", kWriteDeadline));
  EXPECT_EQ(host_.read_file("sys/a").value(), "2");
}

// What it had done before stands: whoever repeats or undoes goes by that.
TEST_F(StuckChildTest, WhichDiesIsMissedAtTheWriteThatItWasAt) {
  std::vector<AttributeWrite> writes;
  for (const char* name : {"sys/a", "sys/b", "sys/c", "sys/unbind", "sys/d", "sys/e"}) {
    if (std::string_view(name) != "sys/unbind") tree_.file(name, "");
    writes.push_back({.path = name, .value = "1"});
  }
  std::vector<std::size_t> begun;
  Result<> written;
  std::jthread waiting(
      [&] { written = writer_.write_in_order(writes, [&](std::size_t i) { begun.push_back(i); }); });
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (act().find("write /sys/unbind") == std::string::npos && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  ASSERT_EQ(::kill(std::stoi(act()), SIGKILL), 0);
  waiting.join();
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("write /sys/unbind: the writing process ended"));
  EXPECT_THAT(begun, testing::ElementsAre(0U, 1U, 2U, 3U));
  EXPECT_EQ(host_.read_file("sys/d").value(), "");
}

TEST_F(StuckChildTest, MayBeOneThatReads) {
  SpawningWriter writer(host_, "/proc/self/exe", 1ms);
  const auto read = writer.read("sys/unbind", 50ms);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::stuck);
  EXPECT_THAT(read.error().message, HasSubstr("read /sys/unbind: still in the kernel"));
  EXPECT_THAT(must(host_.list("run/ferry/hostd/stuck")), testing::SizeIs(1));
  // Lets it return.
  const UniqueFd end = must(host_.open("sys/unbind", O_RDWR));
  EXPECT_EQ(::write(end.get(), "\n", 1), 1);
}

TEST_F(StuckChildTest, IsLeftBehindAliveAndItsWriteIsMadeOnce) {
  ASSERT_FALSE(hang());
  ASSERT_GT(pid_, 0);
  int status = 0;
  EXPECT_EQ(::waitpid(pid_, &status, WNOHANG), 0) << "it was killed";
  EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
}

// Who looks from another PID namespace does not see that the process has ended.
TEST_F(StuckChildTest, TakesItsOwnRecordAwayWhenItReturnsAtLast) {
  ASSERT_FALSE(hang());
  EXPECT_THAT(must(host_.list("run/ferry/hostd/stuck")), testing::SizeIs(1));
  read_what_it_writes();
  EXPECT_THAT(must(host_.list("run/ferry/hostd/stuck")), testing::IsEmpty());
}

TEST_F(StuckChildTest, HoldsNothingOfOurs) {
  tree_.file("secret", "");
  // As a library would: without close-on-exec.
  const UniqueFd ours(::open((tree_.path() / "secret").c_str(), O_RDONLY));
  std::optional<NodeLock> lock = must(NodeLock::take(host_, 0ms));
  tree_.file("sys/other", "");
  ASSERT_TRUE(writer_.write("sys/other", "1", kWriteDeadline)) << "its child has started";
  ASSERT_FALSE(hang());
  ASSERT_GT(pid_, 0);

  const HostFs real("/");
  int pages = 0;
  for (const std::string& fd : must(real.list(proc("fd")))) {
    const std::string target = must(real.link_target(proc("fd/") + fd));
    const bool known =
        target == "/dev/null" || (fd == "0" && target.starts_with("socket:")) ||
        (target.starts_with("/memfd:ferry-writes") && std::stoi(fd) > STDERR_FILENO && pages++ == 0) ||
        target == tree_.path() || target == tree_.path() / "run/ferry/hostd/acts" / std::to_string(pid_);
    EXPECT_TRUE(known) << "descriptor " << fd << " is " << target;
  }
  EXPECT_EQ(real.read_file(proc("environ")).value(), "") << "environment";

  lock.reset();
  EXPECT_TRUE(NodeLock::take(host_, 0ms)) << "the stuck child keeps the node's lock";
}

/// Of a run that was killed as soon as its last write had begun: nobody has recorded that as slow.
class ChildOfAKilledRun : public StuckChildTest {
 protected:
  void SetUp() override {
    StuckChildTest::SetUp();
    tree_.file("sys/next", "");
    const pid_t run = ::fork();
    if (run == 0) {
      const std::vector<AttributeWrite> writes = {{.path = "sys/unbind", .value = "0000:65:00.0"},
                                                  {.path = "sys/next", .value = "1"}};
      (void)writer_.write_in_order(writes, {});
      ::_exit(1);
    }
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (act().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ::kill(run, SIGKILL);
    ::waitpid(run, nullptr, 0);
    EXPECT_THAT(act(), testing::EndsWith("\nwrite /sys/unbind\n0000:65:00.0"));
    pid_ = std::stoi(act());
  }
};

TEST_F(ChildOfAKilledRun, WritesNothingBehindWhatItIsAt) {
  std::optional<Result<NodeLock>> next;
  std::jthread waiting([&] { next = NodeLock::take(host_, 20s); });
  EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
  waiting.join();
  ASSERT_TRUE(next && *next);
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!acts().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(acts(), testing::IsEmpty()) << "its process ends";
  EXPECT_EQ(host_.read_file("sys/next").value(), "");
}

TEST_F(ChildOfAKilledRun, IsWaitedForByTheNextRun) {
  std::optional<Result<NodeLock>> next;
  std::jthread waiting([&] { next = NodeLock::take(host_, 20s); });
  EXPECT_EQ(read_what_it_writes(), "0000:65:00.0");
  waiting.join();
  ASSERT_TRUE(next && *next);
  EXPECT_EQ(act(), "");
  EXPECT_THAT(must(stuck_writes(host_)), testing::IsEmpty());
}

TEST_F(ChildOfAKilledRun, IsRecordedByTheNextRunIfItsWriteHangs) {
  const auto next = NodeLock::take(host_, 20s);
  ASSERT_TRUE(next) << "the others are not kept waiting";
  const std::string name = "run/ferry/hostd/stuck/" + std::to_string(pid_) + ".json";
  const auto record = nlohmann::json::parse(must(host_.read_file(name)));
  EXPECT_EQ(record.at("act"), "write /sys/unbind");
  EXPECT_EQ(record.at("value"), "0000:65:00.0");
  read_what_it_writes();
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!acts().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(acts(), testing::IsEmpty());
  EXPECT_FALSE(host_.exists(name)) << "it takes the record away itself";
}

TEST_F(ChildOfAKilledRun, IsRecordedOnce) {
  ASSERT_TRUE(NodeLock::take(host_, 20s));
  const std::string name = "run/ferry/hostd/stuck/" + std::to_string(pid_) + ".json";
  const std::string record = must(host_.read_file(name));
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(NodeLock::take(host_, 20s));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "nobody waits for it again";
  EXPECT_EQ(must(host_.read_file(name)), record) << "what is late stays so";
  read_what_it_writes();
}

/// A host writer's child whose run is gone before it has begun what it was told to do.
TEST_F(HostWriterTest, DoesNothingThatHadNotBegunWhenItsRunWasKilled) {
  tree_.file("sys/other", "");
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const int pid = must(spawn("/proc/self/exe", {"ferry", std::string(kHostActVerb), tree_.path().string()},
                             {.in = theirs.get()}));
  theirs.reset();
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
  const std::string order("wsys/other\0001", 12);
  ASSERT_EQ(::send(ours.get(), order.data(), order.size(), MSG_NOSIGNAL), 12);
  ours.reset();
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  EXPECT_EQ(reap(pid), 0);
  EXPECT_EQ(host_.read_file("sys/other").value(), "");
}

// What a child that was killed has left, and one that is idle.
TEST_F(HostWriterTest, IsTakenForAtNothingWhereNoActIsUnderWay) {
  tree_.file("run/ferry/hostd/acts/700", "700 \nwrite /x\ny");
  tree_.file("sys/other", "");
  ASSERT_TRUE(writer_.write("sys/other", "1", 10s));
  ASSERT_THAT(must(host_.list("run/ferry/hostd/acts")), testing::SizeIs(2));
  EXPECT_TRUE(NodeLock::take(host_, 0ms));
  EXPECT_THAT(must(host_.list("run/ferry/hostd/acts")), testing::SizeIs(1));
  EXPECT_FALSE(host_.exists("run/ferry/hostd/stuck"));
}

TEST_F(HostWriterTest, KeepsTheNextRunWhereItCannotBeReadWhatIsUnderWay) {
  for (const char* text : {"{", "7", "\n\n\n", " \na\nv", "7\na\nv", "x \na\nv", "0 \na\nv", "-7 \na\nv",
                           "7x \na\nv", "99999999999 \na\nv", "7 \na", "7 \n\nv", "7 pid:[../x]\na\nv",
                           "7 pid:[]\na\nv", "7 [1]\na\nv", "7 pid:[40265318360]\na\nv"}) {
    tree_.file("run/ferry/hostd/acts/700", text);
    const UniqueFd held = must(host_.open("run/ferry/hostd/acts/700", O_RDONLY));
    ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
    const auto done = wait_for_acts(host_, 0ms);
    ASSERT_FALSE(done) << text;
    EXPECT_EQ(done.error().code, Errc::stuck);
  }
}

TEST_F(StuckChildTest, DoesNotInheritWhichSignalsWeWaitFor) {
  sigset_t waited_for;
  sigset_t before;
  sigemptyset(&waited_for);
  sigaddset(&waited_for, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &waited_for, &before);
  EXPECT_FALSE(hang());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(must(HostFs("/").read_file(proc("status"))), HasSubstr("SigBlk:\t0000000000000000\n"));
}

TEST_F(StuckChildTest, DoesNotKeepOtherWritesBack) {
  tree_.file("sys/other", "");
  ASSERT_TRUE(writer_.write("sys/other", "1", kWriteDeadline));
  ASSERT_FALSE(hang());
  EXPECT_TRUE(writer_.write("sys/other", "2", 10s));
  EXPECT_EQ(host_.read_file("sys/other").value(), "2");
}

TEST_F(StuckChildTest, IsInASessionOfItsOwn) {
  ASSERT_FALSE(hang());
  ASSERT_GT(pid_, 0);
  EXPECT_EQ(::getsid(pid_), pid_) << "a Ctrl-C meant for us would reach it";
}

}  // namespace
}  // namespace ferry
