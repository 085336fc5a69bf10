// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "virt/virt_client.h"

namespace ferry::virt {
namespace {

using namespace std::chrono_literals;
using test::must;

HelperOutput shell(const std::string& script) {
  return must(run_helper("/bin/sh", {"-c", script}, 20s));
}

TEST(HelperProcess, CollectsBothOutputsAndTheExitStatus) {
  const HelperOutput output = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(output.out, "out\n");
  EXPECT_EQ(output.err, "err\n");
  EXPECT_EQ(output.exit_status, 3);
}

TEST(HelperProcess, TakesMoreThanAPipeHolds) {
  const HelperOutput output = shell("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero");
  EXPECT_EQ(output.out.size(), 300000U);
  EXPECT_EQ(output.err.size(), 300000U);
  EXPECT_EQ(output.exit_status, 0);
}

TEST(HelperProcess, SaysWhichSignalEndedIt) {
  EXPECT_EQ(shell("kill -TERM $$").exit_status, 128 + 15);
}

TEST(HelperProcess, HasAnEmptyInputAndNoDescriptorOfOurs) {
  EXPECT_EQ(shell("cat; ls /proc/self/fd | wc -l").out, "4\n");  // 0, 1, 2 and the one of ls itself
}

TEST(HelperProcess, IsKilledPastItsDeadline) {
  const auto before = std::chrono::steady_clock::now();
  const auto output = run_helper("/bin/sleep", {"100"}, 50ms);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Errc::unreachable);
  EXPECT_EQ(output.error().message, "sleep: no answer in 50 ms");
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20s);
}

TEST(HelperProcess, DoesNotWaitForWhoeverElseKeepsItsOutputOpenPastTheDeadline) {
  const auto output = run_helper("/bin/sh", {"-c", "sleep 5 & echo started"}, 200ms);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Errc::unreachable);
}

TEST(HelperProcess, DoesNotWaitForOneThatHasSaidAllAndDoesNotEnd) {
  const auto before = std::chrono::steady_clock::now();
  const auto output = run_helper("/bin/sh", {"-c", "exec >&- 2>&-; exec sleep 100"}, 200ms);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Errc::unreachable);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 20s);
}

TEST(HelperProcess, SaysWhenThereIsNoSuchProgram) {
  for (const char* program : {"/nowhere/ferry-virt", "ferry-virt-that-is-not-installed"}) {
    const auto output = run_helper(program, {}, 1s);
    ASSERT_FALSE(output);
    EXPECT_EQ(output.error().code, std::errc::no_such_file_or_directory);
    EXPECT_EQ(output.error().message, std::string("start ") + program + ": No such file or directory");
  }
}

}  // namespace
}  // namespace ferry::virt
