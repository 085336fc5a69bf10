// SPDX-License-Identifier: Apache-2.0
// `ferry kata plan` on the hosts of public reports (tests/fixtures/kata): how it ends, and which file, line
// and cure it names.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::filesystem::path kCases = FERRY_FIXTURES "/kata";

struct Row {
  std::string host;                 ///< a folder of the fixtures
  std::string release = {};         ///< of containerd; empty: CRI-O
  int status = 0;                   ///< of the program
  std::vector<std::string> said;    ///< on its standard output, or as its error
  std::string classes = "classes";  ///< a class file of the fixtures
  std::vector<std::string> words = {};
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.host << " " << row.release << " " << row.classes;
}

/// The same on all hosts: Kata's shim, its artifact, and a process table.
void add_kata(const test::ScratchDirectory& host) {
  host.file("opt/kata/bin/containerd-shim-kata-v2", "shim");
  host.file("srv/gpu/configuration.toml",
            "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nkernel = \"/build/vmlinuz\"\n"
            "image = \"/build/image\"\nmachine_type = \"q35\"\ndefault_memory = 2048\n");
  for (const char* file : {"srv/gpu/vmlinuz", "srv/gpu/image", "usr/bin/qemu"}) host.file(file, "x\n");
  host.link("proc/1/exe", "/sbin/init");
  host.file("proc/1/cmdline", "");
  host.file("proc/1/comm", "systemd\n");
}

class KataCases : public testing::TestWithParam<Row> {};

TEST_P(KataCases, EndAsTheReportNeedsIt) {
  const Row& row = GetParam();
  const test::ScratchDirectory host;
  std::filesystem::copy(kCases / row.host, host.path(), std::filesystem::copy_options::recursive);
  add_kata(host);
  std::vector<std::string> words = {
      "--host-root", host.path().string(), "kata", "plan", "-f", (kCases / (row.classes + ".yaml")).string()};
  if (!row.release.empty()) words.insert(words.end(), {"--containerd-version", row.release});
  words.insert(words.end(), row.words.begin(), row.words.end());
  const auto result = test::run_ferry(words);
  EXPECT_EQ(result.status, row.status) << result.out << result.err;
  const std::string& reported = row.status == 0 ? result.out : result.err;
  for (const std::string& text : row.said) EXPECT_THAT(reported, HasSubstr(text));
  EXPECT_TRUE(row.status != 4 || result.err.find("hint: ") != std::string::npos)
      << "a refusal names its cure";
  EXPECT_THAT(result.err, Not(HasSubstr("ioio")));
}

constexpr const char* kFile = "+++ /etc/containerd/config.toml\n";
constexpr const char* kK3s = "/var/lib/rancher/k3s/agent/etc/containerd/config";
constexpr const char* kRewritten = "another program writes it at each start";
constexpr const char* kMirrors =
    "would not run with the configuration that is there: CRI does not load: /etc/containerd/config.toml:13: "
    "registry.mirrors and registry.config_path are both given\nhint: leave one of them";
constexpr const char* kCgroup = "CRI does not load: /etc/containerd/config.toml:5: systemd_cgroup is for";

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"k01-cri-disabled",
       "1.7.24",
       4,
       {"CRI does not load: /etc/containerd/config.toml:3: disabled_plugins has cri\n",
        "hint: take cri out of that list, then run this again; nothing was changed\n"}},
      {"k02-k3s-v1", "1.3.3", 2, {"containerd 1.3.3: how it reads its configuration is not known\n"}},
      {"k02-k3s-v1", "1.6.20", 4, {kRewritten}},
      {"k02b-same-in-etc", "1.6.20", 0, {kFile, "+[plugins.cri.containerd.runtimes.kata-nvidia-gpu]\n"}},
      {"k02c-with-broken-append",
       "1.6.20",
       4,
       {"/etc/containerd/config.toml:16:1: ", "cannot redefine existing table 'plugins' as array-of-tables",
        "hint: correct that in the file, then run this again; nothing was changed\n"}},
      {"k03-v1-sections-twice",
       "1.6.20",
       4,
       {"/etc/containerd/config.toml:25:5: ", "cannot redefine existing table 'plugins.cri'"}},
      {"k04a-rke2-template", "1.6.20", 4, {kRewritten, "hint: take a release of it with containerd 2\n"}},
      {"k04b-rke2-template",
       "2.0.11",
       0,
       {"+++ /var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/ferry-kata.toml\n"}},
      {"k05-microk8s",
       "1.6.28",
       4,
       {"several container runtimes are installed here: microk8s, containerd\n"}},
      {.host = "k05-microk8s",
       .release = "1.6.28",
       .status = 4,
       .said = {"CRI does not load: /var/snap/microk8s/current/args/containerd-template.toml:1, "
                "/etc/containerd/config.toml:3: disabled_plugins has cri\nhint: take cri out of that list"},
       .words = {"--runtime", "microk8s"}},
      {"k06-k0s-unmanaged",
       "2.1.9",
       4,
       {"it has no comment `# k0s_managed=true`", "hint: say `runtime: {name: containerd, "}},
      {"k06-k0s-unmanaged",
       "2.1.9",
       0,
       {"+++ /etc/k0s/containerd.d/ferry-kata.toml\n"},
       "classes-k0s-unmanaged"},
      {"k06b-k0s-managed-nvidia",
       "1.7.24",
       0,
       {"+++ /etc/k0s/containerd.d/ferry-kata.toml\n", "\n+version = 2\n", "note: k0s watches this folder"}},
      {"k07-version-4", "2.3.0", 0, {"+++ /etc/containerd/conf.d/ferry-kata.toml\n"}},
      {"k07-version-4", "2.2.1", 0, {kFile}},
      {"k09-cdi-off", "1.7.24", 0, {kFile, "kata-nvidia-gpu"}},
      {"k10-crio", "", 0, {"+++ /etc/crio/crio.conf.d/60-ferry-kata.conf\n"}},
      {"k10-crio",
       "",
       4,
       {"/etc/crio/crio.conf.d/99-runtime.conf has a runtime kata that is not ours\n"},
       "classes-kata"},
      {"k10-crio",
       "",
       4,
       {"/etc/crio/crio.conf has a runtime kata-qemu that is not ours\n"},
       "classes-kata-qemu"},
      {"k11-k3s-template-copy",
       "2.1.4",
       4,
       {std::string(kK3s) + ".toml: it imports no folder of drop-ins",
        "written at each start from " + std::string(kK3s) + "-v3.toml.tmpl, ",
        "begin the template with `{{ template \"base\" . }}`",
        "or with `imports = [\"" + std::string(kK3s) + "-v3.toml.d/*.toml\"]`"}},
      {"k15-managed-kata", "1.7.24", 0, {kFile}},
      {"k15-managed-kata",
       "1.7.24",
       4,
       {"/etc/containerd/config.toml:16 has a runtime kata that is not ours\n"},
       "classes-kata"},
      {"k16-mirrors-and-config-path", "1.6.20", 4, {kMirrors}},
      {"k16-mirrors-and-config-path", "1.7.24", 4, {kMirrors}},
      {"k16-mirrors-and-config-path", "2.1.9", 4, {kMirrors}},
      {"k17-systemd-cgroup", "1.6.20", 4, {kCgroup, "hint: take it out, and say SystemdCgroup = true"}},
      {"k17-systemd-cgroup", "1.7.24", 4, {kCgroup}},
      // A trial start refuses it (tests/kata-manager/real_trial_test.cpp); a plan makes none.
      {"n8-integer-for-a-float", "1.6.20", 0, {kFile}},
      {"n17-other-socket", "1.7.24", 0, {kFile}},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(OfReports, KataCases, testing::ValuesIn(rows()), [](const auto& row) {
  std::string name = row.param.host + "_" + row.param.release + "_" + std::to_string(row.index);
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

/// A containerd host with Kata of a release, whose shims cannot be started.
class KataReleases : public testing::Test {
 protected:
  KataReleases() {
    std::filesystem::copy(kCases / "k09-cdi-off", host.path(), std::filesystem::copy_options::recursive);
    add_kata(host);
  }
  test::ProgramResult kata(const std::string& verb) const {
    return test::run_ferry({"--host-root", host.path().string(), "kata", verb, "-f",
                            (kCases / "classes.yaml").string(), "--containerd-version", "1.7.24"});
  }
  void artifact(const std::string& more) const {
    host.file("srv/gpu/configuration.toml",
              "[hypervisor.qemu]\nkernel = \"/build/vmlinuz\"\nimage = \"/build/image\"\n" + more);
  }
  test::ScratchDirectory host;
};

TEST_F(KataReleases, ThatAskNoKubeletAreRefusedOrPlugHot) {
  host.file("opt/kata/VERSION", "3.20.0\n");
  for (const char* verb : {"plan", "install"}) {
    const auto refused = kata(verb);
    EXPECT_EQ(refused.status, 4) << refused.err;
    EXPECT_THAT(refused.out, HasSubstr("kata-nvidia-gpu: refused: "));
    EXPECT_THAT(refused.out, HasSubstr("(Kata 3.20.0) does not ask the kubelet which devices a pod has"));
    EXPECT_FALSE(std::filesystem::exists(host.path() / "etc/ferry/kata/kata-nvidia-gpu")) << verb;
  }
  artifact("hot_plug_vfio = \"root-port\"\n");
  const auto hot = kata("plan");
  EXPECT_EQ(hot.status, 0) << hot.err;
  EXPECT_THAT(hot.out, HasSubstr("note: kata-nvidia-gpu: hot_plug_vfio stays root-port: "));
  EXPECT_THAT(hot.out, Not(HasSubstr("+cold_plug_vfio")));
}

TEST_F(KataReleases, HaveTheShimThatTheConfigurationIsFor) {
  constexpr const char* kRust = "opt/kata/runtime-rs/bin/containerd-shim-kata-v2";
  host.file("opt/kata/VERSION", "4.1.0\n");
  host.file(kRust, "shim");
  EXPECT_THAT(kata("plan").out, Not(HasSubstr(kRust)));
  artifact("[runtime]\nname = \"virt_container\"\n");
  const auto planned = kata("plan");
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr(std::string("+runtime_path = \"/") + kRust + "\"\n"));
  EXPECT_THAT(planned.out, HasSubstr("+reconnect_timeout_ms = 1200000\n"));
  EXPECT_THAT(planned.out, Not(HasSubstr("+dial_timeout = ")));
}

// NVIDIA's file format has no key that names the configuration.
TEST_F(KataReleases, HaveTheirConfigurationWhereKatasBuildPutsIt) {
  for (const char* file : {"srv/gpu/configuration.toml", "srv/gpu/vmlinuz", "srv/gpu/image"})
    host.remove(file);
  host.file(
      "srv/gpu/share/defaults/kata-containers/configuration-qemu-nvidia-gpu.toml",
      "[hypervisor.qemu]\nkernel = \"/opt/kata/share/kata-containers/vmlinuz\"\nimage = \"/build/image\"\n");
  host.file("srv/gpu/share/kata-containers/vmlinuz", "x");
  host.file("srv/gpu/share/kata-containers/image", "x");
  const auto planned = kata("plan");
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("+kernel = \"/srv/gpu/share/kata-containers/vmlinuz\"\n"));
  EXPECT_THAT(planned.out, HasSubstr("+image = \"/srv/gpu/share/kata-containers/image\"\n"));
}

TEST_F(KataReleases, AreNotPlannedWithAReferenceThatNoRegistryTakes) {
  host.file("classes.yaml",
            "version: v2\nloadModules: false\nruntimeClasses: [{name: a, artifacts: {url: "
            "\"h.example/R/UPPER\"}}]\n");
  for (const char* verb : {"plan", "install"}) {
    const auto refused =
        test::run_ferry({"--host-root", host.path().string(), "kata", verb, "-f",
                         (host.path() / "classes.yaml").string(), "--containerd-version", "1.7.24"});
    EXPECT_EQ(refused.status, 2) << verb << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("classes.yaml:3: a: ")) << verb;
  }
}

TEST(KataCases, AreAllTried) {
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) {
    if (!entry.is_directory()) continue;
    EXPECT_NE(std::ranges::find(rows(), entry.path().filename().string(), &Row::host), rows().end())
        << entry.path();
  }
}

}  // namespace
}  // namespace ferry::cli
