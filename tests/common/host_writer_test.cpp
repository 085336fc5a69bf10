// SPDX-License-Identifier: Apache-2.0
// The real writer, with the real child: this executable itself (tests/support/test_main.cpp).
#include "hostfs/host_writer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/kernel_facts.h"
#include "tests/common/written_tree.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::HostWriterTest;
using test::must;
using testing::HasSubstr;

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

TEST_F(HostWriterTest, MakesItsJournalOnceWritesAreExpected) {
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

}  // namespace
}  // namespace ferry
