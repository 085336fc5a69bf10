// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "kata-manager/runtimes/crio.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::filesystem::path kFolder = "/etc/crio/crio.conf.d";

class CrioPlan : public testing::Test {
 protected:
  CrioPlan() {
    scratch.file("etc/crio/crio.conf", "[crio.runtime]\ndefault_runtime = \"crun\"\n");
    scratch.file("etc/crio/crio.conf.d/10-crun.conf",
                 "[crio.runtime.runtimes.crun]\nruntime_type = \"oci\"\n");
  }
  Result<RuntimePlan> plan(const std::vector<RuntimeHandler>& handlers) const {
    return plan_crio(kFolder, ConfigFiles(host), handlers);
  }
  void write(const RuntimePlan& plan) {
    for (const FileChange& change : plan.changes) test::must(make(host, change));
  }
  static std::string error_of(const Result<RuntimePlan>& plan) {
    return plan ? "it went well" : plan.error().message;
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  std::vector<RuntimeHandler> ours = {
      {.name = "kata-a", .shim = "/opt/kata/bin/containerd-shim-kata-v2", .configuration = "/opt/a.toml"}};
};

TEST_F(CrioPlan, IsOneFileOfOurOwn) {
  const auto first = test::must(plan(ours));
  ASSERT_THAT(first.changes, SizeIs(1));
  EXPECT_EQ(first.changes[0].path, kFolder / "60-ferry-kata.conf");
  EXPECT_EQ(first.changes[0].before, std::nullopt);
  EXPECT_EQ(first.changes[0].after.value_or(""),
            R"(# Written by ferry; changes are lost. `ferry kata uninstall` takes it away.
[crio.runtime.runtimes.kata-a]
container_create_timeout = 1200
privileged_without_host_devices = true
runtime_config_path = "/opt/a.toml"
runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
runtime_root = "/run/vc"
runtime_type = "vm"
)");
  write(first);
  EXPECT_THAT(test::must(plan(ours)).changes, IsEmpty());
  EXPECT_EQ(
      test::must(configured_in_crio(kFolder, ConfigFiles(host))).at(0),
      (ConfiguredRuntime{{.name = "kata-a", .shim = ours[0].shim, .configuration = ours[0].configuration},
                         kFolder / "60-ferry-kata.conf"}));
  const auto removal = test::must(plan({}));
  EXPECT_THAT(removal.leaving, ElementsAre("kata-a"));
  write(removal);
  EXPECT_FALSE(host.exists("etc/crio/crio.conf.d/60-ferry-kata.conf"));
  EXPECT_THAT(test::must(plan({})).changes, IsEmpty());
}

TEST_F(CrioPlan, TakesNobodysName) {
  scratch.file("etc/crio/crio.conf.d/deep/99-x", "[crio.runtime.runtimes.kata-a]\nruntime_type = \"vm\"\n");
  const auto taken = plan(ours);
  EXPECT_THAT(error_of(taken), HasSubstr("99-x has a runtime kata-a that is not ours"));
}

TEST_F(CrioPlan, SaysWhatCrioWouldNotTake) {
  auto handlers = ours;
  handlers[0].shim = "/opt/kata/bin/kata shim";
  EXPECT_THAT(error_of(plan(handlers)), HasSubstr("takes no shim of the name kata shim"));
  handlers = ours;
  handlers[0].snapshotter = "nydus";
  EXPECT_THAT(error_of(plan(handlers)), HasSubstr("no snapshotters"));
  scratch.file("etc/crio/crio.conf.d/50-broken", "[crio\n");
  EXPECT_THAT(error_of(plan(ours)), HasSubstr("50-broken:1:"));
}

}  // namespace
}  // namespace ferry::kata
