// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_checks.h"

#include <filesystem>
#include <initializer_list>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "api/own_cdi_files.h"
#include "kata-manager/classes/confidential_mode.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kCopy = "etc/ferry/kata/gpu/configuration.toml";
constexpr const char* kSettings =
    "[hypervisor.qemu]\nkernel = \"/opt/kata/k\"\nimage = \"/opt/kata/i\"\ncold_plug_vfio = \"root-port\"\n"
    "default_memory = 8192\n";

/// A process's arguments as /proc has them.
std::string command_line(std::initializer_list<const char*> arguments) {
  std::string out;
  for (const char* argument : arguments) out += std::string(argument) + '\0';
  return out;
}

class KataChecks : public testing::Test {
 protected:
  /// A host on which pods with GPUs run in VMs of the class `gpu`.
  KataChecks() {
    for (const char* node :
         {"dev/kvm", "dev/vhost-vsock", "dev/vhost-net", "opt/kata/k", "opt/kata/i",
          "var/lib/kubelet/pod-resources/kubelet.sock", "opt/kata/bin/containerd-shim-kata-v2"})
      scratch.file(node, "");
    scratch.file("proc/7/comm", "kubelet\n");
    scratch.file("proc/7/cmdline", command_line({"/usr/bin/kubelet", "--config=/etc/kubelet.yaml"}));
    scratch.file("etc/kubelet.yaml",
                 "kind: KubeletConfiguration\nfeatureGates: {KubeletPodResourcesGet: true}\n"
                 "runtimeRequestTimeout: 20m0s\n");
    scratch.file("run/containerd/containerd.sock", "");
    install(R"("io.katacontainers.*", "cdi.k8s.io/*")");
    scratch.file(kCopy, kSettings);
  }

  void install(const std::string& annotations) const {
    scratch.file("etc/containerd/config.toml",
                 "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpu]\n"
                 "runtime_type = \"io.containerd.gpu.v2\"\npod_annotations = [" +
                     annotations +
                     "]\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpu.options]\nConfigPath "
                     "= \"/etc/ferry/kata/gpu/configuration.toml\"\n");
  }

  static ClassFile file_of(const std::string& keys, const std::string& node = "") {
    return test::must(
        read_classes({.file = "k.yaml",
                      .text = "version: v2\n" + node +
                              "runtimeClasses: [{name: gpu, artifacts: {url: r/i:1}, " + keys + "}]\n"}));
  }

  /// "pass: what was found"; "(none)" for no check of that id.
  std::string answer(const std::string& id, const ClassFile& file = {}) const {
    const VersionOf version_of = [&](const std::filesystem::path& /*program*/) -> Result<std::string> {
      if (shim_says.empty()) return fail(Errc::failed, "it does not start");
      return shim_says;
    };
    for (const Check& check : kata_checks(host, file, {}, version_of))
      if (check.id == id) return std::string(text(check.verdict)) + ": " + check.found;
    return "(none)";
  }

  std::string shim_says;  ///< at `--version`; empty: it cannot be started
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(KataChecks, KnowTheReleaseOfTheShim) {
  const ClassFile file = file_of("kind: gpu");
  constexpr const char* kShim = "/opt/kata/bin/containerd-shim-kata-v2";
  for (const ClassFile& asked : {ClassFile(), file}) {
    shim_says.clear();
    EXPECT_EQ(answer("kata-shim", asked),
              std::string("pass: ") + kShim + " is there; its release is not known: it does not start");
    shim_says = "Kata Containers containerd shim (Golang): id: \"k\", version: 3.24.0, commit: 1\n";
    EXPECT_EQ(answer("kata-shim", asked),
              std::string("pass: ") + kShim + " (Kata's Go runtime 3.24.0) is there");
    shim_says = "Kata Containers containerd shim (Golang): id: \"k\", version: 3.20.0, commit: 1\n";
    EXPECT_THAT(answer("kata-shim", asked),
                AllOf(StartsWith("warn: "), HasSubstr("does not ask the kubelet")));
  }
  EXPECT_EQ(answer("kata-configuration", file),
            std::string("fail: /etc/ferry/kata/gpu/configuration.toml: ") + kShim +
                " (Kata's Go runtime 3.20.0) does not ask the kubelet which devices a pod has: with "
                "cold_plug_vfio = "
                "root-port a pod gets none");
  EXPECT_THAT(answer("kata-configuration", file_of("kind: gpu", "podResources: \"\"\n")),
              StartsWith("pass: "));
}

// As an earlier Ferry has installed it.
TEST_F(KataChecks, FindASettingOfTheGoRuntimeInAConfigurationForRuntimeRs) {
  const ClassFile file = file_of("kind: gpu");
  scratch.file(kCopy, std::string(kSettings) + "[runtime]\nname = \"virt_container\"\n");
  scratch.file("etc/ferry/kata/gpu/config.d/60-ferry.toml", "[agent.kata]\ndial_timeout = 1200\n");
  shim_says = "Kata Containers containerd shim (Golang): id: \"k\", version: 4.1.0, commit: 1\n";
  EXPECT_THAT(answer("kata-shim", file), AllOf(StartsWith("fail: "), HasSubstr("is for Kata's runtime-rs")));
  shim_says = "Kata Containers containerd shim (Rust): id: k, version: 4.1.0, commit: 1\n";
  EXPECT_THAT(answer("kata-configuration", file),
              AllOf(StartsWith("fail: "), HasSubstr("agent.kata.dial_timeout"), HasSubstr("ends with it")));
  scratch.file("etc/ferry/kata/gpu/config.d/60-ferry.toml", "[agent.kata]\nreconnect_timeout_ms = 1200000\n");
  EXPECT_THAT(answer("kata-configuration", file), StartsWith("pass: "));
}

TEST_F(KataChecks, NameACdiFileOfFerryThatIsNotAsFerryWritesIt) {
  EXPECT_EQ(answer("cdi-files"), "pass: 0 files of Ferry in /var/run/cdi, each as Ferry writes it");
  const std::string text = "cdiVersion: 0.7.0\nkind: nvidia.com/gpu\n";
  scratch.file("var/run/cdi/nvidia.yaml", text);
  EXPECT_EQ(answer("cdi-files"), "pass: 0 files of Ferry in /var/run/cdi, each as Ferry writes it");
  scratch.file("var/run/cdi/nvidia.com-pgpu.yaml", std::string(api::kPluginCdiHead) + text);
  EXPECT_EQ(answer("cdi-files"),
            "fail: /var/run/cdi/nvidia.com-pgpu.yaml:2: cdiVersion: is not 0.5.0 or 0.6.0");
}

TEST_F(KataChecks, HaveNothingAgainstAHealthyHost) {
  for (const ClassFile& file : {ClassFile(), file_of("kind: gpu")}) {
    for (const Check& check : kata_checks(host, file)) {
      EXPECT_EQ(check.verdict, Verdict::pass) << check.subject << ": " << check.id << ": " << check.found;
      EXPECT_EQ(check.fix, "") << check.id;
      EXPECT_NE(check.why, "") << check.id;
    }
  }
}

TEST_F(KataChecks, MissWhatVmsAreMadeOf) {
  scratch.remove("dev/kvm");
  EXPECT_EQ(answer("kvm-there"), "fail: there is no /dev/kvm");
  scratch.remove("dev/vhost-vsock");
  scratch.remove("dev/vhost-net");
  EXPECT_EQ(answer("vhost-vsock-there"), "warn: there is no /dev/vhost-vsock: `ferry kata install` loads it");
  EXPECT_EQ(answer("vhost-net-there"), "warn: there is no /dev/vhost-net: `ferry kata install` loads it");
  const ClassFile unloaded = file_of("kind: gpu", "loadModules: false\n");
  EXPECT_EQ(answer("vhost-vsock-there", unloaded),
            "fail: there is no /dev/vhost-vsock, and the class file says loadModules: false");
  scratch.remove("opt/kata/bin/containerd-shim-kata-v2");
  EXPECT_EQ(answer("kata-shim"), "fail: no shim of Kata's is where its installers put it");
  EXPECT_EQ(answer("kata-shim", file_of("shim: /opt/containerd-shim-kata-x")),
            "fail: k.yaml:2: class gpu: there is no /opt/containerd-shim-kata-x");
}

TEST_F(KataChecks, KnowHowKataLearnsOfDevices) {
  scratch.remove("var/lib/kubelet/pod-resources/kubelet.sock");
  EXPECT_EQ(answer("pod-resources"),
            "fail: there is no /var/lib/kubelet/pod-resources/kubelet.sock: pods would start without their "
            "devices");
  const ClassFile by_annotation = file_of("kind: gpu", "podResources: \"\"\n");
  EXPECT_THAT(answer("pod-resources", by_annotation), StartsWith("pass: "));
  EXPECT_EQ(answer("pod-resources-get", by_annotation), "pass: Kata does not ask");
  EXPECT_THAT(answer("annotations-pass", by_annotation), StartsWith("pass: "));
  install(R"("io.katacontainers.*")");
  EXPECT_EQ(answer("annotations-pass", by_annotation), "fail: pod_annotations lacks cdi.k8s.io/*");
  EXPECT_THAT(answer("annotations-pass", file_of("kind: gpu")), StartsWith("pass: "));
  install("");
  EXPECT_EQ(answer("annotations-pass", file_of("kind: gpu")),
            "fail: pod_annotations lacks io.katacontainers.*");
}

TEST_F(KataChecks, ReadTheKubeletsGate) {
  scratch.file("etc/kubelet.yaml", "featureGates: {KubeletPodResourcesGet: false}\n");
  EXPECT_EQ(answer("pod-resources-get"), "fail: the gate KubeletPodResourcesGet is off");
  scratch.file("etc/kubelet.yaml", "featureGates: {}\n");
  EXPECT_EQ(answer("pod-resources-get"),
            "warn: the kubelet's configuration does not set the gate KubeletPodResourcesGet");
  scratch.file("etc/kubelet.yaml", "a: [\n");
  EXPECT_THAT(answer("pod-resources-get"), StartsWith("unknown: /etc/kubelet.yaml:1: not readable as YAML"));
}

TEST_F(KataChecks, ReadHowLongTheKubeletWaits) {
  scratch.file("etc/kubelet.yaml", "runtimeRequestTimeout: 15m\n");
  EXPECT_EQ(answer("kubelet-waits"), "warn: runtimeRequestTimeout is 900 s");
  scratch.file("etc/kubelet.yaml", "runtimeRequestTimeout: 0s\n");
  EXPECT_EQ(answer("kubelet-waits"), "warn: runtimeRequestTimeout is 120 s, the kubelet's default");
  scratch.file("etc/kubelet.yaml", "runtimeRequestTimeout: 1h\n");
  EXPECT_EQ(answer("kubelet-waits"), "pass: runtimeRequestTimeout is 3600 s");
}

TEST_F(KataChecks, TakeNoProgramOfAPodForTheKubelet) {
  scratch.file("etc/kubelet.yaml", "runtimeRequestTimeout: 15m\n");
  scratch.file("etc/other.yaml", "runtimeRequestTimeout: 1h\n");
  scratch.file("proc/6/comm", "kubelet\n");
  scratch.file("proc/6/cmdline", command_line({"kubelet", "--config=/etc/other.yaml"}));
  scratch.file("proc/6/cgroup", "0::/kubepods/besteffort/pod0f2c4e5f-1b2c-4d5e-8f90-a1b2c3d4e5f6/a\n");
  EXPECT_EQ(answer("kubelet-waits"), "warn: runtimeRequestTimeout is 900 s");
}

TEST_F(KataChecks, HoldTheOverheadAgainstTheGuestsMemory) {
  EXPECT_EQ(answer("overhead-covers-memory", file_of("kind: gpu")), "pass: made for a guest of 8192 MiB");
  EXPECT_EQ(answer("overhead-covers-memory", file_of("overhead: {memory: 2Gi}")),
            "fail: 2048 MiB of overhead for a guest of 8192 MiB");
  EXPECT_EQ(answer("overhead-covers-memory", file_of("overhead: {cpu: 1}")),
            "fail: 0 MiB of overhead for a guest of 8192 MiB");
  EXPECT_EQ(answer("overhead-covers-memory", file_of("overhead: {memory: 8Gi}")),
            "warn: 8192 MiB of overhead for a guest of 8192 MiB, and nothing for QEMU itself");
  EXPECT_EQ(answer("overhead-covers-memory", file_of("overhead: {memory: 10240Mi}")),
            "pass: 10240 MiB of overhead for a guest of 8192 MiB");
  scratch.file("etc/ferry/kata/gpu/config.d/70-site.toml", "[hypervisor.qemu]\ndefault_memory = 16384\n");
  EXPECT_EQ(answer("overhead-covers-memory", file_of("overhead: {memory: 10240Mi}")),
            "fail: 10240 MiB of overhead for a guest of 16384 MiB")
      << "of what is installed, with its drop-ins";
}

TEST_F(KataChecks, LookAtWhatIsInstalled) {
  const ClassFile file = file_of("kind: gpu");
  EXPECT_EQ(answer("kata-configuration", file), "pass: /etc/ferry/kata/gpu/configuration.toml is fit for it");
  scratch.remove("opt/kata/i");
  EXPECT_EQ(answer("kata-configuration", file),
            "fail: /etc/ferry/kata/gpu/configuration.toml names what is not there: /opt/kata/i");
  scratch.file(kCopy, std::string(kSettings) + "hot_plug_vfio = \"root-port\"\n");
  EXPECT_EQ(
      answer("kata-configuration", file),
      "fail: /etc/ferry/kata/gpu/configuration.toml: both cold_plug_vfio = root-port and hot_plug_vfio = "
      "root-port: Kata takes one of them");
  scratch.file(kCopy, "[a\n");
  EXPECT_THAT(answer("kata-configuration", file),
              StartsWith("fail: /etc/ferry/kata/gpu/configuration.toml:1:"));
  scratch.remove(kCopy);
  EXPECT_THAT(answer("kata-configuration", file), StartsWith("fail: open "));
  scratch.file("etc/containerd/config.toml", "version = 2\n");
  EXPECT_EQ(answer("kata-handler", file), "warn: the container runtime's files do not have it");
  EXPECT_EQ(answer("kata-configuration", file), "(none)");
  EXPECT_EQ(answer("overhead-covers-memory", file_of("overhead: {memory: 8Gi}, configuration: {hypervisor: "
                                                     "{qemu: {default_memory: 4096}}}")),
            "pass: 8192 MiB of overhead for a guest of 4096 MiB");
  scratch.remove("etc/containerd/config.toml");
  scratch.remove("run/containerd/containerd.sock");
  EXPECT_THAT(answer("kata-handler", file), StartsWith("unknown: no container runtime is here"));
}

// As an installation by an earlier release of Ferry has left it.
TEST_F(KataChecks, FindWhatAPulledConfigurationMayNotName) {
  const auto program = [&](const std::string& artifacts) {
    ClassFile file = file_of("kind: gpu");
    file.classes.front().artifacts =
        test::must(read_classes({.file = "k.yaml",
                                 .text = "version: v2\nruntimeClasses: [{name: gpu, "
                                         "artifacts: {" +
                                         artifacts + "}}]\n"}))
            .classes.front()
            .artifacts;
    return answer("kata-configuration", file);
  };
  scratch.file(kCopy, std::string(kSettings) + "path = \"/bin/sh\"\n");
  scratch.file("bin/sh", "");
  EXPECT_THAT(program("url: r/i:1"),
              HasSubstr("hypervisor.qemu.path is '/bin/sh', which is no program of Kata's"));
  EXPECT_THAT(program("url: r/i:1"), StartsWith("fail: "));
  EXPECT_THAT(program("url: r/i:1, allowHostPaths: [/bin/sh]"), StartsWith("pass: "));
  EXPECT_THAT(program("url: \"file:///srv/gpu\""), StartsWith("pass: "));
  scratch.file(kCopy, kSettings);
  scratch.file("etc/ferry/kata/gpu/config.d/70-site.toml", "[hypervisor.qemu]\npath = \"/bin/sh\"\n");
  EXPECT_THAT(program("url: r/i:1"), StartsWith("pass: ")) << "an administrator's own";
}

TEST_F(KataChecks, LookIntoDropInsAndOtherVersionsOfContainerd) {
  scratch.file("etc/containerd/config.toml", "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
  scratch.file("etc/containerd/conf.d/kata.toml",
               "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.gpu]\n"
               "pod_annotations = [\"io.katacontainers.*\"]\n"
               "options = {ConfigPath = \"/etc/ferry/kata/gpu/configuration.toml\"}\n");
  const ClassFile file = file_of("kind: gpu");
  EXPECT_THAT(answer("annotations-pass", file), StartsWith("pass: "));
  EXPECT_THAT(answer("kata-configuration", file), StartsWith("pass: "));
}

TEST_F(KataChecks, LetNoConfidentialClassOntoAHostThatHasNone) {
  EXPECT_EQ(answer("confidential-vms"),
            "pass: KVM has neither SEV-SNP nor TDX, which matters to classes of these kinds alone");
  EXPECT_EQ(answer("confidential-class", file_of("kind: gpu")), "(none)");
  EXPECT_EQ(
      answer("confidential-class", file_of("kind: snp")),
      "fail: class gpu: this host has neither SEV-SNP nor TDX: /sys/module/kvm_amd/parameters/sev_snp is "
      "not on");
  scratch.file("sys/module/kvm_amd/parameters/sev_snp", "Y\n");
  EXPECT_EQ(answer("confidential-class", file_of("kind: snp")),
            "fail: there is no /dev/iommu, and Kata gives a confidential VM its GPUs by iommufd alone");
  scratch.file("dev/iommu", "");
  EXPECT_EQ(answer("confidential-class", file_of("kind: snp")), "pass: KVM has SEV-SNP");
  EXPECT_THAT(answer("confidential-vms"), HasSubstr("nvidia.com/cc.ready.state"));
  EXPECT_EQ(answer("confidential-class", file_of("kind: tdx")),
            "fail: class gpu: this host has SEV-SNP: /sys/module/kvm_intel/parameters/tdx is not on");
  scratch.file("sys/module/kvm_amd/parameters/sev_snp", "maybe\n");
  EXPECT_EQ(answer("confidential-class", file_of("kind: snp")),
            "unknown: /sys/module/kvm_amd/parameters/sev_snp: 'maybe' is neither Y nor N");
}

TEST_F(KataChecks, SayInWhichModeTheGpusAre) {
  const auto answer_for = [&](const ClassFile& file, const std::map<std::string, std::string>& labels) {
    const auto checks = kata_checks(host, file, ConfidentialMode::of_labels(labels));
    for (const Check& check : checks)
      if (check.id == "gpu-confidential-mode") return std::string(text(check.verdict)) + ": " + check.found;
    return std::string("(none)");
  };
  constexpr const char* kState = "nvidia.com/cc.mode.state";
  const ClassFile plain = file_of("kind: gpu");
  const ClassFile snp = file_of("kind: snp");
  EXPECT_EQ(answer_for(plain, {}), "(none)") << "nobody asks";
  EXPECT_THAT(answer_for(snp, {}),
              StartsWith("unknown: the mode of the GPUs for confidential computing is unknown"));
  EXPECT_THAT(answer_for(snp, {{kState, "off"}}), StartsWith("fail: "));
  EXPECT_THAT(answer_for(snp, {{kState, "on"}}), StartsWith("pass: "));
  EXPECT_THAT(answer_for(plain, {{kState, "off"}}), StartsWith("pass: "));
}

TEST_F(KataChecks, MissASnapshotterThatNoFileNames) {
  EXPECT_EQ(answer("snapshotter", file_of("kind: gpu")), "(none)");
  EXPECT_EQ(answer("snapshotter", file_of("snapshotter: overlayfs")), "pass: containerd has overlayfs");
  EXPECT_EQ(answer("snapshotter", file_of("snapshotter: nydus")),
            "warn: containerd's files name no snapshotter nydus");
  scratch.file("etc/containerd/config.toml",
               "version = 2\n[proxy_plugins.nydus]\ntype = \"snapshot\"\naddress = \"/run/nydus.sock\"\n");
  EXPECT_EQ(answer("snapshotter", file_of("snapshotter: nydus")), "pass: containerd has nydus");
}

// kata-deploy's classes select it, and no program writes it where NVIDIA's CC manager does not run.
TEST_F(KataChecks, MissTheLabelThatKataDeploysClassesSelect) {
  const auto answer_for = [&](const ConfidentialMode& mode) {
    for (const Check& check : kata_checks(host, {}, mode))
      if (check.id == "cc-ready-label") return std::string(text(check.verdict)) + ": " + check.found;
    return std::string("(none)");
  };
  EXPECT_EQ(answer_for(ConfidentialMode()), "(none)") << "no Node was named";
  EXPECT_EQ(answer_for(ConfidentialMode::of_labels({})),
            "warn: the node has no label nvidia.com/cc.ready.state: no pod of these classes comes here");
  EXPECT_EQ(answer_for(ConfidentialMode::of_labels({{"nvidia.com/cc.ready.state", "false"}})),
            "pass: the node has nvidia.com/cc.ready.state=false");
}

TEST_F(KataChecks, MissAFolderOfArtifacts) {
  ClassFile file = file_of("kind: gpu");
  file.classes.at(0).artifacts.url = "file:///opt/gone";
  EXPECT_EQ(answer("kata-artifacts", file), "fail: there is no /opt/gone");
  scratch.directory("opt/gone");
  EXPECT_EQ(answer("kata-artifacts", file), "pass: /opt/gone is there");
  std::filesystem::permissions(scratch.path() / "opt/gone", std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_THAT(answer("kata-artifacts", file), StartsWith("fail: /opt/gone can be written by others"));
}

class Kubelet : public testing::Test {
 protected:
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(Kubelet, CountsItsFlagsMoreThanItsFile) {
  scratch.file("proc/9/comm", "kubelet\n");
  scratch.file("proc/9/cmdline", command_line({"/kubelet", "--config", "/k.yaml",
                                               "--feature-gates=A=true,KubeletPodResourcesGet=false",
                                               "--runtime-request-timeout", "30m"}));
  scratch.file("k.yaml", "featureGates: {KubeletPodResourcesGet: true}\nruntimeRequestTimeout: 5m\n");
  const KubeletSettings settings = test::must(KubeletSettings::read(host));
  EXPECT_EQ(settings.pod_resources_get, false);
  EXPECT_EQ(settings.request_timeout, std::chrono::minutes(30));
}

TEST_F(Kubelet, MayHaveNoFile) {
  scratch.file("proc/9/comm", "kubelet\n");
  scratch.file("proc/9/cmdline", command_line({"/kubelet"}));
  scratch.file("var/lib/kubelet/config.yaml", "runtimeRequestTimeout: 5m\n");
  const KubeletSettings settings = test::must(KubeletSettings::read(host));
  EXPECT_FALSE(settings.pod_resources_get.has_value());
  EXPECT_FALSE(settings.request_timeout.has_value()) << "no flag names that file";
}

TEST_F(Kubelet, IsKnownByItsUsualFileWhenItDoesNotRun) {
  const auto none = KubeletSettings::read(host);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::not_found);
  scratch.file("var/lib/kubelet/config.yaml", "runtimeRequestTimeout: 5m\n");
  EXPECT_EQ(test::must(KubeletSettings::read(host)).request_timeout, std::chrono::minutes(5));
}

TEST(GoDuration, IsReadAsGoDoes) {
  const std::vector<std::pair<const char*, int>> durations = {{"0", 0},        {"0s", 0},      {"2m0s", 120},
                                                              {"1h15m", 4500}, {"1.5h", 5400}, {"90s", 90},
                                                              {"1500ms", 1},   {"1m1ns", 60}};
  for (const auto& [text, seconds] : durations)
    EXPECT_EQ(parse_go_duration(text), std::chrono::seconds(seconds)) << text;
  for (const char* text : {"", "5", "m", "5 m", "-5m", "5x", "1..5s", "h5", "9999999999999h", "5m5"})
    EXPECT_FALSE(parse_go_duration(text).has_value()) << text;
}

}  // namespace
}  // namespace ferry::kata
