// SPDX-License-Identifier: Apache-2.0
// ferry as `nvidia-k8s-vgpu-dm`: two programs that come and go together; its flags, its environment; 0 or 1.
// What it does at an API server is the agent's, and stands in tests/agent.
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/host_fs.h"
#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using test::run_ferry_as;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kName = "nvidia-k8s-vgpu-dm";

class K8sVgpuDm : public testing::Test {
 protected:
  K8sVgpuDm() {
    scratch_.file("sys/bus/pci/devices/.keep", "");
    scratch_.file("config/config.yaml", "version: v1\nvgpu-configs:\n  default: []\n");
    // An API server that nobody is.
    scratch_.file("kubeconfig",
                  "current-context: c\n"
                  "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
                  "clusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n"
                  "users: [{name: u, user: {token: t}}]\n");
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  std::vector<std::string> environment(std::vector<std::string> more = {}) const {
    std::vector<std::string> out = {"NODE_NAME=n1",
                                    "NAMESPACE=gpus",
                                    "CONFIG_FILE=" + path("config/config.yaml"),
                                    "DEFAULT_VGPU_CONFIG=default",
                                    "HOST_ROOT_MOUNT=" + scratch_.path().string(),
                                    "KUBECONFIG=" + path("kubeconfig")};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  bool hostd_serves() const { return host_.read_file("run/ferry/status.json").has_value(); }
  static std::vector<int> children_of(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
    return {std::istream_iterator<int>(file), {}};
  }
  static std::string command_of(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    std::stringstream text;
    text << file.rdbuf();
    std::string words = text.str();
    for (char& c : words) c = c == '\0' ? ' ' : c;
    return words;
  }
  static bool lives(int pid) { return !command_of(pid).empty(); }
  /// The child whose command holds `word`; 0: there is none.
  static int child(const test::RunningProgram& program, const std::string& word) {
    for (const int pid : children_of(program.pid()))
      if (command_of(pid).find(word) != std::string::npos) return pid;
    return 0;
  }

  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
};

TEST_F(K8sVgpuDm, IsTwoProgramsThatEndWithIt) {
  test::RunningProgram program(kName, {}, environment());
  ASSERT_TRUE(program.until([&] { return hostd_serves() && child(program, "--among-others ") != 0; }));
  const int hostd = child(program, " hostd ");
  const int agent = child(program, "--among-others ");
  EXPECT_THAT(command_of(agent),
              AllOf(HasSubstr("--node-name n1 --namespace gpus --operator-namespace gpus "),
                    HasSubstr("--config-file " + path("config/config.yaml") +
                              " --default-workload vm-vgpu --default-vgpu-config default ")));
  EXPECT_EQ(program.end_by(SIGTERM), 0);
  EXPECT_FALSE(lives(hostd));
  EXPECT_FALSE(lives(agent));
}

TEST_F(K8sVgpuDm, EndsWhenOneOfThemDoes) {
  for (const char* const word : {" hostd ", "--among-others "}) {
    test::RunningProgram program(kName, {}, environment());
    ASSERT_TRUE(
        program.until([&] { return child(program, " hostd ") != 0 && child(program, "--among") != 0; }));
    const int first = child(program, " hostd ");
    const int second = child(program, "--among-others ");
    ::kill(child(program, word), SIGKILL);
    EXPECT_EQ(program.end_by(0), 1) << word;
    EXPECT_FALSE(lives(first));
    EXPECT_FALSE(lives(second));
  }
}

TEST_F(K8sVgpuDm, TakesItsFlagsWithOneDashOrTwo) {
  scratch_.file("clients.yaml", "version: v1\nsystemd-services: [nvidia-dcgm.service, nvsm.service]\n");
  test::RunningProgram program(kName, {"-node-name=n2",
                                       "-ns",
                                       "other",
                                       "-f",
                                       path("config/config.yaml"),
                                       "--default-vgpu-config",
                                       "d",
                                       "-m",
                                       scratch_.path().string(),
                                       "--kubeconfig",
                                       path("kubeconfig"),
                                       "-w",
                                       "-gpu-clients-file",
                                       path("clients.yaml"),
                                       "-o",
                                       "x",
                                       "-k",
                                       "y",
                                       "-a",
                                       "z",
                                       "--with-reboot"});
  ASSERT_TRUE(program.until([&] { return child(program, "--among-others ") != 0; }));
  EXPECT_THAT(command_of(child(program, "--among-others ")),
              AllOf(HasSubstr("--node-name n2 --namespace other "),
                    HasSubstr("--release nvidia-dcgm.service --release nvsm.service ")));
  EXPECT_EQ(program.end_by(SIGTERM), 0);
}

TEST_F(K8sVgpuDm, SaysWhatIsWrong) {
  EXPECT_THAT(run_ferry_as(kName, {}).err, HasSubstr("--node-name is required"));
  const auto said = [&](const std::string& clients) {
    scratch_.file("clients.yaml", clients);
    const auto result = run_ferry_as(kName, {"-w", "-g", path("clients.yaml")}, environment());
    EXPECT_EQ(result.status, 1);
    return result.err;
  };
  EXPECT_THAT(said("version: v1\nsystemd-service: []\n"),
              AllOf(HasSubstr("clients.yaml:2: "), HasSubstr("systemd-services")));
  EXPECT_THAT(said("systemd-services: x\n"), HasSubstr("clients.yaml:1: systemd-services: "));
  EXPECT_THAT(said("systemd-services:\n- [x]\n"), HasSubstr("clients.yaml:2: systemd-services: "));
  EXPECT_THAT(run_ferry_as(kName, {"-w", "-g", "/nowhere.yaml"}, environment()).err,
              HasSubstr("/nowhere.yaml"));
}

}  // namespace
}  // namespace ferry::cli
