// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "kata-manager/artifacts/artifact_store.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// One whose pods are what the test says.
class Pods final : public ContainerRuntime {
 public:
  Result<RuntimeState> state() override { return RuntimeState(); }
  Result<std::vector<RunningPod>> pods() override { return answer; }

  Result<std::vector<RunningPod>> answer = std::vector<RunningPod>();
};

class KataCollect : public testing::Test {
 protected:
  KataCollect() {
    kata.name = "kata-a";
    kata.aliases = {"kata-b"};
    file.artifacts_dir = "/opt/art";
    file.classes = {kata};
    for (const std::string& folder : {old, now, std::string("replaced-1")})
      scratch.file("opt/art/.ferry/kata-a/" + folder + "/vmlinuz", "k");
    scratch.link("opt/art/kata-a", ".ferry/kata-a/" + now);
    scratch.file("proc/1/cmdline", "/sbin/init");
  }
  std::vector<std::filesystem::path> collected() {
    return test::must(collect_unused(host, runtime, file, kata));
  }
  std::vector<std::string> left() const { return test::must(host.list("opt/art/.ferry/kata-a")); }

  std::string old = "sha256-" + std::string(64, 'a');
  std::string now = "sha256-" + std::string(64, 'b');
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  Pods runtime;
  KataClass kata;
  ClassFile file;
};

TEST_F(KataCollect, TakesWhatNobodyCanUse) {
  runtime.answer =
      std::vector<RunningPod>{{.name_space = "n", .name = "p", .handler = "runc", .sandbox = "s"}};
  EXPECT_THAT(collected(), UnorderedElementsAre("/opt/art/.ferry/kata-a/" + old));
  EXPECT_THAT(left(), UnorderedElementsAre(now, "replaced-1")) << "a folder of somebody else's stays";
  EXPECT_THAT(collected(), IsEmpty());
}

TEST_F(KataCollect, TakesNothingWhileAPodRunsWithTheClass) {
  for (const char* handler : {"kata-a", "kata-b"}) {
    runtime.answer =
        std::vector<RunningPod>{{.name_space = "n", .name = "p", .handler = handler, .sandbox = "s"}};
    EXPECT_THAT(collected(), IsEmpty()) << handler;
  }
  EXPECT_EQ(left().size(), 3U);
}

// CRI-O does not report the settings of its runtimes.
TEST_F(KataCollect, KnowsThePodsOfOtherClasses) {
  scratch.link("proc/7/exe", "/opt/kata/bin/containerd-shim-kata-v2");
  scratch.file("proc/7/cmdline", std::string("containerd-shim-kata-v2\0-id\0s\0", 30));
  runtime.answer =
      std::vector<RunningPod>{{.name_space = "n", .name = "p", .handler = "kata-other", .sandbox = "s"}};
  EXPECT_THAT(collected(), IsEmpty());
  file.classes.emplace_back().name = "kata-other";
  EXPECT_EQ(collected().size(), 1U);
}

// It may have begun with the version of before.
TEST_F(KataCollect, TakesNothingWhileASandboxIsBeingMade) {
  scratch.link("proc/7/exe", "/opt/kata/bin/containerd-shim-kata-v2");
  scratch.file("proc/7/cmdline", "containerd-shim-kata-v2");
  EXPECT_THAT(collected(), IsEmpty());
  EXPECT_EQ(left().size(), 3U);
}

TEST_F(KataCollect, TakesNothingWhereTheRunningPodsAreUnknown) {
  runtime.answer = fail(Errc::not_found, "it does not run");
  EXPECT_THAT(collected(), IsEmpty());
  EXPECT_EQ(left().size(), 3U);
}

// What was fetched since has not been accepted, or is not installed yet.
TEST_F(KataCollect, LeavesTheVersionThatTheConfigurationNames) {
  scratch.file("etc/ferry/kata/kata-a/config.d/60-ferry.toml",
               "[hypervisor.qemu]\nkernel = \"/opt/art/.ferry/kata-a/" + old + "/vmlinuz\"\n");
  EXPECT_THAT(collected(), IsEmpty());
  scratch.file("etc/ferry/kata/kata-a/config.d/60-ferry.toml", "");
  scratch.file("etc/ferry/kata/kata-a/config.d/90-own.toml",
               "image = '/opt/art/.ferry/kata-a/" + old + "/image'\n");
  EXPECT_THAT(collected(), IsEmpty());
  scratch.remove("etc/ferry");
  EXPECT_THAT(collected(), UnorderedElementsAre("/opt/art/.ferry/kata-a/" + old));
}

}  // namespace
}  // namespace ferry::kata
