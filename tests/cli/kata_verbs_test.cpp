// SPDX-License-Identifier: Apache-2.0
// `ferry kata` as a user calls it, on a tree without a running daemon.
#include <chrono>
#include <future>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "hostfs/host_fs.h"
#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kMain = "etc/containerd/config.toml";
constexpr const char* kMainText =
    "# ours\r\nversion = 2\r\n[plugins.\"io.containerd.grpc.v1.cri\"]\r\n  sandbox_image = \"r/p:3.9\" # "
    "keep\r\n";
constexpr const char* kDropIn = "etc/ferry/kata/kata-nvidia-gpu/config.d/60-ferry.toml";

class KataVerbs : public testing::Test {
 protected:
  KataVerbs() {
    scratch.file("opt/kata/bin/containerd-shim-kata-v2", "shim");
    scratch.file("srv/gpu/configuration.toml",
                 "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nkernel = \"/build/vmlinuz\"\n"
                 "image = \"/build/image\"\nmachine_type = \"q35\"\ndefault_memory = 2048\n");
    scratch.file("srv/gpu/vmlinuz", "k");
    scratch.file("srv/gpu/image", "i");
    scratch.file("usr/bin/qemu", "q");
    scratch.file(kMain, kMainText);
    classes(
        "- name: kata-nvidia-gpu\n  aliases: [kata-qemu-nvidia-gpu]\n"
        "  artifacts: {url: \"file:///srv/gpu\"}\n");
  }
  void classes(const std::string& list, const std::string& more = "") const {
    scratch.file("classes.yaml", "version: v2\nartifactsDir: /opt/art\nloadModules: false\n" + more +
                                     "runtimeClasses:\n" + list);
  }
  test::ProgramResult kata(std::vector<std::string> words, bool with_file = true) const {
    words.insert(words.begin(), {"--host-root", scratch.path().string(), "kata"});
    if (with_file) words.insert(words.end(), {"-f", (scratch.path() / "classes.yaml").string()});
    return test::run_ferry(words);
  }
  test::ProgramResult on_1_7(std::vector<std::string> words, bool with_file = true) const {
    words.insert(words.end(), {"--containerd-version", "1.7.24"});
    return kata(std::move(words), with_file);
  }
  std::string text(const std::string& relative) const {
    return host.read_file(relative).value_or("there is none");
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(KataVerbs, PlanShowsEachFilesDifferenceAndWritesNothing) {
  const auto planned = on_1_7({"plan"});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out,
              AllOf(StartsWith("containerd 1.7.24, /etc/containerd/config.toml\n"),
                    HasSubstr("kata-qemu-nvidia-gpu  kata-nvidia-gpu"),
                    HasSubstr("--- /etc/containerd/config.toml\n"), HasSubstr("+++ /" + std::string(kDropIn)),
                    HasSubstr("+kernel = \"/srv/gpu/vmlinuz\"\n")));
  EXPECT_EQ(text(kMain), kMainText);
  EXPECT_FALSE(host.exists("etc/ferry"));
  EXPECT_FALSE(host.exists("opt/art"));
  EXPECT_FALSE(host.exists("var"));
}

TEST_F(KataVerbs, InstallIsDoneOnceAndUninstallGivesTheOldBytesBack) {
  const auto first = on_1_7({"install"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(text(kMain), AllOf(StartsWith(kMainText), HasSubstr("runtimes.kata-qemu-nvidia-gpu]\r\n")));
  EXPECT_THAT(text(kDropIn), HasSubstr("cold_plug_vfio = \"root-port\""));
  EXPECT_EQ(text("etc/ferry/kata/kata-nvidia-gpu/configuration.toml"), text("srv/gpu/configuration.toml"));
  EXPECT_EQ(host.link_target("opt/art/kata-nvidia-gpu").value_or(""), "/srv/gpu");
  const std::string written = text(kMain);
  const auto second = on_1_7({"-o", "json", "install"});
  ASSERT_EQ(second.status, 0) << second.err;
  const auto document = json::parse(second.out);
  EXPECT_FALSE(document["written"]);
  EXPECT_THAT(document["files"], IsEmpty());
  EXPECT_EQ(text(kMain), written);

  const auto removed = on_1_7({"uninstall"}, false);
  ASSERT_EQ(removed.status, 0) << removed.err;
  EXPECT_THAT(removed.out, HasSubstr("leaves: kata-nvidia-gpu\n"));
  EXPECT_EQ(text(kMain), kMainText);
  EXPECT_FALSE(host.exists("etc/ferry")) << "an empty folder";
  EXPECT_FALSE(host.exists("opt/art/kata-nvidia-gpu"));
  EXPECT_TRUE(host.exists("srv/gpu/vmlinuz")) << "a folder of somebody else's";
  EXPECT_EQ(on_1_7({"uninstall"}, false).status, 0) << "and again";
}

// A VM, below a container runtime that does not answer.
TEST_F(KataVerbs, UninstallIsRefusedWhileAVmRunsOrWaitsForItsEnd) {
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  const std::string installed = text(kMain);
  scratch.link("proc/77/exe", "/opt/kata/bin/containerd-shim-kata-v2");
  scratch.file("proc/77/cmdline", "");
  const auto refused = on_1_7({"uninstall"}, false);
  EXPECT_EQ(refused.status, 4) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("process 77, Kata's shim"));
  EXPECT_EQ(text(kMain), installed);

  const auto reported = scratch.path() / "reported";
  auto waiting = std::async(std::launch::async, [&] {
    return test::run_ferry_redirected("2>" + reported.string(),
                                      {"--host-root", scratch.path().string(), "kata", "uninstall", "--wait",
                                       "60", "--containerd-version", "1.7.24"});
  });
  constexpr std::chrono::milliseconds kPollPeriod{5};
  while (waiting.wait_for(kPollPeriod) == std::future_status::timeout &&
         !text("reported").starts_with("waiting for process 77, Kata's shim to end\n")) {
  }
  EXPECT_EQ(text(kMain), installed);
  scratch.remove("proc/77");
  EXPECT_EQ(waiting.get().status, 0) << text("reported");
  EXPECT_EQ(text(kMain), kMainText);
}

// ADR 3. A VM runs, below a container runtime that does not answer.
TEST_F(KataVerbs, ADryRunEndsAsTheRealRunWouldBeRefusedAndShowsThePlan) {
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  const std::string installed = text(kMain);
  classes("- name: kata-nvidia-gpu\n  artifacts: {url: \"file:///srv/gpu\"}\n");
  scratch.link("proc/77/exe", "/opt/kata/bin/containerd-shim-kata-v2");
  scratch.file("proc/77/cmdline", "");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"plan"}, {"install", "--dry-run"}, {"uninstall", "--dry-run"}}) {
    const bool with_file = words.front() != "uninstall";
    const auto refused = on_1_7(words, with_file);
    EXPECT_EQ(refused.status, 4) << words.front();
    EXPECT_THAT(refused.out,
                AllOf(HasSubstr("--- /etc/containerd/config.toml\n"),
                      HasSubstr("would be refused: what would leave may be in use: process 77, Kata's shim"),
                      HasSubstr("\nhint: end them first")));
    auto as_json = words;
    as_json.insert(as_json.begin(), {"-o", "json"});
    EXPECT_THAT(json::parse(on_1_7(as_json, with_file).out)["refusal"]["message"].get<std::string>(),
                HasSubstr("process 77"));
  }
  EXPECT_EQ(text(kMain), installed);
  EXPECT_EQ(on_1_7({"install"}).status, 4) << "the real run";
  scratch.remove("proc/77");
  const auto free = on_1_7({"-o", "json", "plan"});
  EXPECT_EQ(free.status, 0);
  EXPECT_TRUE(json::parse(free.out)["refusal"].is_null());
  EXPECT_EQ(on_1_7({"uninstall", "--dry-run"}, false).status, 0);
}

// Whoever made the link writes what it leads to.
TEST_F(KataVerbs, WhatInstallWouldRefuseThePlanDoes) {
  scratch.file("srv/config.toml", kMainText);
  scratch.link(kMain, "/srv/config.toml");
  for (const char* verb : {"plan", "install"}) {
    const auto refused = on_1_7({verb});
    EXPECT_EQ(refused.status, 4) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("/etc/containerd/config.toml is a link to /srv/config.toml"));
    EXPECT_FALSE(host.exists("etc/ferry")) << verb;
    EXPECT_FALSE(host.exists("opt/art/kata-nvidia-gpu")) << verb;
  }
}

TEST_F(KataVerbs, AClassThatLeavesTheFileLeavesTheHost) {
  classes(
      "- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\"}\n"
      "- name: kata-b\n  artifacts: {url: \"file:///srv/gpu\"}\n");
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  classes("- name: kata-b\n  artifacts: {url: \"file:///srv/gpu\"}\n");
  const auto again = on_1_7({"install"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("leaves: kata-a\n"));
  EXPECT_THAT(text(kMain), AllOf(Not(HasSubstr("kata-a")), HasSubstr("kata-b")));
  EXPECT_FALSE(host.exists("etc/ferry/kata/kata-a"));
  EXPECT_FALSE(host.exists("opt/art/kata-a"));
  EXPECT_TRUE(host.exists("opt/art/kata-b"));
}

TEST_F(KataVerbs, AClassThatLeavesLosesItsArtifactWhereItWasInstalled) {
  classes(
      "- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\"}\n"
      "- name: kata-b\n  artifacts: {url: \"file:///srv/gpu\"}\n");
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  scratch.file("classes.yaml",
               "version: v2\nartifactsDir: /opt/other\nloadModules: false\n"
               "runtimeClasses: [{name: kata-b, artifacts: {url: \"file:///srv/gpu\"}}]\n");
  const auto again = on_1_7({"install"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_FALSE(host.exists("opt/art/kata-a"));
  EXPECT_TRUE(host.exists("opt/other/kata-b"));
  ASSERT_EQ(on_1_7({"uninstall"}, false).status, 0);
  EXPECT_FALSE(host.exists("opt/other/kata-b")) << "this folder is remembered by now";
}

TEST_F(KataVerbs, VerifySaysWhatIsMissing) {
  const auto before = on_1_7({"verify"});
  EXPECT_EQ(before.status, 3) << before.err;
  EXPECT_THAT(before.out, AllOf(HasSubstr("/etc/containerd/config.toml is other\n"),
                                HasSubstr("/" + std::string(kDropIn) + " is not there\n"),
                                HasSubstr("/opt/art/kata-nvidia-gpu is not there\n")));
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  const auto after = on_1_7({"verify"});
  EXPECT_EQ(after.status, 0) << "on a tree without a daemon too";
  EXPECT_EQ(after.out,
            "all of it is there; the container runtime does not run, and knows it once it has started\n");
  const auto status = on_1_7({"status"}, false);
  EXPECT_EQ(status.status, 0);
  EXPECT_THAT(status.out, HasSubstr("kata-nvidia-gpu       ?      ?     /etc/containerd/config.toml\n"));
}

TEST_F(KataVerbs, VerifyNamesTheFilesThatAreNotAsTheyWereFetched) {
  // As a fetch from a registry leaves it.
  const std::string version = "opt/art/.ferry/kata-a/sha256-" + std::string(64, 'a');
  const std::string configuration = text("srv/gpu/configuration.toml");
  const auto whole = [&] {
    scratch.file(version + "/configuration.toml", configuration);
    scratch.file(version + "/vmlinuz", "kernel");
    scratch.file(version + "/image", "image");
  };
  whole();
  scratch.file(version + ".json",
               json{{"version", 1},
                    {"url", "registry.example/kata:1"},
                    {"digest", "sha256:" + std::string(64, 'a')},
                    {"configuration", "configuration.toml"},
                    {"files",
                     {{{"path", "configuration.toml"},
                       {"size", configuration.size()},
                       {"sha256", "82ba4ddab92204a75f505103439eb2e91757c486c0f17c96165f3f1b4f25ab42"}},
                      {{"path", "image"},
                       {"size", 5},
                       {"sha256", "6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"}},
                      {{"path", "vmlinuz"},
                       {"size", 6},
                       {"sha256", "6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c"}}}}}
                   .dump());
  scratch.link("opt/art/kata-a", ".ferry/kata-a/sha256-" + std::string(64, 'a'));
  classes(
      "- name: kata-a\n  artifacts: {url: \"registry.example/kata:1\", allowHostPaths: [/usr/bin/qemu]}\n");
  EXPECT_THAT(on_1_7({"verify"}).out, Not(HasSubstr("/" + version))) << "all is as it was fetched";

  scratch.file(version + "/image", "imagE");
  scratch.file(version + "/vmlinuz", "kernels");
  const auto changed = on_1_7({"verify"});
  EXPECT_EQ(changed.status, 3) << changed.err;
  EXPECT_THAT(changed.out,
              AllOf(HasSubstr("/" + version + "/image has another content than when it was fetched\n"),
                    HasSubstr("/" + version + "/vmlinuz has 7 bytes, and had 6 when it was fetched\n"),
                    Not(HasSubstr(version + "/configuration.toml"))));
  whole();
  scratch.remove(version + "/image");
  EXPECT_THAT(on_1_7({"verify"}).out, HasSubstr("/" + version + "/image is not there\n"));
  whole();
  // Nothing can be set up by it.
  scratch.remove(version + "/configuration.toml");
  const auto gone = on_1_7({"verify"});
  EXPECT_EQ(gone.status, 3) << gone.err;
  EXPECT_THAT(gone.out, AllOf(StartsWith("/" + version + "/configuration.toml is not there\n"),
                              HasSubstr("/" + version + ": open /configuration.toml")));
  // And what is to be done about it stays with what is in the way.
  whole();
  scratch.remove(version + "/image");
  scratch.remove("opt/kata/bin/containerd-shim-kata-v2");
  EXPECT_THAT(on_1_7({"verify"}).out, AllOf(HasSubstr("no shim of Kata's is there"),
                                            HasSubstr("(install Kata, or say in the class")));
}

/// A host with an artifact as a fetch from a registry leaves it, its configuration that of the folder.
class PulledKata : public KataVerbs {
 protected:
  PulledKata() {
    json files = json::array();
    for (const std::string name : {"configuration.toml", "image", "vmlinuz"}) {
      const std::string content = text("srv/gpu/" + name);
      scratch.file(store + version + "/" + name, content);
      files.push_back({{"path", name}, {"size", content.size()}, {"sha256", std::string(64, 'b')}});
    }
    scratch.file(store + version + ".json", json{{"version", 1},
                                                 {"url", url},
                                                 {"digest", "sha256:" + std::string(64, 'a')},
                                                 {"configuration", "configuration.toml"},
                                                 {"files", files}}
                                                .dump());
    scratch.link("opt/art/kata-a", ".ferry/kata-a/" + version);
  }
  void class_of(const std::string& more) const {
    classes("- name: kata-a\n  artifacts: {url: \"" + url + "\"" + more + "}\n");
  }

  const std::string url = "127.0.0.1:1/kata:1";
  const std::string version = "sha256-" + std::string(64, 'a');
  const std::string store = "opt/art/.ferry/kata-a/";
};

// As after an install that was killed behind its fetch, or a whole one.
TEST_F(PulledKata, IsInstalledWhereNoRegistryAnswers) {
  class_of(", allowHostPaths: [/usr/bin/qemu]");
  const auto installed = on_1_7({"-o", "json", "install"});
  ASSERT_EQ(installed.status, 0) << installed.err;
  EXPECT_THAT(installed.err, HasSubstr("note: kata-a: the registry cannot be reached"));
  EXPECT_THAT(json::parse(installed.out)["notes"].dump(),
              HasSubstr("kata-a: the registry cannot be reached"));
  EXPECT_THAT(text(kMain), HasSubstr("runtimes.kata-a]"));
}

TEST_F(PulledKata, IsRefusedWhereItNamesAProgramThatTheClassDoesNotAllow) {
  class_of("");
  for (const char* verb : {"plan", "install"}) {
    const auto refused = on_1_7({verb});
    EXPECT_EQ(refused.status, 4) << verb;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("classes.yaml:5: class kata-a: Kata's configuration of 127.0.0.1:1/kata:1: "
                                "hypervisor.qemu.path is '/usr/bin/qemu', which is no program of Kata's "
                                "installation (/opt/kata)"),
                      HasSubstr("artifacts: {allowHostPaths: [\"/usr/bin/qemu\"]}")));
  }
  EXPECT_EQ(text(kMain), kMainText);
  EXPECT_FALSE(host.exists("etc/ferry"));
}

TEST_F(PulledKata, SaysWhichProgramsRunAndWhetherATagMayMove) {
  class_of(", allowHostPaths: [/usr/bin/qemu]");
  const auto tagged = on_1_7({"plan"});
  EXPECT_EQ(tagged.status, 0) << tagged.err;
  EXPECT_THAT(tagged.out,
              AllOf(HasSubstr("kata-a runs as root on the host: /opt/kata/bin/containerd-shim-kata-v2, "
                              "/usr/bin/qemu\n"),
                    HasSubstr("note: kata-a: pulled by tag: 127.0.0.1:1/kata:1; pin it by digest, "
                              "127.0.0.1:1/kata:1@sha256:" +
                              std::string(64, 'a') + "\n")));
  const auto document = json::parse(on_1_7({"-o", "json", "plan"}).out);
  EXPECT_EQ(document["classes"][0]["programs"], json::array({"/usr/bin/qemu"}));
  classes("- name: kata-a\n  artifacts: {url: \"r.example/kata@sha256:" + std::string(64, 'a') + "\"}\n");
  const auto pinned = on_1_7({"plan"});
  EXPECT_EQ(pinned.status, 0) << pinned.err;
  EXPECT_THAT(pinned.out,
              AllOf(Not(HasSubstr("pulled by tag")), HasSubstr(", and what its artifact names\n")));
}

// The administrator has put it there.
TEST_F(KataVerbs, AFolderMayNameProgramsOfTheHostAndThePlanSaysSo) {
  const auto planned = on_1_7({"plan"});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out,
              AllOf(HasSubstr("kata-nvidia-gpu runs as root on the host: "
                              "/opt/kata/bin/containerd-shim-kata-v2, /usr/bin/qemu\n"),
                    HasSubstr("note: kata-nvidia-gpu: hypervisor.qemu.path is '/usr/bin/qemu', which "
                              "is no program of Kata's installation (/opt/kata)\n"),
                    Not(HasSubstr("pulled by tag"))));
}

TEST_F(KataVerbs, WhatIsWrongIsSaidBeforeAnythingIsWritten) {
  const auto release = kata({"install"});
  EXPECT_EQ(release.status, 1);
  EXPECT_THAT(release.err, AllOf(HasSubstr("containerd was not found"), HasSubstr("--containerd-version")));
  EXPECT_EQ(kata({"install", "--containerd-version", "seven"}).status, 2);
  EXPECT_THAT(kata({"install", "--runtime", "dockre"}).err,
              HasSubstr("there is no container runtime dockre"));
  scratch.remove("opt/kata/bin/containerd-shim-kata-v2");
  const auto shim = on_1_7({"install"});
  EXPECT_NE(shim.status, 0);
  EXPECT_THAT(shim.err, HasSubstr("kata-nvidia-gpu"));
  scratch.file("opt/kata/bin/containerd-shim-kata-v2", "shim");
  scratch.file(kMain,
               "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.kata-nvidia-gpu]\n"
               "runtime_type = \"io.containerd.kata.v2\"\n"
               "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
               "runtime_type = \"io.containerd.runc.v2\"\n");
  const auto taken = on_1_7({"install"});
  EXPECT_EQ(taken.status, 4) << taken.err;
  EXPECT_THAT(taken.err, HasSubstr("has a runtime kata-nvidia-gpu that is not ours"));
  scratch.file("srv/gpu/other.toml", "");
  EXPECT_THAT(on_1_7({"plan"}).err, HasSubstr("several configurations: configuration.toml, other.toml"));
  classes("- name: kata-a\n  artifact: {url: \"file:///srv/gpu\"}\n");
  const auto misspelt = on_1_7({"plan"});
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_THAT(misspelt.err, AllOf(HasSubstr("classes.yaml:6"), HasSubstr("did you mean 'artifacts'?")));
  EXPECT_FALSE(host.exists("etc/ferry"));
  EXPECT_FALSE(host.exists("opt/art")) << "nothing is fetched for what is refused";
}

TEST_F(KataVerbs, AConfidentialClassIsRefusedWhereThereAreNoSuchVmsAndTheOthersComeIn) {
  classes(
      "- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\"}\n"
      "- name: kata-a-snp\n  kind: snp\n  artifacts: {url: \"file:///srv/nothing\"}\n");
  const auto installed = on_1_7({"install"});
  EXPECT_EQ(installed.status, 4) << installed.err;
  EXPECT_THAT(installed.out, HasSubstr("kata-a-snp: refused: "));
  EXPECT_THAT(text(kMain), AllOf(HasSubstr("runtimes.kata-a]"), Not(HasSubstr("kata-a-snp"))));
}

TEST_F(KataVerbs, AConfidentialClassIsRefusedWhereTheGpusAreInNoModeForIt) {
  scratch.file("sys/module/kvm_amd/parameters/sev_snp", "Y\n");
  scratch.file("srv/snp/configuration.toml",
               "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nkernel = \"/build/vmlinuz\"\n"
               "image = \"/build/image\"\nmachine_type = \"q35\"\n");
  for (const char* name : {"vmlinuz", "image"}) scratch.file(std::string("srv/snp/") + name, "x");
  classes(
      "- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\"}\n"
      "- name: kata-a-snp\n  artifacts: {url: \"file:///srv/snp\"}\n");
  const auto node = [&](const std::string& state) {
    scratch.file("node.yaml", "kind: Node\nmetadata:\n  name: node-1\n  labels: {nvidia.com/cc.mode: \"on\"" +
                                  (state.empty() ? "" : ", nvidia.com/cc.mode.state: \"" + state + "\"") +
                                  "}\n");
    return (scratch.path() / "node.yaml").string();
  };
  const auto off = on_1_7({"install", "--node-file", node("off")});
  EXPECT_EQ(off.status, 4) << off.err;
  EXPECT_THAT(off.out, AllOf(HasSubstr("kata-a-snp: refused: "), HasSubstr("is off; on is asked for")));
  EXPECT_THAT(text(kMain), AllOf(HasSubstr("runtimes.kata-a]"), Not(HasSubstr("kata-a-snp"))));
  EXPECT_FALSE(host.exists("opt/art/kata-a-snp"));
  const auto unknown = on_1_7({"plan", "--node-file", node("")});
  EXPECT_EQ(unknown.status, 0) << unknown.err;
  EXPECT_THAT(unknown.out,
              HasSubstr("kata-a-snp: the mode of the GPUs for confidential computing is unknown: "));
  const auto on = on_1_7({"install", "--node-file", node("on")});
  EXPECT_EQ(on.status, 0) << on.err;
  EXPECT_THAT(text(kMain), HasSubstr("runtimes.kata-a-snp]"));
  const auto status = on_1_7({"status", "--node-file", node("ppcie")}, false);
  EXPECT_THAT(status.out, HasSubstr("confidential computing of the GPUs: ppcie; on is asked for\n"));
  EXPECT_EQ(json::parse(on_1_7({"-o", "json", "status"}, false).out)["confidential_mode"]["state"],
            "unknown");
  EXPECT_EQ(on_1_7({"plan", "--node-file", "/there/is/none"}).status, 2);
}

TEST_F(KataVerbs, AFileThatWasCutOffTakesNothingAway) {
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  const std::string installed = text(kMain);
  for (const char* nothing : {"", "version: v2\n", "runtimeClasses: []\n"}) {
    scratch.file("classes.yaml", nothing);
    const auto again = on_1_7({"install"});
    EXPECT_EQ(again.status, 2) << nothing;
    EXPECT_THAT(again.err, AllOf(HasSubstr("no runtime classes in it"), HasSubstr("ferry kata uninstall")));
    EXPECT_EQ(on_1_7({"verify"}).status, 2);
  }
  EXPECT_EQ(text(kMain), installed);
}

// A port where nobody listens: what is said before it is asked, and of it.
constexpr const char* kPulled =
    "- name: kata-a\n  artifacts: {url: \"127.0.0.1:1/kata:1\", pullSecret: kata-pull}\n";
// A password without a user, which is found out when the credentials are read, and not before.
constexpr const char* kHalf = R"({"auths":{"127.0.0.1:1":{"auth":"aHVzaGh1c2g="}}})";

TEST_F(KataVerbs, SaysWhereAPullSecretMayBeWhereItIsMissed) {
  classes(kPulled);
  EXPECT_THAT(on_1_7({"install"}).err, AllOf(HasSubstr("the Secret kata-pull"), HasSubstr("--pull-secrets"),
                                             HasSubstr("--docker-config")));
}

TEST_F(KataVerbs, RefusesAPullSecretThatIsNotThereBeforeAnything) {
  classes(kPulled);
  scratch.directory("pull");
  const std::string folder = (scratch.path() / "pull").string();
  for (const char* verb : {"plan", "install"}) {
    const auto missing = on_1_7({verb, "--pull-secrets", folder});
    EXPECT_EQ(missing.status, 2) << verb;
    EXPECT_THAT(missing.err, AllOf(HasSubstr("classes.yaml:5: kata-a: the Secret kata-pull: " + folder +
                                             "/kata-pull is not there"),
                                   HasSubstr(".dockerconfigjson")));
  }
  EXPECT_FALSE(host.exists("opt/art"));
  EXPECT_FALSE(host.exists("var"));
  // A folder of the host's own is not pulled.
  classes("- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\", pullSecret: kata-pull}\n");
  EXPECT_EQ(on_1_7({"install", "--pull-secrets", folder}).status, 0);
}

TEST_F(KataVerbs, AsksTheRegistryWithTheSecretThatTheClassNames) {
  classes(kPulled);
  scratch.file("pull/kata-pull/.dockerconfigjson", kHalf);
  scratch.file("root/config.json", "{}");
  const std::string folder = (scratch.path() / "pull").string();
  const auto read = on_1_7({"install", "--docker-config", "/root/config.json", "--pull-secrets", folder});
  EXPECT_EQ(read.status, 2);
  EXPECT_THAT(read.err, AllOf(HasSubstr("auth is not USER:PASSWORD"), Not(HasSubstr("aHVzaGh1c2g")),
                              Not(HasSubstr("hushhush"))));
  EXPECT_THAT(read.out, IsEmpty());
  // One that names none takes what counts for all.
  scratch.file("root/config.json", kHalf);
  classes("- name: kata-a\n  artifacts: {url: \"127.0.0.1:1/kata:1\"}\n");
  EXPECT_THAT(on_1_7({"install", "--docker-config", "/root/config.json", "--pull-secrets", folder}).err,
              HasSubstr("auth is not USER:PASSWORD"));
}

TEST_F(KataVerbs, SaysWhyEachFileIsWritten) {
  EXPECT_THAT(on_1_7({"plan", "--explain"}).out,
              AllOf(HasSubstr("/etc/containerd/config.toml  because: "),
                    HasSubstr("/" + std::string(kDropIn) + "  because: what GPUs need of Kata")));
}

TEST_F(KataVerbs, TheFileIsThatWhichTheUnitNames) {
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  scratch.file("etc/systemd/system/containerd.service.d/own.conf",
               "[Service]\nExecStart=\nExecStart=/usr/bin/containerd --config /srv/containerd.toml\n");
  scratch.file("srv/containerd.toml", kMainText);
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  EXPECT_THAT(text("srv/containerd.toml"), HasSubstr("runtimes.kata-nvidia-gpu]"));
  EXPECT_EQ(text(kMain), kMainText) << "nobody reads it";
  ASSERT_EQ(on_1_7({"uninstall"}, false).status, 0);
  EXPECT_EQ(text("srv/containerd.toml"), kMainText);
}

TEST_F(KataVerbs, CrioGetsAFileOfItsOwn) {
  classes("- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\"}\n", "runtime: {name: cri-o}\n");
  const auto installed = kata({"install"});
  ASSERT_EQ(installed.status, 0) << installed.err;
  EXPECT_THAT(text("etc/crio/crio.conf.d/60-ferry-kata.conf"),
              HasSubstr("runtime_config_path = \"/etc/ferry/kata/kata-a/configuration.toml\""));
  ASSERT_EQ(kata({"uninstall", "--runtime", "cri-o"}, false).status, 0);
  EXPECT_FALSE(host.exists("etc/crio/crio.conf.d/60-ferry-kata.conf"));
}

TEST_F(KataVerbs, K0sGetsADropInAndReadsItByItself) {
  scratch.remove("etc/containerd");
  scratch.file("etc/k0s/containerd.toml",
               "# k0s_managed=true\nversion = 2\nimports = [\"/run/k0s/containerd-cri.toml\"]\n");
  constexpr const char* kOurs = "etc/k0s/containerd.d/ferry-kata.toml";
  const auto planned = on_1_7({"plan"});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out, AllOf(StartsWith("containerd 1.7.24 of k0s, /etc/k0s/containerd.d\n"),
                                 HasSubstr("then: wait until k0s has had it read\n")));
  EXPECT_FALSE(host.exists(kOurs));
  ASSERT_EQ(on_1_7({"install"}).status, 0);
  const std::string written = text(kOurs);
  EXPECT_THAT(written, AllOf(HasSubstr("\nversion = 2\n"), HasSubstr("runtimes.kata-qemu-nvidia-gpu]\n")));
  const auto second = on_1_7({"-o", "json", "install"});
  EXPECT_FALSE(json::parse(second.out)["written"]) << second.err;
  EXPECT_EQ(text(kOurs), written);
  EXPECT_THAT(on_1_7({"verify"}).out, HasSubstr("the container runtime does not run"));
  EXPECT_THAT(on_1_7({"status"}, false).out, HasSubstr("/" + std::string(kOurs)));
  EXPECT_EQ(on_1_7({"uninstall"}, false).status, 0);
  EXPECT_FALSE(host.exists(kOurs));
}

TEST_F(KataVerbs, TheRestartIsTheOneThatTheClassFileNames) {
  const std::string list = "- name: kata-a\n  artifacts: {url: \"file:///srv/gpu\"}\n";
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  scratch.file("lib/systemd/system/own.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  classes(list);
  EXPECT_THAT(on_1_7({"plan"}).out, HasSubstr("then: restart containerd.service\n"));
  classes(list, "restart: {command: [/srv/restart, containerd]}\n");
  EXPECT_THAT(on_1_7({"plan"}).out, HasSubstr("then: run /srv/restart containerd\n"));
  classes(list, "restart: none\n");
  EXPECT_THAT(on_1_7({"plan"}).out,
              HasSubstr("nothing restarts the container runtime, which reads them at its next start\n"));
  classes(list, "runtime: {name: cri-o}\n");
  scratch.file("lib/systemd/system/crio.service", "[Service]\nExecReload=/bin/kill -HUP $MAINPID\n");
  EXPECT_THAT(kata({"plan"}).out, HasSubstr("then: reload crio.service\n"));
}

TEST_F(KataVerbs, RuntimeClassesAreWhatKubectlTakes) {
  const auto yaml = kata({"runtimeclass"});
  EXPECT_EQ(yaml.status, 0) << yaml.err;
  EXPECT_THAT(yaml.out,
              AllOf(HasSubstr("handler: kata-nvidia-gpu\n"), HasSubstr("handler: kata-qemu-nvidia-gpu\n"),
                    Not(HasSubstr("nvidia.com/kata-runtime-class"))));
  EXPECT_EQ(json::parse(kata({"-o", "json", "runtimeclass"}).out)["items"].size(), 2U);
}

}  // namespace
}  // namespace ferry::cli
