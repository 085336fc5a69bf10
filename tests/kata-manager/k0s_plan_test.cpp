// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/k0s_plan.h"

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::filesystem::path kFolder = "/etc/k0s/containerd.d";
constexpr const char* kDropIn = "etc/k0s/containerd.d/ferry-kata.toml";
constexpr const char* kWritten = "run/k0s/containerd-cri.toml";

constexpr const char* kOf1 = R"(# Written by ferry; changes are lost. `ferry kata uninstall` takes it away.
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-a]
container_annotations = ["io.kubernetes.container.terminationMessage*"]
pod_annotations = ["io.katacontainers.*", "cdi.k8s.io/*"]
privileged_without_host_devices = true
runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
runtime_type = "io.containerd.kata-a.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-a.options]
ConfigPath = "/opt/a.toml"
)";
constexpr const char* kOf2 = R"(# Written by ferry; changes are lost. `ferry kata uninstall` takes it away.
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-a]
container_annotations = ["io.kubernetes.container.terminationMessage*"]
pod_annotations = ["io.katacontainers.*", "cdi.k8s.io/*"]
privileged_without_host_devices = true
runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
runtime_type = "io.containerd.kata-a.v2"
snapshotter = "nydus"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-a.options]
ConfigPath = "/opt/a.toml"
[plugins."io.containerd.cri.v1.images".runtime_platforms.kata-a]
snapshotter = "nydus"
)";

class K0sPlan : public testing::Test {
 protected:
  /// As k0s has it while it runs: its main file, and what it has put together.
  void runs_with(int version, const std::string& more = "") const {
    const std::string number = "version = " + std::to_string(version) + "\n";
    scratch.file("etc/k0s/containerd.toml",
                 "# k0s_managed=true\n" + number + "imports = [\"/run/k0s/containerd-cri.toml\"]\n");
    scratch.file(kWritten, number + more);
  }
  Result<RuntimePlan> plan(const std::vector<RuntimeHandler>& handlers,
                           const char* release = "1.7.24") const {
    return plan_k0s(test::must(ContainerdRelease::parse(release)), kFolder, ConfigFiles(host), handlers);
  }
  void write(const RuntimePlan& plan) {
    for (const FileChange& change : plan.changes) test::must(make(host, change));
  }
  static std::string error_of(const Result<RuntimePlan>& plan) {
    return plan ? "it went well" : plan.error().message;
  }
  std::string text() const { return host.read_file(kDropIn).value_or("there is none"); }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  std::vector<RuntimeHandler> ours = {
      {.name = "kata-a", .shim = "/opt/kata/bin/containerd-shim-kata-v2", .configuration = "/opt/a.toml"}};
};

TEST_F(K0sPlan, IsOneFileOfOurOwn) {
  runs_with(2, "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"r/p:1\"\n");
  const auto first = test::must(plan(ours));
  ASSERT_THAT(first.changes, SizeIs(1));
  EXPECT_EQ(first.changes[0].path, kFolder / "ferry-kata.toml");
  EXPECT_EQ(first.changes[0].before, std::nullopt);
  EXPECT_THAT(first.notes, ElementsAre(HasSubstr("k0s watches this folder")));
  write(first);
  EXPECT_EQ(text(), kOf1);
  // What k0s makes of it.
  runs_with(2, std::string(kOf1).substr(std::string(kOf1).find('[')));
  EXPECT_THAT(test::must(plan(ours)).changes, IsEmpty());
  EXPECT_EQ(
      test::must(configured_in_k0s(kFolder, ConfigFiles(host))).at(0),
      (ConfiguredRuntime{{.name = "kata-a", .shim = ours[0].shim, .configuration = ours[0].configuration},
                         kFolder / "ferry-kata.toml",
                         "io.containerd.kata-a.v2"}));
  const auto removal = test::must(plan({}));
  EXPECT_THAT(removal.leaving, ElementsAre("kata-a"));
  write(removal);
  EXPECT_FALSE(host.exists(kDropIn));
  EXPECT_THAT(test::must(plan({})).changes, IsEmpty());
}

// k0s refuses a drop-in of another version than that which it writes itself.
TEST_F(K0sPlan, HasTheVersionThatK0sWrites) {
  ours[0].snapshotter = "nydus";
  runs_with(3);
  write(test::must(plan(ours, "2.1.9")));
  EXPECT_EQ(text(), kOf2);
  ours[0].snapshotter.reset();
  runs_with(2);
  write(test::must(plan(ours, "2.1.9")));
  EXPECT_EQ(text(), kOf1);
  // Where k0s has not run yet it is that of the release.
  scratch.remove("etc/k0s/containerd.toml");
  scratch.remove(kWritten);
  write(test::must(plan(ours, "1.7.24")));
  EXPECT_EQ(text(), kOf1);
  ours[0].snapshotter = "nydus";
  write(test::must(plan(ours, "2.1.9")));
  EXPECT_EQ(text(), kOf2);
}

TEST_F(K0sPlan, TakesNobodysName) {
  runs_with(2);
  scratch.file("etc/k0s/containerd.d/kata.toml",
               "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-a]\n"
               "runtime_type = \"io.containerd.kata.v2\"\n");
  EXPECT_THAT(error_of(plan(ours)),
              HasSubstr("/containerd.d/kata.toml has a runtime kata-a that is not ours"));
  scratch.remove("etc/k0s/containerd.d/kata.toml");
  runs_with(2,
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-a]\n"
            "runtime_type = \"io.containerd.kata.v2\"\n");
  EXPECT_THAT(error_of(plan(ours)), HasSubstr("containerd-cri.toml has a runtime kata-a that is not ours"));
}

TEST_F(K0sPlan, IsMadeOnlyWhereK0sReadsTheFolder) {
  runs_with(2);
  scratch.file("etc/k0s/containerd.toml", "version = 2\n");
  const auto elsewhere = plan(ours);
  EXPECT_THAT(error_of(elsewhere), AllOf(HasSubstr("/etc/k0s/containerd.toml is not k0s's own"),
                                         HasSubstr("k0s does not read /etc/k0s/containerd.d")));
  scratch.file("etc/k0s/containerd.toml", "x = \"k0s_managed=true\"\n");
  EXPECT_FALSE(plan(ours)) << "no comment";
  scratch.file(kDropIn, kOf1);
  EXPECT_THAT(test::must(plan({})).changes, SizeIs(1)) << "what is ours can be taken away all the same";
}

TEST_F(K0sPlan, SaysWhatContainerdWouldNotTake) {
  runs_with(2);
  ours[0].snapshotter = "nydus";
  EXPECT_THAT(error_of(plan(ours, "1.6.20")), HasSubstr("no snapshotter for one runtime alone"));
  ours[0].snapshotter.reset();
  scratch.file("etc/k0s/containerd.d/broken.toml", "[plugins\n");
  EXPECT_THAT(error_of(plan(ours)), HasSubstr("broken.toml:1:"));
}

}  // namespace
}  // namespace ferry::kata
