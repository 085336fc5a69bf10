// SPDX-License-Identifier: Apache-2.0
// ferry as `k8s-kata-manager`: its flags, its environment, its pid file; 0 or 1.
#include <csignal>

#include <gmock/gmock.h>

#include "hostfs/host_fs.h"
#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using test::run_ferry_as;
using testing::HasSubstr;

constexpr const char* kDropIn = "etc/crio/crio.conf.d/60-ferry-kata.conf";
constexpr const char* kPidFile = "opt/art/k8s-kata-manager.pid";

/// A host with CRI-O's folder, which nobody reads, and an artifact that is there already.
class KataManagerProgram : public testing::Test {
 protected:
  KataManagerProgram() {
    scratch.file("opt/kata/bin/containerd-shim-kata-v2", "shim");
    scratch.file("srv/gpu/configuration.toml",
                 "[hypervisor.qemu]\npath = \"/usr/bin/qemu\"\nkernel = \"/build/vmlinuz\"\n"
                 "image = \"/build/image\"\nmachine_type = \"q35\"\ndefault_memory = 2048\n");
    scratch.file("srv/gpu/vmlinuz", "k");
    scratch.file("srv/gpu/image", "i");
    scratch.file("usr/bin/qemu", "q");
    scratch.file("etc/crio/crio.conf", "");
    scratch.file("config.yaml",
                 "artifactsDir: /opt/art\nruntimeClasses:\n"
                 "- {name: kata-nvidia-gpu, artifacts: {url: \"file:///srv/gpu\", pullSecret: \"\"}}\n"
                 "- {name: without-a-url}\n");
  }
  std::vector<std::string> environment(std::vector<std::string> more = {}) const {
    std::vector<std::string> out = {"HOST_ROOT=" + scratch.path().string(),
                                    "CONFIG_FILE=" + (scratch.path() / "config.yaml").string(),
                                    "LOAD_KERNEL_MODULES=false", "CDI_ENABLED=true", "POD_NAMESPACE=gpus"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::string text(const std::string& relative) const {
    return host.read_file(relative).value_or("there is none");
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(KataManagerProgram, InstallsIsReadyAndLeavesTheRuntimesWhenItEnds) {
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGPIPE}) {
    test::RunningProgram program("/usr/bin/k8s-kata-manager", {}, environment({"RUNTIME=crio"}));
    const std::string pid = std::to_string(program.pid());
    ASSERT_TRUE(program.until([&] { return text(kPidFile) == pid; })) << text(kPidFile);
    EXPECT_THAT(text(kDropIn), HasSubstr("[crio.runtime.runtimes.kata-nvidia-gpu]"));
    EXPECT_EQ(program.end_by(signal), 0) << signal;
    EXPECT_THAT(text(kDropIn), HasSubstr("[crio.runtime.runtimes.kata-nvidia-gpu]"));
  }
}

// Their library takes a flag alone, and with a value behind `=`; a value as a word was taken here before.
TEST_F(KataManagerProgram, TakesItsSwitchesAsNvidiasDoes) {
  const auto tried = [&](std::vector<std::string> switches, std::vector<std::string> more = {}) {
    more.push_back("HOST_ROOT=" + scratch.path().string());
    switches.insert(switches.end(), {"--runtime", "crio", "-c", "/there/is/none"});
    return run_ferry_as("k8s-kata-manager", switches, more).err;
  };
  for (const char* name : {"--cdi-enabled", "--load-kernel-modules", "-cdi-enabled"}) {
    for (const char* value : {"", "=true", "=false"})
      EXPECT_THAT(tried({std::string(name) + value}), HasSubstr("/there/is/none")) << name << value;
    for (const char* word : {"true", "false"})
      EXPECT_THAT(tried({name, word}), HasSubstr("/there/is/none")) << name << " " << word;
    EXPECT_THAT(tried({std::string(name) + "=perhaps"}), testing::Not(HasSubstr("/there/is/none"))) << name;
    EXPECT_THAT(tried({name, "perhaps"}), testing::Not(HasSubstr("/there/is/none"))) << name;
  }
  for (const char* variable : {"CDI_ENABLED", "LOAD_KERNEL_MODULES"})
    for (const char* value : {"=true", "=false", "="})
      EXPECT_THAT(tried({}, {std::string(variable) + value}), HasSubstr("/there/is/none"))
          << variable << value;
}

TEST_F(KataManagerProgram, LoadsNoModulesWhereTheFlagSaysSo) {
  using Words = std::vector<std::string>;
  for (Words words : {Words{"--load-kernel-modules=false"}, Words{"--load-kernel-modules", "false"}}) {
    words.insert(words.end(), {"--runtime", "crio"});
    test::RunningProgram program(
        "k8s-kata-manager", words,
        {"HOST_ROOT=" + scratch.path().string(), "CONFIG_FILE=" + (scratch.path() / "config.yaml").string()});
    const std::string pid = std::to_string(program.pid());
    EXPECT_TRUE(program.until([&] { return text(kPidFile) == pid; }));
    EXPECT_EQ(program.end_by(SIGTERM), 0);
  }
}

TEST_F(KataManagerProgram, IsTheOnlyOneAtWork) {
  test::RunningProgram first("k8s-kata-manager", {"--runtime", "crio"}, environment());
  const std::string pid = std::to_string(first.pid());
  ASSERT_TRUE(first.until([&] { return text(kPidFile) == pid; }));
  const auto second = run_ferry_as("k8s-kata-manager", {"--runtime", "crio"}, environment());
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("(process " + pid + ")"));
  EXPECT_EQ(text(kPidFile), pid);
  EXPECT_EQ(first.end_by(SIGTERM), 0);
}

TEST_F(KataManagerProgram, IsNotReadyWithoutItsRuntimes) {
  const auto elsewhere =
      run_ferry_as("k8s-kata-manager", {"--runtime=crio", "-c", "/there/is/none"}, environment());
  EXPECT_EQ(elsewhere.status, 1);
  EXPECT_THAT(elsewhere.err, HasSubstr("/there/is/none"));
  EXPECT_EQ(run_ferry_as("k8s-kata-manager", {"--runtime", "docker"}, environment()).status, 1);
  scratch.remove("srv/gpu/configuration.toml");
  const auto broken = run_ferry_as("k8s-kata-manager", {}, environment({"RUNTIME=crio"}));
  EXPECT_EQ(broken.status, 1) << broken.err;
  EXPECT_FALSE(host.exists(kPidFile));
  EXPECT_FALSE(host.exists(kDropIn));
}

// NVIDIA's own file has a class for each kind of host.
constexpr const char* kClassesOfNvidias =
    "artifactsDir: /opt/art\nruntimeClasses:\n"
    "- {name: kata-nvidia-gpu, artifacts: {url: \"file:///srv/gpu\", pullSecret: \"\"}}\n"
    "- name: kata-nvidia-gpu-snp\n  nodeSelector: {nvidia.com/cc.capable: \"true\"}\n"
    "  artifacts: {url: \"file:///srv/snp\", pullSecret: \"\"}\n";

TEST_F(KataManagerProgram, IsReadyWithoutTheClassesThatTheHostCannotHave) {
  scratch.file("config.yaml", kClassesOfNvidias);
  {
    test::RunningProgram program("k8s-kata-manager", {}, environment({"RUNTIME=crio"}),
                                 scratch.path() / "printed");
    const std::string pid = std::to_string(program.pid());
    ASSERT_TRUE(program.until([&] { return text(kPidFile) == pid; })) << text("printed");
    EXPECT_EQ(program.end_by(SIGTERM), 0);
  }
  EXPECT_THAT(text("printed"), HasSubstr("kata-nvidia-gpu-snp: refused: "));
  EXPECT_THAT(text(kDropIn), testing::AllOf(HasSubstr("[crio.runtime.runtimes.kata-nvidia-gpu]"),
                                            testing::Not(HasSubstr("kata-nvidia-gpu-snp"))));
  // What may not be done is not done in part.
  scratch.remove(kDropIn);
  scratch.file("srv/theirs.conf", "");
  scratch.link(kDropIn, "/srv/theirs.conf");
  const auto refused = run_ferry_as("k8s-kata-manager", {}, environment({"RUNTIME=crio"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("is a link to /srv/theirs.conf"));
}

TEST_F(KataManagerProgram, IsNotReadyOnAHostThatCanHaveNoneOfItsClasses) {
  scratch.file("config.yaml",
               "artifactsDir: /opt/art\nruntimeClasses:\n"
               "- {name: kata-nvidia-gpu-snp, artifacts: {url: \"file:///srv/snp\", pullSecret: \"\"}}\n");
  const auto refused = run_ferry_as("k8s-kata-manager", {}, environment({"RUNTIME=crio"}));
  EXPECT_EQ(refused.status, 1) << refused.err;
  EXPECT_FALSE(host.exists(kPidFile));
}

TEST_F(KataManagerProgram, ReadsPullSecretsWhereTheyAreMounted) {
  scratch.file("config.yaml",
               "artifactsDir: /opt/art\nruntimeClasses:\n"
               "- {name: kata-nvidia-gpu, artifacts: {url: \"127.0.0.1:1/kata:1\", pullSecret: pull}}\n");
  const std::string folder = (scratch.path() / "secrets").string();
  const auto missing =
      run_ferry_as("k8s-kata-manager", {"--runtime", "crio"}, environment({"PULL_SECRETS=" + folder}));
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr(folder + "/pull is not there"));
}

TEST_F(KataManagerProgram, TakesPathsForThoseOfTheHostSaveOnesInsideItsContainer) {
  scratch.remove("etc/crio");
  scratch.file("etc/containerd/config.toml", "version = 2\n");
  const auto inside =
      run_ferry_as("k8s-kata-manager", {},
                   environment({"RUNTIME=containerd", "CONTAINERD_CONFIG=/runtime/config-dir/config.toml"}));
  EXPECT_EQ(inside.status, 1) << "a tree without a daemon, whose version is not known";
  EXPECT_THAT(inside.err,
              testing::AllOf(HasSubstr("is inside a container"), HasSubstr("containerd was not found")));
  const auto elsewhere =
      run_ferry_as("k8s-kata-manager", {"--containerd-config", "/srv/containerd.toml"}, environment());
  EXPECT_EQ(elsewhere.status, 1);
  EXPECT_THAT(elsewhere.err, HasSubstr("containerd was not found"));
}

}  // namespace
}  // namespace ferry::cli
