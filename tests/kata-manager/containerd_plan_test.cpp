// SPDX-License-Identifier: Apache-2.0
// Our runtimes in the configuration of one host: installed, known again, changed, refused.
#include "kata-manager/runtimes/containerd_plan.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "common/text/text.h"
#include "kata-manager/runtimes/runtime_place.h"
#include "kata-manager/toml/toml.h"
#include "tests/kata-manager/containerd_host.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST_F(Containerd, AnInlineTableIsNamedWithWhatToWriteInstead) {
  struct Row {
    const char* release;
    const char* text;
    const char* said;
    const char* hint;
  };
  for (const Row& row : {
           Row{"1.7.24",
               "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
               "runtimes = {runc = {runtime_type = \"io.containerd.runc.v2\"}}\n",
               "/etc/containerd/config.toml:3: plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes is "
               "an "
               "inline table",
               "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.NAME]"},
           Row{"1.6.20", "[plugins]\ncri = {containerd = {snapshotter = \"x\"}}\n",
               "/etc/containerd/config.toml:2: plugins.cri is an inline table",
               "[plugins.cri.containerd.runtimes.NAME]"},
           Row{"2.1.9", "version = 3\nplugins = {\"io.containerd.cri.v1.runtime\" = {enable_cdi = true}}\n",
               "/etc/containerd/config.toml:2: plugins is an inline table",
               "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.NAME]"},
       }) {
    tree.file(kMain, row.text);
    const auto refused = plan(row.release, {ours()[0]});
    ASSERT_FALSE(refused) << row.release;
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_THAT(refused.error().message, HasSubstr(row.said));
    EXPECT_THAT(refused.error().hint, HasSubstr(row.hint));
  }
  // Where another file can have ours it is none of our business.
  tree.file(kMain,
            "version = 3\nimports = [\"conf.d/*.toml\"]\n"
            "plugins = {\"io.containerd.cri.v1.runtime\" = {enable_cdi = true}}\n");
  EXPECT_EQ(test::must(plan("2.1.9", {ours()[0]})).changes.at(0).path,
            "/etc/containerd/conf.d/ferry-kata.toml");
  // A runtime of somebody's that is written so is no hindrance.
  tree.file(kMain,
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes]\n"
            "kata = {runtime_type = \"io.containerd.kata.v2\"}\n"
            "runc = {runtime_type = \"io.containerd.runc.v2\"}\n");
  EXPECT_THAT(test::must(plan("1.7.24", {ours()[0]})).changes, SizeIs(1));
}

TEST_F(Containerd, IsConfiguredInTheMainFileWhereItImportsNothing) {
  tree.file(kMain,
            "version = 2  # site\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"r/p:3.9\"\n");
  const auto planned = test::must(plan("1.7.24", {ours()[0]}));
  ASSERT_THAT(planned.changes, SizeIs(1));
  EXPECT_EQ(planned.changes[0].path, "/etc/containerd/config.toml");
  EXPECT_EQ(planned.changes[0].after, R"(version = 2  # site
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "r/p:3.9"
# ferry kata: from here to the end mark written by ferry, and taken away by it
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
sandbox_mode = "podsandbox"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-nvidia-gpu]
container_annotations = ["io.kubernetes.container.terminationMessage*"]
pod_annotations = ["io.katacontainers.*", "cdi.k8s.io/*"]
privileged_without_host_devices = true
runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
runtime_type = "io.containerd.kata-nvidia-gpu.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-nvidia-gpu.options]
ConfigPath = "/etc/ferry/kata/a/configuration.toml"
# ferry kata: end
)") << "with the runc that a table of runtimes leaves out before 2.0";
}

TEST_F(Containerd, IsGivenTheShimByItsTypeWhereItLooksForNoPath) {
  const std::string by_name = "runtime_type = \"io.containerd.kata-nvidia-gpu.v2\"";
  const std::string by_path = "runtime_type = \"/opt/kata/bin/containerd-shim-kata-v2\"";
  for (const char* release : {"1.6.20", "1.6.39"})
    EXPECT_THAT(text_of(test::must(plan(release, {ours()[0]}))), HasSubstr(by_path));
  for (const char* release : {"1.7.24", "2.1.9"})
    EXPECT_THAT(text_of(test::must(plan(release, {ours()[0]}))), HasSubstr(by_name));
}

TEST_F(Containerd, HasADropInWithoutAVersionWhereItImportsAFolder) {
  for (const char* version : {"2", "3"}) {
    tree.file(kMain,
              std::string("version = ") + version + "\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    for (const char* release : {"2.0.11", "2.2.7", "2.3.4", "2.4.0"}) {
      const auto planned = test::must(plan(release, ours()));
      ASSERT_THAT(planned.changes, SizeIs(1));
      EXPECT_EQ(planned.changes[0].path, "/etc/containerd/conf.d/ferry-kata.toml");
      EXPECT_FALSE(planned.changes[0].before);
      EXPECT_THAT(text_of(planned), testing::Not(HasSubstr("version =")));
      EXPECT_THAT(text_of(planned), HasSubstr(std::string(version) == "2" ? kCriOfVersion2 : kCriRuntime));
    }
  }
}

constexpr const char* kOfVersion1 =
    "[plugins.cri.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
    "[plugins.cri.containerd.runtimes.crun]\nruntime_type = \"io.containerd.runc.v2\"\n";

// 2.x makes the one name of CRI's section of the other, and of two in one file either may be lost.
TEST_F(Containerd, IsConfiguredByTheNameThatAFileOfVersion1HasForItsSection) {
  for (const char* version : {"", "version = 1\n"}) {
    tree.file(kMain, std::string(version) + kOfVersion1);
    for (const char* release : {"1.7.24", "2.3.4"}) {
      const std::string text = text_of(test::must(plan(release, {ours()[0]})));
      EXPECT_THAT(text, HasSubstr("[plugins.cri.containerd.runtimes.kata-nvidia-gpu]")) << release;
      EXPECT_THAT(text, Not(HasSubstr(kCriOfVersion2))) << release;
    }
    tree.file(kMain, std::string(version) + kOfVersion1 + "[plugins.\"io.containerd.grpc.v1.cri\"]\n");
    for (const char* release : {"2.1.9", "2.3.4"})
      EXPECT_THAT(message_of(plan(release, {ours()[0]})), HasSubstr("which of them counts is chance"));
    EXPECT_TRUE(plan("1.7.24", {ours()[0]}).has_value()) << "which reads the one by its own name";
  }
}

TEST_F(Containerd, DoesNotReadTheNameOfVersion1InALaterFile) {
  for (const char* version : {"version = 2\n", "version = 3\n"}) {
    tree.file(kMain, version + std::string("[plugins.cri.containerd.runtimes.old]\nruntime_type = \"x\"\n"));
    for (const ContainerdRelease release : {ContainerdRelease{2, 1, 9}, ContainerdRelease{2, 3, 4}}) {
      const auto found = predict_containerd(release, files, place.configuration);
      EXPECT_EQ(said(found.no_start), "");
      EXPECT_FALSE(found.runtimes().contains("old")) << release.text();
    }
  }
}

TEST_F(Containerd, IsConfiguredWhereItsSectionComesFromBefore2) {
  tree.file(kMain, "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
  tree.file("etc/containerd/conf.d/99-nvidia.toml",
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
            "runtime_type = \"io.containerd.runc.v2\"");
  const auto planned = test::must(plan("1.7.24", ours()));
  ASSERT_THAT(planned.changes, SizeIs(1));
  EXPECT_EQ(planned.changes[0].path, "/etc/containerd/conf.d/99-nvidia.toml");
  EXPECT_THAT(planned.notes, testing::ElementsAre(HasSubstr("99-nvidia.toml may be written anew"),
                                                  HasSubstr("containerd's files name no snapshotter nydus")));
}

TEST_F(Containerd, IsLeftAloneWhereARuntimeOfThatNameIsSomebodyElses) {
  tree.file(kMain,
            "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.kata-nvidia-gpu]\n"
            "runtime_type = \"io.containerd.kata.v2\"\n");
  const auto planned = plan("2.1.9", ours());
  EXPECT_EQ(message_of(planned),
            "/etc/containerd/config.toml:2 has a runtime kata-nvidia-gpu that is not ours");
}

TEST_F(Containerd, IsRefusedWithThePlaceOfTheFault) {
  constexpr const char* kImports = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
  struct Row {
    const char* what;
    const char* release;
    std::string main;
    std::string drop_in;  // a.toml
    const char* said;
  };
  for (const Row& row : {
           Row{"a version", "2.1.9", "version = 4\n", "",
               ": /etc/containerd/config.toml: version 4 is above what containerd 2.1.9 knows, 3"},
           Row{"a version of a drop-in", "1.7.24", kImports, "version = 3\n",
               ": /etc/containerd/conf.d/a.toml: version 3 is above what containerd 1.7.24 knows, 2"},
           Row{"a version of a drop-in, merged", "2.1.9", kImports, "version = 4\n",
               ": /etc/containerd/conf.d/a.toml: version 4 is above what containerd 2.1.9 knows, 3"},
           Row{"a missing import", "1.7.24", "version = 2\n\nimports = [\"/opt/vendor/gone.toml\"]\n", "",
               ": /etc/containerd/config.toml:3: imports: open /opt/vendor/gone.toml: No such file"},
           Row{"a missing import of a drop-in", "2.1.9", kImports, "imports = [\"gone.toml\"]\n",
               ": /etc/containerd/conf.d/a.toml:1: imports: open /etc/containerd/conf.d/gone.toml: No such"},
           Row{"a folder for an import", "2.1.9", "version = 3\nimports = [\"conf.d\"]\n", "",
               ": /etc/containerd/config.toml:2: imports: read /etc/containerd/conf.d: Is a directory"},
           Row{"a fault inside an import", "2.1.9", kImports, "version = \"x\"\n",
               ": /etc/containerd/conf.d/a.toml: version is no whole number"},
           Row{"a runtime of that name in a drop-in", "2.1.9", kImports,
               "version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-nvidia-gpu]\n"
               "runtime_type = \"io.containerd.kata.v2\"\n",
               "/etc/containerd/conf.d/a.toml:3 has a runtime kata-nvidia-gpu that is not ours"},
       }) {
    SCOPED_TRACE(row.what);
    tree.file(kMain, row.main);
    tree.file("etc/containerd/conf.d/a.toml", row.drop_in);
    EXPECT_THAT(message_of(plan(row.release, {ours()[0]})), HasSubstr(row.said));
  }
  tree.file(kMain, "version = 2\n");
  auto runc = ours();
  runc.resize(1);
  runc[0].name = "runc";
  EXPECT_EQ(message_of(plan("2.1.9", runc)), "containerd has a runtime runc that is not ours");
}

TEST_F(Containerd, IsLeftAloneWhereNothingCanBeAdded) {
  tree.file(kMain, "version = 3\nplugins = {\"io.containerd.cri.v1.runtime\" = {enable_cdi = true}}\n");
  EXPECT_THAT(
      message_of(plan("2.1.9", ours())),
      HasSubstr("no place was found for the runtimes that changes nothing else: /etc/containerd/config.toml: "
                "containerd would not start: /etc/containerd/config.toml:"));
}

TEST_F(Containerd, IsOnlyAddedToInAFolderWhereAnotherProgramWritesTheFile) {
  place.configuration = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
  place.rendered = true;
  EXPECT_THAT(message_of(plan("2.1.9", ours())), HasSubstr("it has not been written yet"));
  tree.file("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n");
  EXPECT_THAT(message_of(plan("2.1.9", ours())),
              HasSubstr("another program writes it at each start, and it imports no folder"));
  constexpr const char* kTemplate = "var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl";
  tree.file(kTemplate, "version = 3\n");
  const auto by_template = plan("2.1.9", ours());
  EXPECT_THAT(message_of(by_template), HasSubstr(std::string("from /") + kTemplate));
  EXPECT_THAT(by_template.error().hint, HasSubstr("{{ template \"base\" . }}"));
  tree.file(
      "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
      "version = 3\nimports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n");
  const auto planned = test::must(plan("2.1.9", ours()));
  ASSERT_THAT(planned.changes, SizeIs(1));
  EXPECT_EQ(planned.changes[0].path,
            "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/ferry-kata.toml");
}

// Its file imports a folder, and that is of no use: a section of a later file replaces the whole one before.
TEST_F(Containerd, IsNotAddedToBefore2WhereAnotherProgramWritesTheFile) {
  constexpr const char* kFolder = "var/lib/rancher/k3s/agent/etc/containerd";
  place.configuration = std::string("/") + kFolder + "/config.toml";
  place.rendered = true;
  tree.file(
      std::string(kFolder) + "/config.toml",
      std::string("version = 2\nimports = [\"/") + kFolder +
          "/config.toml.d/*.toml\"]\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"p:1\"\n");
  const auto refused = plan("1.7.24", ours());
  EXPECT_THAT(message_of(refused), testing::AllOf(HasSubstr("another program writes it at each start"),
                                                  HasSubstr("containerd 1.7.24 merges no sections"),
                                                  Not(HasSubstr("imports no folder"))));
  EXPECT_THAT(refused.error().hint, HasSubstr("containerd 2"));
  // Who has the section in a file of his own has that one added to.
  tree.file(std::string(kFolder) + "/config.toml.d/own.toml",
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"p:2\"\n");
  EXPECT_EQ(test::must(plan("1.7.24", ours())).changes.at(0).path.filename(), "own.toml");
}

TEST_F(Containerd, IsNotTakenToBeWithoutAFileThatCannotBeRead) {
  tree.directory(kMain);  // reading it fails, and not for want of a file
  for (const auto& desired : {ours(), std::vector<RuntimeHandler>{}})
    EXPECT_THAT(message_of(plan("2.1.9", desired)), HasSubstr("read"));
  std::filesystem::remove(tree.path() / kMain);
  tree.file(kMain, "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
  tree.directory("etc/containerd/conf.d/ferry-kata.toml");
  EXPECT_THAT(message_of(plan("2.1.9", ours())), HasSubstr("read"));
}

// 2.0 to 2.2 bring a drop-in of version 1 to the main file's version, so that the main file's section still
// counts.
TEST_F(Containerd, KeepsTheRuntimesOfAMainFileWithADropInOfVersion1) {
  constexpr const char* kRuntimes = "plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes";
  tree.file(kMain, std::string("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[") + kRuntimes +
                       ".kata]\nruntime_type = \"io.containerd.kata.v2\"\n[" + kRuntimes +
                       ".runc]\nruntime_type = \"io.containerd.runc.v2\"\n[" + kRuntimes +
                       ".runc.options]\nSystemdCgroup = true\n");
  tree.file("etc/containerd/conf.d/old.toml", "version = 1\noom_score = 0\n");
  for (const char* release : {"2.0.11", "2.1.9", "2.2.7", "2.3.4"}) {
    const auto planned = test::must(plan(release, ours()));
    const TomlTable& runtimes = planned.after.runtimes();
    EXPECT_TRUE(runtimes.contains("kata")) << release;
    EXPECT_TRUE(runtimes.contains("kata-nvidia-gpu")) << release;
    const TomlValue* cgroup = find(runtimes, {"runc", "options", "SystemdCgroup"});
    ASSERT_NE(cgroup, nullptr) << release;
    EXPECT_EQ(*cgroup, TomlValue{true}) << release;
    if (test::must(ContainerdRelease::parse(release)).migrates_each_file()) continue;
    EXPECT_THAT(text_of(planned),
                HasSubstr("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-nv"))
        << release << ": in the section that the administrator's are in";
  }
}

TEST_F(Containerd, IsNotConfiguredWhereItsCriIsSwitchedOff) {
  for (const char* id : {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}) {
    tree.file(kMain, std::string("disabled_plugins = [\"") + id + "\"]\n");
    EXPECT_THAT(message_of(plan("2.1.9", ours())), HasSubstr(std::string("disabled_plugins has ") + id));
  }
}

// Its values are put in at each start; the file that is changed keeps its own.
TEST_F(Containerd, IsReadByMicrok8sWithItsTemplateFilledIn) {
  const std::vector<RuntimeHandler> alone = {ours()[0]};
  place = test::must(runtime_place("microk8s"));
  const std::string main = place.configuration.relative_path();
  const std::string text =
      "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
      "snapshotter = \"${SNAPSHOTTER}\"\ndefault_runtime_name = \"${RUNTIME}\"\n"
      "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = "
      "\"${RUNTIME_TYPE}\"\n";
  tree.file(main, text);
  for (const char* release : {"1.6.20", "1.7.24", "2.1.9"}) {
    const auto placeholders = std::exchange(place.placeholders, {});
    EXPECT_THAT(message_of(plan(release, alone)), HasSubstr("its default runtime is not among its runtimes"));
    place.placeholders = placeholders;
    const auto planned = test::must(plan(release, alone));
    EXPECT_EQ(planned.changes.at(0).path, place.configuration);
    EXPECT_THAT(planned.changes.at(0).after.value_or(""), testing::StartsWith(text));
  }
}

TEST_F(Containerd, IsNotPredictedWhereItsKeysAreSpeltAsOnlyContainerd2ReadsThem) {
  for (const char* text : {"Version = 2\n", "version = 2\nIMPORTS = []\n", "version = 3\n[Plugins]\n",
                           "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".Containerd]\n",
                           "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.Runtimes]\n"}) {
    tree.file(kMain, text);
    EXPECT_THAT(message_of(plan("2.1.9", ours())), HasSubstr("whatever the case of its letters")) << text;
    EXPECT_THAT(message_of(plan("1.7.24", ours())), Not(HasSubstr("the case of its letters"))) << text;
  }
}

constexpr const char* kCopies =
    "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\n"
    "runtime_type = \"io.containerd.runc.v2\"\n";

// The toolkit writes all of CRI's section, as it found it, into a file of its own.
TEST_F(Containerd, KnowsACopyOfOursWhenItSeesOne) {
  tree.file(kMain, "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
  const auto planned = test::must(plan("2.1.9", {ours()[0]}));
  tree.file("etc/containerd/conf.d/ferry-kata.toml", text_of(planned));
  std::string copy = text_of(planned);
  copy = copy.substr(copy.find('\n') + 1);
  copy.resize(copy.find("# ferry"));
  tree.file("etc/containerd/conf.d/99-nvidia.toml", kCopies + copy);

  EXPECT_THAT(test::must(plan("2.1.9", {ours()[0]})).changes, IsEmpty());
  const auto upgrade = test::must(plan("2.1.9", {ours("/etc/ferry/kata/b/configuration.toml")[0]}));
  ASSERT_THAT(upgrade.changes, SizeIs(2));
  EXPECT_EQ(upgrade.changes[0].path, "/etc/containerd/conf.d/99-nvidia.toml");
  EXPECT_EQ(upgrade.changes[0].after, kCopies) << "all else in it stays";
  EXPECT_EQ(upgrade.changes[1].path, "/etc/containerd/conf.d/ferry-kata.toml");
  const auto gone = test::must(plan("2.1.9", {}));
  ASSERT_THAT(gone.changes, SizeIs(2));
  EXPECT_EQ(gone.changes[0].after, kCopies);
  EXPECT_FALSE(gone.changes[1].after);
  EXPECT_FALSE(gone.after.runtimes().contains("kata-nvidia-gpu"));
}

TEST_F(Containerd, KnowsOursWithoutItsMarks) {
  tree.file(kMain, "version = 3\n");
  const auto planned = test::must(plan("2.1.9", {ours()[0]}));
  std::string text = text_of(planned);
  text.erase(text.find("# ferry"), text.find("[plugins") - text.find("# ferry"));
  tree.file(kMain, text.substr(0, text.find("# ferry")));
  const auto again = test::must(plan("2.1.9", {ours()[0]}));
  EXPECT_THAT(again.changes, IsEmpty());
  EXPECT_THAT(again.notes, testing::ElementsAre(HasSubstr("kata-nvidia-gpu: known, without Ferry's marks")));
}

// A program that parses the files and prints them again drops the comments, Ferry's marks among them.
class Rewritten : public Containerd, public testing::WithParamInterface<std::string> {
 protected:
  Rewritten() {
    tree.file(kMain, std::string("version = 2\n") + kRunc);
    const auto installed = test::must(plan(GetParam(), ours_for(GetParam())));
    write(installed);
    tree.file(kMain, toml_text({}, test::must(parse_toml(text(), "main"))));
  }
  std::string text() const { return host.read_file(kMain).value_or(""); }
  void write(const RuntimePlan& plan) const {
    for (const FileChange& change : plan.changes) {
      ASSERT_EQ(change.path, std::string("/") + kMain);
      tree.file(kMain, change.after.value_or(""));
    }
  }
  std::map<std::string, bool> placed() const {
    std::map<std::string, bool> out;
    const auto release = test::must(ContainerdRelease::parse(GetParam()));
    for (const ConfiguredRuntime& one :
         test::must(configured_in_containerd(release, place, ConfigFiles(host))))
      out.emplace(one.name, one.unmarked);
    return out;
  }
  static constexpr const char* kRunc =
      "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
      "runtime_type = \"io.containerd.runc.v2\"\n";
};

TEST_P(Rewritten, IsKnownByItsConfiguration) {
  EXPECT_THAT(placed(), testing::ElementsAre(testing::Pair("kata-nvidia-gpu", true),
                                             testing::Pair("kata-nvidia-gpu-snp", true)));
  EXPECT_THAT(test::must(plan(GetParam(), ours_for(GetParam()))).changes, IsEmpty());
}

TEST_P(Rewritten, GetsOnlyWhatLacks) {
  auto more = ours_for(GetParam());
  more.push_back(
      {.name = "kata-b", .shim = more[0].shim, .configuration = "/etc/ferry/kata/kata-b/configuration.toml"});
  const std::string rewritten = text();
  write(test::must(plan(GetParam(), more)));
  EXPECT_THAT(text(), testing::StartsWith(rewritten));
  EXPECT_THAT(placed(),
              testing::ElementsAre(testing::Pair("kata-b", false), testing::Pair("kata-nvidia-gpu", true),
                                   testing::Pair("kata-nvidia-gpu-snp", true)));
  EXPECT_THAT(test::must(plan(GetParam(), more)).changes, IsEmpty()) << "a second run writes nothing";
}

TEST_P(Rewritten, LosesWhatLeaves) {
  const auto less = test::must(plan(GetParam(), {ours_for(GetParam())[1]}));
  EXPECT_THAT(less.leaving, testing::ElementsAre("kata-nvidia-gpu"));
  write(less);
  EXPECT_THAT(placed(), testing::ElementsAre(testing::Pair("kata-nvidia-gpu-snp", true)));
  write(test::must(plan(GetParam(), {})));
  EXPECT_THAT(placed(), IsEmpty());
  EXPECT_THAT(text(), Not(HasSubstr("kata")));
  EXPECT_THAT(text(), HasSubstr(kRunc)) << "all else stays";
}

TEST_P(Rewritten, LeavesTheCommentsOfOthers) {
  tree.file(kMain, text() + "# at the end\n");
  write(test::must(plan(GetParam(), {})));
  EXPECT_THAT(text(), testing::EndsWith("# at the end\n"));
}

// Of such a table no line can be removed: the message names it, and nothing is written.
TEST_P(Rewritten, IsRefusedWhereItsTableIsInline) {
  const char* section =
      GetParam().starts_with("1.") ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime";
  tree.file(kMain, std::string(GetParam().starts_with("1.") ? "version = 2\n" : "version = 3\n") +
                       "[plugins.\"" + section +
                       "\".containerd.runtimes]\nrunc = {runtime_type = \"io.containerd.runc.v2\"}\n" +
                       "kata-nvidia-gpu = {runtime_type = \"x\", options = {ConfigPath = "
                       "\"/etc/ferry/kata/a/configuration.toml\"}}\n");
  for (const auto& handlers : {std::vector<RuntimeHandler>(), ours_for(GetParam())}) {
    const auto planned = plan(GetParam(), handlers);
    ASSERT_FALSE(planned.has_value());
    EXPECT_EQ(planned.error().code, Errc::refused);
    EXPECT_THAT(planned.error().message,
                HasSubstr("/etc/containerd/config.toml: [plugins.\"" + std::string(section) +
                          "\".containerd.runtimes.kata-nvidia-gpu] cannot be removed"));
  }
}

INSTANTIATE_TEST_SUITE_P(OfReleases, Rewritten, testing::Values("1.6.20", "1.7.24", "2.1.9"));

TEST_F(Containerd, IsUpgradedWhereOthersLeanOnOurs) {
  tree.file(kMain, "version = 2\n");
  const auto planned = test::must(plan("1.7.24", {ours()[0]}));
  tree.file(kMain, text_of(planned) +
                       "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.crun]\n"
                       "runtime_type = \"io.containerd.runc.v2\"\n");
  EXPECT_THAT(test::must(plan("1.7.24", {ours("/etc/ferry/kata/b/configuration.toml")[0]})).changes,
              SizeIs(1));
  EXPECT_THAT(message_of(plan("1.7.24", {})),
              testing::StartsWith("without our runtimes containerd would not run: "));
}

TEST_F(Containerd, LosesADropInOfOursThatIsNoLongerRead) {
  tree.file(kMain, "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
  const auto planned = test::must(plan("2.1.9", ours()));
  tree.file("etc/containerd/conf.d/ferry-kata.toml", text_of(planned));
  tree.file(kMain, "version = 3\n");
  const auto gone = test::must(plan("2.1.9", {}));
  ASSERT_THAT(gone.changes, SizeIs(1));
  EXPECT_EQ(gone.changes[0].path, "/etc/containerd/conf.d/ferry-kata.toml");
  EXPECT_FALSE(gone.changes[0].after);
}

TEST_F(Containerd, ImportsOnlyWhatIsThere) {
  tree.file(kMain, "version = 3\nimports = [\"/etc/containerd/*/extra.toml\"]\n");
  tree.file("etc/containerd/a/extra.toml", "version = 3\n");
  tree.directory("etc/containerd/b");
  const auto found = predict_containerd({2, 1, 9}, files, place.configuration);
  EXPECT_EQ(said(found.no_start), "");
  EXPECT_THAT(found.files, SizeIs(2));
}

TEST_F(Containerd, IsNotAskedForASnapshotterThatItWouldNotHear) {
  tree.file(kMain, "version = 2\n");
  EXPECT_EQ(
      message_of(plan("1.6.39", ours())),
      "containerd 1.6.39 has no snapshotter for one runtime alone, and kata-nvidia-gpu-snp asks for nydus");
}

TEST_F(Containerd, KeepsWhatWasWrittenBehindOurs) {
  tree.file(kMain, "version = 2\n");
  const auto planned = test::must(plan("2.1.9", ours()));
  tree.file(kMain, text_of(planned) + "[debug]\nlevel = \"debug\"\n");
  const auto gone = test::must(plan("2.1.9", {}));
  ASSERT_THAT(gone.changes, SizeIs(1));
  EXPECT_EQ(gone.changes[0].after, "version = 2\n[debug]\nlevel = \"debug\"\n");
}

TEST_F(Containerd, IsNotGivenAKeyOfOursThatSomebodyElseMeant) {
  tree.file(kMain, "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n");
  const auto planned = test::must(plan("2.1.9", {ours()[0]}));
  tree.file(kMain,
            text_of(planned) + "enable_selinux = true\n");  // an option of our runtime as it stands
  EXPECT_THAT(message_of(plan("2.1.9", {})),
              HasSubstr("without our runtimes something else would change: "
                        "plugins.io.containerd.cri.v1.runtime.enable_selinux: absent, and would be true"));
}

TEST_F(Containerd, IsLeftAloneWhereOursIsHalfThere) {
  tree.file(kMain, "version = 2\n");
  const auto planned = test::must(plan("2.1.9", ours()));
  std::string text = text_of(planned);
  text.resize(text.find("# ferry kata: end"));
  tree.file(kMain, text);
  for (const auto& desired : {ours(), std::vector<RuntimeHandler>{}})
    EXPECT_EQ(message_of(plan("2.1.9", desired)),
              "/etc/containerd/config.toml: a block of ferry's does not end");
}

TEST_F(Containerd, IsAFileOfItsOwnLineEnds) {
  tree.file(kMain, "version = 2\r\n# the end");
  const auto planned = test::must(plan("2.1.9", ours()));
  const std::string text = text_of(planned);
  EXPECT_THAT(text, testing::StartsWith("version = 2\r\n# the end\r\n# ferry"));
  EXPECT_EQ(std::ranges::count(text, '\n'), std::ranges::count(text, '\r'));
  tree.file(kMain, text);
  EXPECT_EQ(test::must(plan("2.1.9", {})).changes.at(0).after, "version = 2\r\n# the end");
}

TEST(ContainerdReleases, AreReadAsTheyAreWritten) {
  const auto read = [](const char* text) { return ContainerdRelease::parse(text); };
  EXPECT_EQ(test::must(read("1.7.24")), (ContainerdRelease{1, 7, 24}));
  EXPECT_EQ(test::must(read("v2.2.2-k3s1")), (ContainerdRelease{2, 2, 2}));
  EXPECT_EQ(test::must(read("containerd://2.0.0-rc.1")), (ContainerdRelease{2, 0, 0, false}));
  EXPECT_EQ(test::must(read("1.6.20~ds1-1+deb12u1")), (ContainerdRelease{1, 6, 20}));
  EXPECT_LT(test::must(read("2.4.0-beta.0")), test::must(read("2.4.0")));
  for (const char* bad : {"", "2", "2.1", "2.1.", "2.1.9.1", "2.1.x", "two", "cri-o://1.30.0", "-1.2.3"})
    EXPECT_FALSE(read(bad)) << bad;
  for (const char* unknown : {"1.5.18", "3.0.0", "0.2.9"})
    EXPECT_EQ(read(unknown).error().code, Errc::unsupported);
}

TEST(HandlerNames, AreDnsLabels) {
  for (const char* good : {"kata", "k", "kata-qemu-nvidia-gpu", "9a"})
    EXPECT_TRUE(is_handler_name(good)) << good;
  for (const char* bad : {"", "-a", "a-", "Kata", "a.b", "a_b", "a b", "a\n", "\xc3\xa4"})
    EXPECT_FALSE(is_handler_name(bad)) << bad;
  EXPECT_TRUE(is_handler_name(std::string(63, 'a')));
  EXPECT_FALSE(is_handler_name(std::string(64, 'a')));
}

}  // namespace
}  // namespace ferry::kata
