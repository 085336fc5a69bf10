// SPDX-License-Identifier: Apache-2.0
// The client against the real ferry-virt, which asks libvirt's test driver, and against programs that
// misbehave.
#include "virt/virt_client.h"

#include <gmock/gmock.h>

#include "common/process/spawn.h"
#include "tests/support/must.h"
#include "tests/virt/test_libvirt.h"

namespace ferry::virt {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::HasSubstr;

class VirtClient : public testing::Test {
 protected:
  /// A program that does as the script says in the place of ferry-virt.
  VirtHelper misbehaving(const std::string& script) const {
    tree_.file("ferry-virt", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(tree_.path() / "ferry-virt", std::filesystem::perms(0755));
    return {.program = tree_.path() / "ferry-virt"};
  }
  test::LibvirtHost tree_;
  VirtHelper real_{.program = FERRY_VIRT, .host_root = tree_.path(), .uri = tree_.uri()};
};

TEST_F(VirtClient, GetsTheRunningDomains) {
  const auto domains = must(running_domains(real_, 20s));
  ASSERT_EQ(domains.size(), 2U);
  EXPECT_EQ(domains[0].name, "gpu-vm");
  EXPECT_EQ(domains[0].pid, 412);
  EXPECT_EQ(domains[0].pci.at(0).text(), "0000:65:00.1");
  EXPECT_EQ(domains[1].name, "plain");
}

TEST_F(VirtClient, GetsLibvirtsErrorWithItsHint) {
  real_.uri.clear();
  const auto domains = running_domains(real_, 20s);
  ASSERT_FALSE(domains);
  EXPECT_EQ(domains.error().code, Errc::unreachable);
  EXPECT_THAT(domains.error().message, HasSubstr("connect to libvirt at qemu:///system?socket="));
  EXPECT_THAT(domains.error().hint, HasSubstr("systemctl start"));
}

TEST_F(VirtClient, DoesNotWaitForAHangingLibvirt) {
  const auto domains = running_domains(misbehaving("exec sleep 100"), 100ms);
  ASSERT_FALSE(domains);
  EXPECT_EQ(domains.error().code, Errc::unreachable);
  EXPECT_EQ(domains.error().message, "ferry-virt: no answer in 100 ms");
}

TEST_F(VirtClient, SaysWhyThereIsNoAnswer) {
  const auto died =
      running_domains(misbehaving("echo first >&2; echo 'libvirt.so.0: not found' >&2; exit 127"), 20s);
  ASSERT_FALSE(died);
  EXPECT_EQ(died.error().code, Errc::unreachable);
  EXPECT_EQ(died.error().message, "ferry-virt ended without an answer (status 127): libvirt.so.0: not found");
  const auto missing = running_domains({.program = "/nowhere/ferry-virt"}, 20s);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::unreachable);
  EXPECT_THAT(missing.error().message, HasSubstr("start /nowhere/ferry-virt: No such file"));
  EXPECT_EQ(missing.error().hint, "install ferry-virt in the folder of ferry");
}

TEST_F(VirtClient, TakesNothingForAnAnswerThatIsNone) {
  const auto domains = running_domains(misbehaving("echo '{}'"), 20s);
  ASSERT_FALSE(domains);
  EXPECT_EQ(domains.error().code, Errc::malformed_host);
}

TEST(FerryVirt, KeepsItsExitStatuses) {
  const auto status = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> words = {FERRY_VIRT};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return must(run_for_output(FERRY_VIRT, words, {}, {.time = 20s})).status;
  };
  EXPECT_EQ(status({"domains", "--connect", "test:///default"}), 0);
  EXPECT_EQ(status({"--help"}), 0);
  EXPECT_EQ(status({"--version"}), 0);
  EXPECT_EQ(status({}), 2);
  EXPECT_EQ(status({"domains", "--connectt", "x"}), 2);
  EXPECT_EQ(status({"selftest"}), 2);
  EXPECT_EQ(status({"domains", "--connect", "nonsense://x"}), 1);
}

TEST(VirtProgram, IsFoundBesideOurOwnExecutableOrLeftToPath) {
  // The tests lie in another folder than ferry-virt.
  EXPECT_EQ(program_beside("ferry-virt"), "ferry-virt");
}

}  // namespace
}  // namespace ferry::virt
