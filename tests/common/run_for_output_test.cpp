// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <gmock/gmock.h>

#include "common/process/spawn.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using test::must;

struct Heard {
  ProgramOutput output;
  std::string errors;
};

Heard shell(const std::string& script) {
  Heard heard;
  heard.output = must(run_for_output("/bin/sh", {"/bin/sh", "-c", script}, {}, {.time = 20s},
                                     [&](std::string_view said) { heard.errors += said; }));
  return heard;
}

Result<ProgramOutput> run(const std::vector<std::string>& words, std::chrono::milliseconds most) {
  return run_for_output(words.front(), words, {.own_session = true}, {.time = most});
}

TEST(RunForOutput, CollectsBothOutputsAndTheExitStatus) {
  const Heard heard = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(heard.output.text, "out\n");
  EXPECT_EQ(heard.errors, "err\n");
  EXPECT_EQ(heard.output.status, 3);
}

TEST(RunForOutput, TakesMoreThanAPipeHolds) {
  const Heard heard = shell("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero");
  EXPECT_EQ(heard.output.text.size(), 300000U);
  EXPECT_EQ(heard.errors.size(), 300000U);
  EXPECT_EQ(heard.output.status, 0);
}

TEST(RunForOutput, SaysWhichSignalEndedIt) {
  EXPECT_EQ(shell("kill -TERM $$").output.status, 128 + 15);
}

TEST(RunForOutput, HasAnEmptyInputAndNoDescriptorOfOurs) {
  // 0, 1, 2 and the one of ls itself.
  EXPECT_EQ(shell("cat; ls /proc/self/fd | wc -l").output.text, "4\n");
}

TEST(RunForOutput, EndsTheProgramPastTheDeadline) {
  const auto before = std::chrono::steady_clock::now();
  const auto output = run({"/bin/sleep", "100"}, 50ms);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Errc::unreachable);
  EXPECT_EQ(output.error().message, "sleep has not ended within 1 s");
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20s);
}

TEST(RunForOutput, DoesNotWaitForWhoeverElseKeepsItsOutputOpen) {
  const auto before = std::chrono::steady_clock::now();
  const ProgramOutput output = must(run({"/bin/sh", "-c", "sleep 30 & echo started"}, 20s));
  EXPECT_EQ(output.text, "started\n");
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20s);
}

TEST(RunForOutput, DoesNotWaitForOneThatHasSaidAllAndDoesNotEnd) {
  const auto before = std::chrono::steady_clock::now();
  const auto output = run({"/bin/sh", "-c", "exec >&- 2>&-; exec sleep 100"}, 200ms);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Errc::unreachable);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20s);
}

TEST(RunForOutput, SaysWhenThereIsNoSuchProgram) {
  for (const char* program : {"/nowhere/ferry-virt", "ferry-virt-that-is-not-installed"}) {
    const auto output = run({program}, 1s);
    ASSERT_FALSE(output);
    EXPECT_EQ(output.error().code, std::errc::no_such_file_or_directory);
    EXPECT_EQ(output.error().message, std::string("start ") + program + ": No such file or directory");
  }
}

}  // namespace
}  // namespace ferry
