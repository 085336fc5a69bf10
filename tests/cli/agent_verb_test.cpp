// SPDX-License-Identifier: Apache-2.0
// `ferry agent --once` as a user calls it.
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/host_files.h"
#include "api/files.h"
#include "api/host_status.h"
#include "hostfs/host_fs.h"
#include "hostfs/locks.h"
#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::run_ferry;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class AgentVerb : public testing::Test {
 protected:
  AgentVerb() {
    scratch_.file("policies.yaml",
                  "version: v2\npolicies:\n"
                  "  render-mix: [{devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 4}}]\n");
    node("nvidia.com/vgpu.config: render-mix");
  }
  void node(const std::string& labels) const {
    scratch_.file("node.yaml", "kind: Node\nmetadata:\n  name: gpu-7\n  labels: {" + labels + "}\n");
  }
  test::ProgramResult agent(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "--host-root", scratch_.path().string(), "agent",    "--once",
        "--node-file", path("node.yaml"),        "--config", path("policies.yaml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ferry(arguments);
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  std::string content(const std::string& name) const { return host_.read_file(name).value_or("(none)"); }
  void answer(const std::string& phase, const std::string& accelerator = "") const {
    const auto desired = json::parse(content("var/lib/ferry/desired.json"));
    scratch_.file("run/ferry/status.json", R"({"version": 2, "desired": {"generation": )" +
                                               desired.at("generation").dump() + R"(}, "phase": ")" + phase +
                                               R"(", "accelerators": [)" + accelerator +
                                               R"(], "unavailable": []})");
  }
  test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
};

constexpr const char* kDivided =
    R"({"address": "0000:02:00.0", "mode": "vgpu", "desired": "vgpu", "state": "ready", "users": [],
        "vgpus": [{"id": "0000:02:00.4", "type": "L40S-12Q"}]})";

TEST_F(AgentVerb, AsksTheHostAndSaysWhatItAnswers) {
  const auto asked = agent({"--explain"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_EQ(asked.out,
            "node gpu-7: policy render-mix, by label nvidia.com/vgpu.config=render-mix\n"
            "state: pending\n"
            "  ferry hostd does not run, so nothing is applied now; `ferry hostd --once` applies it once\n"
            "/var/lib/ferry/desired.json: written, generation 1\n"
            "  because label nvidia.com/vgpu.config=render-mix\n"
            "KIND   NAME                          CURRENT  DESIRED\n"
            "label  gpu-ferry.io/state            -        pending\n"
            "label  nvidia.com/vgpu.config.state  -        pending\n");
  const auto desired = json::parse(content("var/lib/ferry/desired.json"));
  EXPECT_EQ(desired.at("config"), content("policies.yaml"));

  answer("ready", kDivided);
  const auto done = agent({"-o", "json"});
  EXPECT_EQ(done.status, 0) << done.err;
  const auto document = json::parse(done.out);
  EXPECT_EQ(document.at("state"), "ready");
  EXPECT_EQ(document.at("labels"),
            json({{"gpu-ferry.io/state", "ready"}, {"nvidia.com/vgpu.config.state", "success"}}));
  EXPECT_EQ(document.at("annotations"), json::object());
  EXPECT_EQ(document.at("events").at(0).at("reason"), "Ready");
  EXPECT_EQ(document.at("desired_file").at("action"), "kept");
  EXPECT_EQ(document.at("desired_state").at("kind"), "policy");
}

TEST_F(AgentVerb, SaysWhichNodeHasTheLeaseUntilItIsDone) {
  constexpr const char* kAbsent = "ferry hostd does not run, so nothing is applied now";
  constexpr const char* kApplies = "ferry hostd applies this now";
  EXPECT_THAT(agent({"--dry-run"}).out, HasSubstr(kAbsent));
  {
    const auto hostd = LivenessLock::announce(host_, api::kHostdLiveness);
    ASSERT_TRUE(hostd);
    EXPECT_THAT(agent({"--dry-run"}).out, Not(AnyOf(HasSubstr(kAbsent), HasSubstr(kApplies))))
        << "it has not been asked";
    EXPECT_THAT(agent().out, HasSubstr(kApplies));
    EXPECT_EQ(json::parse(agent({"-o", "json"}).out).at("hostd_runs"), true);
    answer("blocked", kDivided);
    EXPECT_THAT(agent().out, AllOf(HasSubstr("state: blocked\n"), Not(HasSubstr(kApplies))));
  }
  EXPECT_THAT(agent().out, HasSubstr(kAbsent)) << "nor will anybody when it is let go";
  EXPECT_EQ(json::parse(agent({"-o", "json"}).out).at("hostd_runs"), false);
  answer("ready", kDivided);
  EXPECT_THAT(agent().out, AllOf(HasSubstr("state: ready\n"), Not(HasSubstr(kAbsent))));
  node("");
  EXPECT_THAT(agent().out, Not(HasSubstr(kAbsent))) << "nothing is asked for";
}

TEST_F(AgentVerb, WritesNothingWhereAnAgentServesTheNode) {
  const auto serving = InstanceLock::claim(host_, api::kAgentLock);
  ASSERT_TRUE(serving);
  const auto beside = agent();
  EXPECT_EQ(beside.status, 4);
  EXPECT_THAT(beside.err, AllOf(HasSubstr("/var/lib/ferry/agent.lock: a ferry agent serves this node"),
                                HasSubstr("--dry-run looks all the same")));
  EXPECT_EQ(content("var/lib/ferry/desired.json"), "(none)");
  EXPECT_EQ(agent({"--dry-run"}).status, 0);
}

TEST_F(AgentVerb, PausesAndAsksInOneGo) {
  node("nvidia.com/vgpu.config: render-mix, nvidia.com/gpu.deploy.sandbox-validator: \"true\"");
  const auto document = json::parse(agent({"-o", "json"}).out);
  EXPECT_EQ(document.at("labels").at("nvidia.com/gpu.deploy.sandbox-validator"), "paused-for-gpu-ferry");
  EXPECT_EQ(document.at("desired_file").at("action"), "written");
}

TEST_F(AgentVerb, TellsWhatTheGpusAreByTheWayThatIsChosen) {
  scratch_.file("run/ferry/status.json",
                R"({"version": 2, "desired": null, "phase": "idle", "accelerators": [
                    {"address": "0000:02:00.0", "id": "10de:2330", "class": "0302", "model": "GH100 [H100]",
                     "mode": "host", "desired": null, "state": "unmanaged", "users": [], "vgpus": []}],
                    "unavailable": [], "features": {"iommu": "on", "vgpu_types": {}}})");
  const auto set = [&](const std::vector<std::string>& more) {
    auto words = more;
    words.insert(words.end(), {"-o", "json"});
    return json::parse(agent(words).out);
  };
  EXPECT_FALSE(set({}).at("labels").contains("nvidia.com/gpu.memory"));
  const json by_us = set({"--feature-labels=node"});
  EXPECT_EQ(by_us.at("labels").at("nvidia.com/gpu.memory"), "81920");
  EXPECT_TRUE(by_us.at("annotations").contains("gpu-ferry.io/feature-labels"));
  constexpr const char* kCcReady = "nvidia.com/cc.ready.state";
  EXPECT_FALSE(by_us.at("labels").contains(kCcReady)) << "its GPU is a Hopper";
  EXPECT_EQ(set({"--feature-labels=node", "--not-confidential"}).at("labels").at(kCcReady), "false");
  EXPECT_TRUE(by_us.at("node_feature").is_null());
  EXPECT_EQ(set({"--feature-labels=nfd"}).at("node_feature").at("gpu-ferry.io/iommu.mode"), "on");
  EXPECT_EQ(agent({"--feature-labels=both"}).status, 2);
  const auto by_a_file = agent({"--feature-labels=file"});
  EXPECT_EQ(by_a_file.status, 2);
  EXPECT_THAT(by_a_file.err, HasSubstr("with nfd Node Feature Discovery sets the labels"));
}

TEST_F(AgentVerb, WritesNothingTwiceNorInADryRun) {
  const auto dry = agent({"--dry-run"});
  EXPECT_THAT(dry.out, HasSubstr("desired.json: would be written, generation 1\n"));
  EXPECT_EQ(content("var/lib/ferry/desired.json"), "(none)");
  EXPECT_EQ(agent().status, 0);
  EXPECT_THAT(agent().out, Not(HasSubstr("written")));
}

TEST_F(AgentVerb, LeavesTheHostAsItIsForATypo) {
  EXPECT_EQ(agent().status, 0);
  const std::string before = content("var/lib/ferry/desired.json");
  node("nvidia.com/vgpu.config: render-mx");
  const auto typo = agent();
  EXPECT_EQ(typo.status, 2);
  EXPECT_THAT(typo.out, HasSubstr("event Warning InvalidConfig: label nvidia.com/vgpu.config=render-mx: "));
  EXPECT_THAT(typo.out, HasSubstr("label       nvidia.com/vgpu.config.state  -        failed\n"));
  EXPECT_THAT(typo.err, HasSubstr("did you mean 'render-mix'?"));
  EXPECT_EQ(content("var/lib/ferry/desired.json"), before);
}

TEST_F(AgentVerb, IsOnStandbyUntilTheNodeIsHandedOver) {
  node("nvidia.com/vgpu.config: render-mix, nvidia.com/gpu.deploy.vgpu-device-manager: \"true\"");
  const auto theirs = agent();
  EXPECT_EQ(theirs.status, 4);
  EXPECT_THAT(theirs.out,
              HasSubstr("ClusterPolicy hands it over with spec: {vgpuDeviceManager: {enabled: false}}"));
  EXPECT_EQ(content("var/lib/ferry/desired.json"), "(none)");
  EXPECT_EQ(agent({"--handed-over"}).status, 0);
  EXPECT_NE(content("var/lib/ferry/desired.json"), "(none)");
  const std::string before = content("var/lib/ferry/desired.json");
  EXPECT_EQ(agent().status, 4);
  EXPECT_EQ(content("var/lib/ferry/desired.json"), before) << "by a label alone a node is not given up";
}

TEST_F(AgentVerb, TakesDefaults) {
  node("");
  EXPECT_THAT(agent().out, HasSubstr("left as it is: no label and no default"));
  EXPECT_THAT(agent({"--default-workload", "vm-passthrough", "--release", "nvidia-dcgm", "--dry-run"}).out,
              HasSubstr("policy vm-passthrough, by default workload vm-passthrough"));
  EXPECT_THAT(agent({"--default-policy", "render-mix", "--dry-run"}).out,
              HasSubstr("policy render-mix, by default policy render-mix"));
  EXPECT_THAT(
      agent({"--default-workload", "vm-vgpu", "--default-vgpu-config", "render-mix", "--dry-run"}).out,
      HasSubstr("policy render-mix, by default workload vm-vgpu, default vGPU configuration render-mix"));
}

TEST_F(AgentVerb, BecomesTheProgramWithAllItsArguments) {
  // Whose words these are shows that it is the program that speaks: each option is one of its own by then.
  const std::string absent = path("kubeconfig");
  const auto there =
      run_ferry({"--host-root=" + scratch_.path().string(), "agent", "--node-name=n1", "--namespace=gpus",
                 "--config-map=a", "--config-map=b", "--config-file=f", "--operator-namespace=op",
                 "--context=c", "--default-policy=p", "--release=nvidia-dcgm", "--max-unavailable=3",
                 "--drain", "--log-level=error", "--kubeconfig=" + absent});
  EXPECT_EQ(there.status, 2);
  EXPECT_THAT(there.err, AllOf(HasSubstr("ferry-agent: "), HasSubstr(absent)));
  EXPECT_THAT(run_ferry({"agent", "--kubeconfig", absent}).err, HasSubstr("--node-name is required"));
  EXPECT_THAT(run_ferry({"agent", "--node-name", "n1", "--drain", "--drain-timeout", "10"}).err,
              HasSubstr("ferry-agent: --drain-timeout 10: that is no duration"));
  EXPECT_THAT(run_ferry({"agent", "--node-name", "n1", "--metrics-address", "node7:9417"}).err,
              HasSubstr("ferry-agent: --metrics-address: 'node7:9417' is no address to listen on"));
  EXPECT_THAT(run_ferry({"agent", "--node-name", "n1", "--metrics-key", "key.pem"}).err,
              HasSubstr("--metrics-address"));
  EXPECT_THAT(run_ferry({"agent", "--nod", "n1"}).err, HasSubstr("--nod"));
  EXPECT_THAT(run_ferry({"agent", "--node-name", "n1", "--drain", "--among-others"}).err,
              AllOf(HasSubstr("ferry: "), HasSubstr("excludes")))
      << "before the program changes";
}

TEST_F(AgentVerb, AndTheVerbForClaimsBecomesItsProgram) {
  const std::string absent = path("kubeconfig");
  const auto there = run_ferry({"--host-root=" + scratch_.path().string(), "dra", "--node-name=n1",
                                "--kubelet-dir=/data/kubelet", "--pod-uid=u", "--context=c",
                                "--log-level=error", "--kubeconfig=" + absent});
  EXPECT_EQ(there.status, 2);
  EXPECT_THAT(there.err, AllOf(HasSubstr("ferry-dra: "), HasSubstr(absent)));
  EXPECT_THAT(run_ferry({"dra", "--kubeconfig", absent}).err, HasSubstr("--node-name is required"));
  EXPECT_THAT(run_ferry({"dra", "--kubelet-dir", "kubelet"}).err,
              AllOf(HasSubstr("ferry: "), HasSubstr("no absolute path")))
      << "before the program changes";
}

// A person's programs do: see kubectl_program_test.cpp and kubevirt_cr_test.cpp.
TEST_F(AgentVerb, RunsNoProgramOfAKubeconfig) {
  scratch_.file("login", "#!/bin/sh\n: > '" + path("ran") + "'\n");
  std::filesystem::permissions(path("login"), std::filesystem::perms::owner_all);
  scratch_.file("kubeconfig",
                "current-context: c\n"
                "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
                "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, "
                "command: ./login}}}]\n");
  for (const auto& result :
       {run_ferry({"agent", "--node-name=n1", "--namespace=gpus", "--kubeconfig", path("kubeconfig")}),
        test::run_beside_ferry("ferry-agent", {"retire", "--daemon-set=d", "--namespace=gpus"},
                               {"KUBECONFIG=" + path("kubeconfig")})}) {
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("users[0].user.exec: Ferry runs no programs of a kubeconfig here"));
  }
  // hostd asks no API server.
  test::run_ferry_as("ferry", {"--host-root", scratch_.path().string(), "hostd", "--once"},
                     {"KUBECONFIG=" + path("kubeconfig")});
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
}

TEST_F(AgentVerb, SaysWhatItCannotUse) {
  const std::string node_file = path("node.yaml");
  EXPECT_THAT(run_ferry({"agent", "--node-file", node_file}).err, HasSubstr("add --once"));
  EXPECT_THAT(run_ferry({"agent", "--once"}).err, HasSubstr("--node-file FILE"));
  EXPECT_EQ(run_ferry({"agent", "--node-file", node_file}).status, 2);
  EXPECT_THAT(run_ferry({"agent", "--dry-run"}).err, HasSubstr("add --once"));
  EXPECT_THAT(agent({"--node-name", "n1"}).err, HasSubstr("asks no API server"));
  EXPECT_THAT(agent({"--drain"}).err, HasSubstr("asks no API server"));
  EXPECT_THAT(agent({"--metrics-address", "127.0.0.1:9417"}).err, HasSubstr("asks no API server"));
  EXPECT_THAT(agent({"--config-file", path("policies.yaml")}).err,
              HasSubstr("hint: --config FILE names what it reads"));
  EXPECT_THAT(run_ferry({"--host-root", scratch_.path().string(), "agent", "--once", "--node-file", node_file,
                         "--dry-run"})
                  .err,
              AllOf(HasSubstr("no policy or profile is called '"), HasSubstr("': none is given"),
                    HasSubstr("hint: --config FILE names a policy")));
  EXPECT_EQ(agent({"--default-workload", "vm"}).status, 2);
  EXPECT_EQ(agent({"--default-workload", "container", "--default-policy", "a"}).status, 2);
  EXPECT_EQ(agent({"--release", "kubelet"}).status, 2);
  const auto absent = agent({"--config", path("absent.yaml")});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("absent.yaml: No such file or directory"));
  EXPECT_EQ(content("var/lib/ferry/desired.json"), "(none)");
  scratch_.file("run/ferry/status.json", "{}");
  EXPECT_EQ(agent().status, 0) << "hostd may be another one in a moment";
  scratch_.remove("run/ferry/status.json");
  scratch_.directory("run/ferry/status.json");
  EXPECT_EQ(agent().status, 1);
}

}  // namespace
}  // namespace ferry::cli
