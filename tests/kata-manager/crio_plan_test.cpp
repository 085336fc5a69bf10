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

// `crio config > crio.conf` copies Ferry's tables, and CRI-O does not start once their files are gone.
class CrioCopies : public CrioPlan {
 protected:
  CrioCopies() {
    ours[0].configuration = "/etc/ferry/kata/kata-a/configuration.toml";
    write(test::must(plan(ours)));
    const std::string text = host.read_file(kDropIn).value_or("");
    copy = text.substr(text.find('['));
  }
  std::string text(const std::string& file) const { return host.read_file(file).value_or("there is none"); }

  static constexpr const char* kDropIn = "etc/crio/crio.conf.d/60-ferry-kata.conf";
  static constexpr const char* kOthers = "[crio.runtime.runtimes.runsc]\nruntime_path = \"/usr/bin/runsc\"\n";
  std::string copy;
};

TEST_F(CrioCopies, LeaveWithWhatTheyAreCopiesOf) {
  for (const char* file :
       {"etc/crio/crio.conf", "etc/crio/crio.conf.d/99-all", "etc/crio/crio.conf.d/a/b/c"}) {
    for (const bool has_drop_in : {true, false}) {
      SCOPED_TRACE(std::string(file) + (has_drop_in ? "" : " alone"));
      write(test::must(plan(ours)));
      scratch.file(file, kOthers + copy + "[crio.image]\npause_image = \"p\"\n");
      if (!has_drop_in) scratch.remove(kDropIn);
      const auto known = test::must(configured_in_crio(kFolder, ConfigFiles(host)));
      ASSERT_THAT(known, SizeIs(1));
      EXPECT_EQ(known[0].unmarked, !has_drop_in);
      const auto leaving = test::must(plan({}));
      EXPECT_THAT(leaving.leaving, ElementsAre("kata-a"));
      EXPECT_THAT(leaving.notes,
                  ElementsAre(HasSubstr(std::string(file) + ": another program has copied kata-a")));
      write(leaving);
      EXPECT_EQ(text(file), std::string(kOthers) + "[crio.image]\npause_image = \"p\"\n");
      EXPECT_FALSE(host.exists(kDropIn));
      EXPECT_THAT(test::must(plan({})).changes, IsEmpty());
      scratch.remove(file);
    }
  }
}

TEST_F(CrioCopies, StayWhileTheyLeadToTheSameFiles) {
  scratch.file("etc/crio/crio.conf", kOthers + copy);
  EXPECT_THAT(test::must(plan(ours)).changes, IsEmpty());
  ours[0].shim = "/opt/kata/bin/containerd-shim-kata-new";
  const auto upgrade = test::must(plan(ours));
  EXPECT_THAT(upgrade.changes, SizeIs(2));
  EXPECT_THAT(upgrade.leaving, IsEmpty());
  write(upgrade);
  EXPECT_EQ(text("etc/crio/crio.conf"), kOthers);
  EXPECT_THAT(text(kDropIn), HasSubstr("containerd-shim-kata-new"));
}

TEST_F(CrioCopies, AreNamedWhereTheyCannotBeTakenAway) {
  scratch.file("etc/crio/crio.conf",
               "[crio.runtime.runtimes]\nkata-a = {runtime_config_path = "
               "\"/etc/ferry/kata/kata-a/configuration.toml\"}\n");
  const auto leaving = plan({});
  ASSERT_FALSE(leaving.has_value());
  EXPECT_EQ(leaving.error().code, Errc::refused);
  EXPECT_THAT(leaving.error().message,
              HasSubstr("/etc/crio/crio.conf: [crio.runtime.runtimes.kata-a] cannot be removed"));
  scratch.file("etc/crio/crio.conf", "[crio\n");
  EXPECT_THAT(error_of(plan({})), HasSubstr("/etc/crio/crio.conf:1:")) << "it may name Ferry's files";
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
