// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/class_file.h"

#include <ostream>

#include <gmock/gmock.h>

#include "kata-manager/artifacts/fetch_request.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::StartsWith;

Result<ClassFile> read(const std::string& text, Reading how = Reading::strict) {
  return read_classes({.file = "k.yaml", .text = text, .first_line = 1, .one_line = false}, how);
}

ClassFile file_of(const std::string& text, Reading how = Reading::strict) {
  return test::must(read(text, how));
}

// A file of NVIDIA's with all the keys that it has.
constexpr const char* kNvidias =
    "artifactsDir: /opt/artifacts/\n"
    "runtimeClasses:\n"
    "- name: kata-nvidia-gpu\n"
    "  artifacts:\n"
    "    url: registry.example:5000/kata/gpu:1@sha256:00\n"
    "    pullSecret: \"\"\n"
    "- name: kata-nvidia-gpu-snp\n"
    "  nodeSelector:\n"
    "    nvidia.com/cc.capable: \"true\"\n"
    "  artifacts: {url: \"registry.example/kata/gpu:1-snp\", pullSecret: pull.secret}\n";

TEST(ClassFile, IsNvidiasAsItIs) {
  for (const Reading how : {Reading::strict, Reading::lenient}) {
    const ClassFile file = file_of(kNvidias, how);
    EXPECT_EQ(file.artifacts_dir, "/opt/artifacts/");
    ASSERT_THAT(file.classes, SizeIs(2));
    const KataClass& plain = file.classes[0];
    EXPECT_EQ(plain.name, "kata-nvidia-gpu");
    EXPECT_EQ(plain.kind, KataKind::gpu);
    EXPECT_EQ(plain.artifacts.url, "registry.example:5000/kata/gpu:1@sha256:00");
    EXPECT_EQ(plain.artifacts.pull_secret, "");
    EXPECT_FALSE(plain.artifacts.folder());
    EXPECT_FALSE(plain.node_selector);
    EXPECT_EQ(plain.place, "k.yaml:3");
    EXPECT_THAT(plain.handlers(), ElementsAre("kata-nvidia-gpu"));
    const KataClass& snp = file.classes[1];
    EXPECT_EQ(snp.kind, KataKind::snp) << "by its name";
    EXPECT_THAT(snp.node_selector.value_or(std::map<std::string, std::string>{}),
                ElementsAre(Pair("nvidia.com/cc.capable", "true")));
    EXPECT_EQ(snp.artifacts.pull_secret, "pull.secret");
    EXPECT_TRUE(file.load_modules);
    EXPECT_EQ(file.restart.how, RuntimeRestart::How::unit);
    EXPECT_FALSE(file.runtime.unit);
    EXPECT_THAT(file.warnings, IsEmpty());
  }
}

TEST(ClassFile, MayHoldNothing) {
  for (const char* text : {"", "{}", "artifactsDir: /opt/nvidia-gpu-operator/artifacts/runtimeclasses\n",
                           "runtimeClasses:\n", "runtimeClasses: []\n", "version: v2\n"}) {
    const ClassFile file = file_of(text);
    EXPECT_EQ(file.artifacts_dir, ClassFile::kArtifactsDir) << text;
    EXPECT_THAT(file.classes, IsEmpty()) << text;
  }
}

TEST(ClassFile, MayBeJson) {
  const ClassFile file =
      file_of(R"({"runtimeClasses": [{"name": "a", "artifacts": {"url": "r/i:1"}, "nodeSelector": null}]})");
  EXPECT_EQ(file.classes.at(0).artifacts.url, "r/i:1");
}

TEST(ClassFile, IsReadLenientlyAsNvidiasProgramDoes) {
  const ClassFile file = file_of(
      "version: v1\n"
      "artifactDir: /x\n"
      "runtimeClasses:\n"
      "- artifacts: {url: r/i:1}\n"
      "- {name: \"\", artifacts: {url: r/i:1}}\n"
      "- {name: a}\n"
      "- {name: b, artifacts: {}}\n"
      "- {name: c, artifacts: {url: \"\"}}\n"
      "- {name: d, kind: mdev, artifacts: {url: r/i:1, digest: x}}\n"
      "- {name: e, artifacts: {url: r/i:2}}\n"
      "- {name: d, artifacts: {url: r/i:3}}\n",
      Reading::lenient);
  ASSERT_THAT(file.classes, SizeIs(2));
  EXPECT_EQ(file.classes[0].name, "e");
  EXPECT_EQ(file.classes[1].artifacts.url, "r/i:3");
  EXPECT_THAT(
      file.warnings,
      ElementsAre("k.yaml:1: version: unknown key; it is not read",
                  "k.yaml:2: artifactDir: unknown key; it is not read",
                  "k.yaml:4: runtimeClasses[0]: a class without a name is dropped",
                  "k.yaml:5: runtimeClasses[1]: a class without a name is dropped",
                  "k.yaml:6: runtimeClasses[2]: a class without a URL is dropped",
                  "k.yaml:7: runtimeClasses[3]: a class without a URL is dropped",
                  "k.yaml:8: runtimeClasses[4]: a class without a URL is dropped",
                  "k.yaml:9: runtimeClasses[5].kind: unknown key; it is not read",
                  "k.yaml:9: runtimeClasses[5].artifacts.digest: unknown key; it is not read",
                  "k.yaml:11: runtimeClasses[7]: the handler d is there already, at k.yaml:9; the last "
                  "one counts"));
}

TEST(ClassFile, IsStrictInOursWhateverIsAskedFor) {
  EXPECT_FALSE(read("version: v2\nruntimeClasses: [{name: a}]\n", Reading::lenient));
  EXPECT_FALSE(read("version: v2\nartifactDir: /x\n", Reading::lenient));
}

TEST(ClassFile, LetsSetUserIdFilesInOnlyWhereItSaysSo) {
  const auto asked = [](const std::string& artifacts) {
    const ClassFile file =
        test::must(read("version: v2\nruntimeClasses:\n- {name: a, artifacts: {" + artifacts + "}}\n"));
    const test::ScratchDirectory scratch;
    return test::must(fetch_request(HostFs(scratch.path()), {}, file, file.classes.front())).allow_setuid;
  };
  EXPECT_FALSE(asked("url: r/i:1"));
  EXPECT_FALSE(asked("url: r/i:1, allowSetuid: false"));
  EXPECT_TRUE(asked("url: r/i:1, allowSetuid: true"));
  // NVIDIA's file has no such key.
  const std::string theirs = "runtimeClasses:\n- {name: a, artifacts: {url: r/i:1, allowSetuid: true}}\n";
  EXPECT_FALSE(read(theirs));
  EXPECT_FALSE(test::must(read(theirs, Reading::lenient)).classes.front().artifacts.allow_setuid);
}

TEST(ClassFile, AllowsAnArtifactPathsOfTheHostOnlyByTheirNames) {
  const auto read_with = [](const std::string& paths) {
    return read("version: v2\nruntimeClasses:\n- {name: a, artifacts: {url: r/i:1, allowHostPaths: " + paths +
                "}}\n");
  };
  const auto allowed = test::must(read_with("[/usr/bin/qemu-system-x86_64, \"*\"]"));
  EXPECT_THAT(allowed.classes.front().artifacts.allow_host_paths,
              ElementsAre("/usr/bin/qemu-system-x86_64", "*"));
  for (const char* path : {"usr/bin/qemu", "/usr/../bin/qemu", "\"\"", "\"/a\\tb\""}) {
    const auto refused = read_with("[" + std::string(path) + "]");
    ASSERT_FALSE(refused) << path;
    EXPECT_THAT(refused.error().message,
                StartsWith("k.yaml:3: runtimeClasses[0].artifacts.allowHostPaths[0]: "
                           "expected an absolute path of the host, or *, found"));
  }
  EXPECT_FALSE(read("runtimeClasses:\n- {name: a, artifacts: {url: r/i:1, allowHostPaths: [/b]}}\n"))
      << "NVIDIA's file has no such key";
}

class ExampleFile : public testing::Test {
 protected:
  ClassFile file = test::must(read_class_file(FERRY_SOURCE_DIR "/configs/kata/classes.yaml"));
};

TEST_F(ExampleFile, HasEveryKindUnderBothNames) {
  std::vector<std::string> handlers;
  for (const KataClass& kata : file.classes)
    for (const std::string& handler : kata.handlers()) handlers.push_back(handler);
  EXPECT_THAT(handlers, ElementsAre("kata-nvidia-gpu", "kata-qemu-nvidia-gpu", "kata-nvidia-vgpu",
                                    "kata-nvidia-gpu-snp", "kata-qemu-nvidia-gpu-snp", "kata-nvidia-gpu-tdx",
                                    "kata-qemu-nvidia-gpu-tdx"));
  EXPECT_THAT(file.classes,
              ElementsAre(Field(&KataClass::kind, KataKind::gpu), Field(&KataClass::kind, KataKind::vgpu),
                          Field(&KataClass::kind, KataKind::snp), Field(&KataClass::kind, KataKind::tdx)));
}

TEST_F(ExampleFile, SaysWhatAClassIsMadeOf) {
  const KataClass gpu = test::must(select_class(file, "kata-qemu-nvidia-gpu"));
  EXPECT_EQ(gpu.name, "kata-nvidia-gpu");
  EXPECT_THAT(gpu.overhead.value_or(std::map<std::string, std::string>{}),
              ElementsAre(Pair("cpu", "1"), Pair("memory", "18432Mi")));
  EXPECT_THAT(gpu.annotations, ElementsAre("default_vcpus"));
  const TomlValue* memory = find(gpu.configuration, {"hypervisor", "qemu", "default_memory"});
  EXPECT_TRUE(memory != nullptr && *memory == TomlValue{std::int64_t{16384}});
  const KataClass vgpu = test::must(select_class(file, "kata-nvidia-vgpu"));
  EXPECT_EQ(vgpu.artifacts.folder().value_or(""), "/opt/kata-vgpu");
  EXPECT_EQ(vgpu.artifacts.configuration, "configuration-qemu.toml");
  EXPECT_EQ(vgpu.shim.value_or(""), "/opt/kata/bin/containerd-shim-kata-v2");
  EXPECT_EQ(file.classes.at(2).snapshotter.value_or(""), "nydus");
}

TEST(ClassFile, TakesEachFormOfAProxysAddress) {
  for (const char* const address :
       {"http://proxy.example", "https://proxy_1.example:3128/", "http://user:p%40ss@10.0.0.1:3128",
        "http://[fd00::1]:3128", "http://a@b@proxy.example/path?x"}) {
    const ClassFile file = file_of(std::string("version: v2\npull: {proxy: \"") + address + "\"}\n");
    EXPECT_EQ(file.pull.proxy, address);
  }
}

TEST_F(ExampleFile, SaysHowTheNodeIs) {
  EXPECT_EQ(file.artifacts_dir, "/opt/ferry/kata");
  EXPECT_EQ(file.runtime.name.value_or(""), "containerd");
  EXPECT_EQ(file.runtime.configuration.value_or(""), "/etc/containerd/config.toml");
  EXPECT_EQ(file.runtime.socket.value_or(""), "/run/containerd/containerd.sock");
  EXPECT_EQ(file.runtime.unit.value_or(""), "containerd.service");
  EXPECT_EQ(file.pull.proxy, "http://proxy.example:3128");
  EXPECT_THAT(file.pull.no_proxy, ElementsAre("registry.example", ".cluster.local"));
  EXPECT_THAT(file.pull.mirrors,
              ElementsAre(Pair("docker.io", ElementsAre("https://mirror.example", "http://localhost:5000"))));
  EXPECT_EQ(file.pull.certificates.value_or(""), "/etc/ssl/certs/ca-certificates.crt");
}

TEST(ClassFile, SaysTheRestOfANode) {
  const ClassFile file = file_of(
      "version: v2\n"
      "runtime: {name: cri-o, config: /etc/crio/crio.conf.d}\n"
      "restart: {command: [/usr/bin/restart, \"\", \"a b\"]}\n"
      "loadModules: false\n"
      "podResources: \"\"\n"
      "pull: {dockerConfig: /root/.docker/config.json}\n");
  EXPECT_EQ(file.runtime.name.value_or(""), "cri-o");
  EXPECT_EQ(file.runtime.configuration.value_or(""), "/etc/crio/crio.conf.d");
  EXPECT_FALSE(file.runtime.unit);
  EXPECT_EQ(file.restart.how, RuntimeRestart::How::command);
  EXPECT_THAT(file.restart.command, ElementsAre("/usr/bin/restart", "", "a b"));
  EXPECT_FALSE(file.load_modules);
  EXPECT_EQ(file.pod_resources, "");
  EXPECT_EQ(file.pull.docker_configuration.value_or(""), "/root/.docker/config.json");
  EXPECT_EQ(file_of("version: v2\nrestart: none\n").restart.how, RuntimeRestart::How::none);
  EXPECT_EQ(file_of("version: v2\n").pod_resources, "/var/lib/kubelet/pod-resources/kubelet.sock");
}

TEST(ClassFile, TakesSettingsOfKataOfEveryType) {
  const ClassFile file = file_of(
      "version: v2\n"
      "runtimeClasses:\n"
      "- name: a\n"
      "  artifacts: {url: r/i:1}\n"
      "  configuration:\n"
      "    hypervisor: {qemu: {a: true, b: 7, c: \"010\", d: [x, -1], e: 0.5, f: {g: \"\"}}}\n"
      "    runtime: {h: text}\n");
  const TomlTable expected = test::must(
      parse_toml("[hypervisor.qemu]\na = true\nb = 7\nc = \"010\"\nd = [\"x\", -1]\ne = 0.5\nf = {g = \"\"}\n"
                 "[runtime]\nh = \"text\"\n",
                 "expected"));
  EXPECT_EQ(file.classes.at(0).configuration, expected);
}

TEST(ClassFile, ComesInAConfigMap) {
  const test::ScratchDirectory scratch;
  scratch.file(
      "map.yaml",
      "kind: ConfigMap\ndata:\n  config.yaml: |\n    runtimeClasses:\n    - name: a\n      artifacts: "
      "{url: r/i:1}\n");
  const ClassFile file = test::must(read_class_file(scratch.path() / "map.yaml"));
  EXPECT_EQ(file.classes.at(0).place, (scratch.path() / "map.yaml:5").string());
  scratch.file("secret.yaml", "kind: Secret\n");
  const auto other = read_class_file(scratch.path() / "secret.yaml");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message,
              testing::EndsWith("secret.yaml:1: kind: expected a ConfigMap or a class file, found the string "
                                "'Secret'"));
}

TEST(ClassFile, NamesItsClassesToWhoAsksForAnother) {
  const auto missing = select_class(file_of(kNvidias), "kata-nvidia-gpus");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::invalid_config);
  EXPECT_EQ(missing.error().message,
            "k.yaml: holds no class 'kata-nvidia-gpus'; did you mean 'kata-nvidia-gpu'?");
  EXPECT_EQ(missing.error().hint, "it holds: kata-nvidia-gpu, kata-nvidia-gpu-snp");
}

struct BadClasses {
  std::string text;
  std::string message;
  std::string hint = {};
};
void PrintTo(const BadClasses& row, std::ostream* out) {
  *out << row.text;
}

class BadClassFile : public testing::TestWithParam<BadClasses> {};

TEST_P(BadClassFile, IsRefusedWithPlaceKeyAndReason) {
  const auto file = read(GetParam().text);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Errc::invalid_config);
  EXPECT_EQ(file.error().message, GetParam().message);
  if (!GetParam().hint.empty()) {
    EXPECT_EQ(file.error().hint, GetParam().hint);
  }
}

/// A file of ours with one class, from its keys.
std::string ours(const std::string& keys) {
  return "version: v2\nruntimeClasses:\n- {name: a, artifacts: {url: r/i:1}, " + keys + "}\n";
}
std::string with_url(const std::string& url) {
  return "runtimeClasses: [{name: a, artifacts: {url: \"" + url + "\"}}]\n";
}

INSTANTIATE_TEST_SUITE_P(
    Top, BadClassFile,
    testing::Values(
        BadClasses{"- a\n", "k.yaml:1: expected a map with runtimeClasses, found a list"},
        BadClasses{"a: [\n", "k.yaml:1: not readable as YAML: end of sequence flow not found"},
        BadClasses{"version: v1\n", "k.yaml:1: version: expected v2, found the string 'v1'",
                   "NVIDIA's file has no such key"},
        BadClasses{"version: 2\n", "k.yaml:1: version: expected v2, found 2"},
        BadClasses{"version: v2\nversion: v2\n",
                   "k.yaml:2: version: the key stands twice, first at k.yaml:1"},
        BadClasses{"runtimeClass: []\n",
                   "k.yaml:1: runtimeClass: unknown key; did you mean 'runtimeClasses'?",
                   "known here: artifactsDir, runtimeClasses"},
        BadClasses{"loadModules: true\n", "k.yaml:1: loadModules: NVIDIA's file has no such key",
                   "begin the file with 'version: v2'"},
        BadClasses{"artifactsDir: opt\n",
                   "k.yaml:1: artifactsDir: expected an absolute path without '..', found the string 'opt'"},
        BadClasses{"artifactsDir: /opt/../etc\n",
                   "k.yaml:1: artifactsDir: expected an absolute path without '..', found the string "
                   "'/opt/../etc'"},
        BadClasses{
            "artifactsDir: \"/a\\nb\"\n",
            "k.yaml:1: artifactsDir: expected an absolute path without '..', found the string '/a\nb'"},
        BadClasses{"runtimeClasses: {a: b}\n",
                   "k.yaml:1: runtimeClasses: expected a list of classes, found a map"},
        BadClasses{
            "runtimeClasses: [a]\n",
            "k.yaml:1: runtimeClasses[0]: expected a map with name and artifacts, found the string 'a'"},
        BadClasses{"version: v2\ncontainerd: {}\n", "k.yaml:2: containerd: unknown key"},
        BadClasses{"version: v2\nruntime: docker\n",
                   "k.yaml:2: runtime: expected a map, found the string 'docker'"},
        BadClasses{"version: v2\nruntime: {name: crio}\n",
                   "k.yaml:2: runtime.name: there is no container runtime crio; did you mean 'cri-o'?",
                   "one of containerd, cri-o, k0s, k3s, microk8s, rke2"},
        BadClasses{"version: v2\nruntime: {confg: /a}\n",
                   "k.yaml:2: runtime.confg: unknown key; did you mean 'config'?"},
        BadClasses{"version: v2\nruntime: {socket: a}\n",
                   "k.yaml:2: runtime.socket: expected an absolute path without '..', found the string 'a'"},
        BadClasses{"version: v2\nloadModules: yes\n",
                   "k.yaml:2: loadModules: expected true or false, found yes"},
        BadClasses{"version: v2\nrestart: always\n",
                   "k.yaml:2: restart: expected a way to restart, found the string 'always'",
                   "write none, {unit: containerd.service} or {command: [/PROGRAM, ARGUMENT]}"},
        BadClasses{"version: v2\nrestart: {}\n", "k.yaml:2: restart: expected one way to restart"},
        BadClasses{"version: v2\nrestart: {unit: a.service, command: [/b]}\n",
                   "k.yaml:2: restart: expected one way to restart"},
        BadClasses{"version: v2\nrestart: {unit: containerd}\n",
                   "k.yaml:2: restart.unit: expected the name of a service, UNIT.service, found the string "
                   "'containerd'"},
        BadClasses{"version: v2\nrestart: {unit: a/b.service}\n",
                   "k.yaml:2: restart.unit: expected the name of a service, UNIT.service, found the string "
                   "'a/b.service'"},
        BadClasses{"version: v2\nrestart: {command: []}\n",
                   "k.yaml:2: restart.command: expected a program's absolute path, then its arguments"},
        BadClasses{"version: v2\nrestart: {command: [systemctl, restart]}\n",
                   "k.yaml:2: restart.command: expected a program's absolute path, then its arguments"},
        BadClasses{"version: v2\npodResources: kubelet.sock\n",
                   "k.yaml:2: podResources: expected the path of the kubelet's socket, or \"\", found the "
                   "string 'kubelet.sock'"},
        BadClasses{"version: v2\npull: {proxy: proxy:3128}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string 'proxy:3128'"},
        BadClasses{"version: v2\npull: {proxy: \"http://:3128\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string 'http://:3128'"},
        BadClasses{"version: v2\npull: {proxy: \"http://proxy.example:99999\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string "
                   "'http://proxy.example:99999'"},
        BadClasses{"version: v2\npull: {proxy: \"http://proxy.example:web\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string "
                   "'http://proxy.example:web'"},
        BadClasses{"version: v2\npull: {proxy: \"http://user:100%@proxy.example:3128\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string "
                   "'http://user:100%@proxy.example:3128'"},
        BadClasses{
            "version: v2\npull: {proxy: \"http://[fd00::1\"}\n",
            "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string 'http://[fd00::1'"},
        BadClasses{"version: v2\npull: {proxy: \"http://proxy.example%00:3128\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string "
                   "'http://proxy.example%00:3128'"},
        BadClasses{"version: v2\npull: {proxy: \"http://us^er@proxy.example\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string "
                   "'http://us^er@proxy.example'"},
        BadClasses{"version: v2\npull: {proxy: \"http://user@\"}\n",
                   "k.yaml:2: pull.proxy: expected a URL, http://HOST:PORT, found the string 'http://user@'"},
        BadClasses{
            "version: v2\npull: {mirrors: {docker.io: [mirror.example]}}\n",
            "k.yaml:2: pull.mirrors.docker.io[0]: expected a URL, https://HOST or http://HOST, found the "
            "string 'mirror.example'"},
        BadClasses{"version: v2\npull: {mirrors: {docker.io/library: []}}\n",
                   "k.yaml:2: pull.mirrors.docker.io/library: expected a registry's host, as in docker.io or "
                   "host:5000"},
        BadClasses{"version: v2\npull: {noProxy: a.example}\n",
                   "k.yaml:2: pull.noProxy: expected a list, of a host or a domain each, found the string "
                   "'a.example'"}));

INSTANTIATE_TEST_SUITE_P(
    Classes, BadClassFile,
    testing::Values(
        BadClasses{"runtimeClasses: [{artifacts: {url: r}}]\n",
                   "k.yaml:1: runtimeClasses[0].name: the key is missing"},
        BadClasses{"runtimeClasses: [{name: \"\", artifacts: {url: r}}]\n",
                   "k.yaml:1: runtimeClasses[0].name: expected the name of a handler, a DNS label, found the "
                   "string ''"},
        BadClasses{"runtimeClasses: [{name: Kata, artifacts: {url: r}}]\n",
                   "k.yaml:1: runtimeClasses[0].name: expected the name of a handler, a DNS label, found the "
                   "string 'Kata'"},
        BadClasses{"runtimeClasses: [{name: ../a, artifacts: {url: r}}]\n",
                   "k.yaml:1: runtimeClasses[0].name: expected the name of a handler, a DNS label, found the "
                   "string '../a'"},
        BadClasses{"runtimeClasses: [{name: 1, artifacts: {url: r}}]\n",
                   "k.yaml:1: runtimeClasses[0].name: expected the name of a handler, a DNS label, found 1",
                   "put it in quotes: \"1\""},
        BadClasses{"runtimeClasses: [{name: a}]\n",
                   "k.yaml:1: runtimeClasses[0].artifacts: the key is missing",
                   "artifacts: {url: REFERENCE}"},
        BadClasses{"runtimeClasses: [{name: a, artifacts: r/i:1}]\n",
                   "k.yaml:1: runtimeClasses[0].artifacts: expected a map, found the string 'r/i:1'"},
        BadClasses{"runtimeClasses: [{name: a, artifacts: {}}]\n",
                   "k.yaml:1: runtimeClasses[0].artifacts.url: the key is missing"},
        BadClasses{"runtimeClasses: [{name: a, artifacts: {url: r, pullSecrets: x}}]\n",
                   "k.yaml:1: runtimeClasses[0].artifacts.pullSecrets: unknown key; did you mean "
                   "'pullSecret'?"},
        BadClasses{
            "runtimeClasses: [{name: a, artifacts: {url: r, pullSecret: A/b}}]\n",
            "k.yaml:1: runtimeClasses[0].artifacts.pullSecret: expected the name of a Secret, found the "
            "string 'A/b'"},
        BadClasses{
            with_url(""),
            "k.yaml:1: runtimeClasses[0].artifacts.url: expected an OCI reference or file:///DIR, found "
            "the string ''"},
        BadClasses{with_url("a b"), "k.yaml:1: runtimeClasses[0].artifacts.url: 'a b' has a blank in it"},
        BadClasses{with_url("https://r/i:1"),
                   "k.yaml:1: runtimeClasses[0].artifacts.url: 'https://r/i:1' is no reference",
                   "an OCI reference has no scheme: registry.example/kata-gpu:1; a folder is file:///DIR"},
        BadClasses{
            with_url("file://opt/kata"),
            "k.yaml:1: runtimeClasses[0].artifacts.url: 'file://opt/kata' names no folder of this host"},
        BadClasses{with_url("file:///opt/../etc"),
                   "k.yaml:1: runtimeClasses[0].artifacts.url: 'file:///opt/../etc' names no folder of this "
                   "host"},
        BadClasses{"runtimeClasses: [{name: a, artifacts: {url: r}, nodeSelector: {a: true}}]\n",
                   "k.yaml:1: runtimeClasses[0].nodeSelector.a: expected the value of a label, found true",
                   "put it in quotes: \"true\""},
        BadClasses{"runtimeClasses: [{name: a, artifacts: {url: r}, nodeSelector: {a/b/c: d}}]\n",
                   "k.yaml:1: runtimeClasses[0].nodeSelector.a/b/c: this is not the name of a label"},
        BadClasses{"runtimeClasses: [{name: a, artifacts: {url: r}, kind: gpu}]\n",
                   "k.yaml:1: runtimeClasses[0].kind: NVIDIA's file has no such key",
                   "begin the file with 'version: v2'"},
        BadClasses{"runtimeClasses:\n- {name: a, artifacts: {url: r}}\n- {name: a, artifacts: {url: s}}\n",
                   "k.yaml:3: runtimeClasses[1].name: the handler a is there already, at k.yaml:2"},
        BadClasses{ours("aliases: [b, a]"), "k.yaml:3: runtimeClasses[0].aliases: 'a' stands twice"},
        BadClasses{ours("aliases: [b]") + "- {name: b, artifacts: {url: r}}\n",
                   "k.yaml:4: runtimeClasses[1].name: the handler b is there already, at k.yaml:3"},
        BadClasses{ours("aliases: [b]") + "- {name: c, artifacts: {url: r}, aliases: [b]}\n",
                   "k.yaml:4: runtimeClasses[1].name: the handler b is there already, at k.yaml:3"},
        BadClasses{
            ours("aliases: [\"b/\"]"),
            "k.yaml:3: runtimeClasses[0].aliases[0]: expected the name of a handler, a DNS label, found "
            "the string 'b/'"},
        BadClasses{"version: v2\nruntimeClasses:\n- {name: a, artifacts: {url: r, allowSetuid: 1}}\n",
                   "k.yaml:3: runtimeClasses[0].artifacts.allowSetuid: expected true or false, found 1"},
        BadClasses{
            "version: v2\nruntimeClasses:\n- {name: a, artifacts: {url: r, allowHostPaths: /b}}\n",
            "k.yaml:3: runtimeClasses[0].artifacts.allowHostPaths: expected a list, of an absolute path "
            "of the host, or * each, found the string '/b'"},
        BadClasses{ours("kind: gpus"),
                   "k.yaml:3: runtimeClasses[0].kind: expected one of gpu, vgpu, snp, tdx, found the string "
                   "'gpus'; did you mean 'gpu'?"},
        BadClasses{
            ours("kind: mdev"),
            "k.yaml:3: runtimeClasses[0].kind: Kata gives a VM that starts the whole GPU in place of its "
            "mediated device",
            "vgpu is for virtual functions that carry a vGPU; mediated devices go to KubeVirt"},
        BadClasses{
            ours("overhead: {memory: 8 GiB}"),
            "k.yaml:3: runtimeClasses[0].overhead.memory: expected a quantity such as 10240Mi or 1, found "
            "the string '8 GiB'"},
        BadClasses{ours("overhead: {a b: 1}"),
                   "k.yaml:3: runtimeClasses[0].overhead.a b: this is not the name of a resource"},
        BadClasses{ours("overhead: 1"), "k.yaml:3: runtimeClasses[0].overhead: expected a map, found 1"},
        BadClasses{ours("snapshotter: a b"),
                   "k.yaml:3: runtimeClasses[0].snapshotter: expected the name of a snapshotter, found the "
                   "string 'a b'"},
        BadClasses{ours("shim: /opt/bin/kata-shim"),
                   "k.yaml:3: runtimeClasses[0].shim: the name of Kata's shim begins with "
                   "containerd-shim-kata, and by that "
                   "its sandboxes are found"},
        BadClasses{
            ours("shim: kata"),
            "k.yaml:3: runtimeClasses[0].shim: expected an absolute path without '..', found the string "
            "'kata'"},
        BadClasses{ours("annotations: [\".*\"]"),
                   "k.yaml:3: runtimeClasses[0].annotations[0]: expected the name of a hypervisor's setting, "
                   "such as default_memory, found the string '.*'"},
        BadClasses{ours("configuration: {hypervisors: {}}"),
                   "k.yaml:3: runtimeClasses[0].configuration.hypervisors: unknown key; did you mean "
                   "'hypervisor'?"},
        BadClasses{ours("configuration: {runtime: 1}"),
                   "k.yaml:3: runtimeClasses[0].configuration.runtime: expected a map, found 1"},
        BadClasses{
            ours("configuration: {hypervisor: {default_memory: 1}}"),
            "k.yaml:3: runtimeClasses[0].configuration.hypervisor.default_memory: expected a map, found 1",
            "write hypervisor: {qemu: {default_memory: 16384}}"},
        BadClasses{
            ours("configuration: {runtime: {a: 010}}"),
            "k.yaml:3: runtimeClasses[0].configuration.runtime.a: readers of YAML do not agree on what "
            "010 is",
            "put it in quotes: \"010\""},
        BadClasses{
            ours("configuration: {runtime: {a: [no]}}"),
            "k.yaml:3: runtimeClasses[0].configuration.runtime.a[0]: readers of YAML do not agree on what "
            "no is"},
        BadClasses{ours("configuration: {runtime: {a: }}"),
                   "k.yaml:3: runtimeClasses[0].configuration.runtime.a: expected a value, found nothing"},
        BadClasses{ours("labels: {nvidia.com/kata-runtime-class: \"true\"}"),
                   "k.yaml:3: runtimeClasses[0].labels: unknown key"}));

}  // namespace
}  // namespace ferry::kata
