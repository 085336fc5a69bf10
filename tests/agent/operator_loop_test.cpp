// SPDX-License-Identifier: Apache-2.0
// The agent's loop beside NVIDIA's operator: its pods pause for a change, or serve the node instead of Ferry.
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/operator_compat/operands.h"
#include "api/labels.h"
#include "api/serving.h"
#include "hostfs/host_fs.h"
#include "tests/agent/one_node.h"
#include "tests/support/api_server.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::AgentLoop;
using test::forbids;
using test::kPod;
using test::kPolicies;
using test::kValidator;
using test::kVfioManager;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecondVgpus = "  halved: [{devices: all, mode: vgpu, vgpu-devices: {L40S-24Q: 2}}]\n";

// Ferry takes the place of NVIDIA's vGPU device manager. That one's pod, and the device plugin beside it,
// belong to the operator.
TEST_F(AgentLoop, ObeysOneLabelAloneAmongNvidiasPrograms) {
  cluster.settings.config_maps.clear();
  cluster.settings.config_files = {cluster.scratch.path() / "config.yaml"};
  cluster.settings.among_others = true;
  cluster.settings.defaults = {.workload = Workload::vm_vgpu, .policy = {}, .vgpu_config = "divided"};
  cluster.scratch.file("config.yaml", std::string(kPolicies) + kSecondVgpus);
  for (const char* const operand : {"vgpu-device-manager", "sandbox-device-plugin"})
    cluster.label(std::string(api::kDeployPrefix) + operand, "true");
  cluster.put_pod("gpu-operator", "self", "nvidia-vgpu-device-manager");
  cluster.label(api::kWorkloadLabel, "vm-passthrough");
  cluster.label(api::kPolicyLabel, "given");
  cluster.start_agent();
  pass(30s);
  EXPECT_EQ(cluster.desired(), "divided");
  EXPECT_EQ(cluster.label(api::kVgpuStateLabel), "success");
  EXPECT_EQ(cluster.label(std::string(api::kDeployPrefix) + "sandbox-device-plugin"), "true");
  cluster.label("nvidia.com/vgpu.config", "halved");
  pass(150s);
  EXPECT_EQ(cluster.desired(), "halved");
  cluster.label("nvidia.com/vgpu.config", "typo");
  pass(10s);
  EXPECT_EQ(cluster.label(api::kVgpuStateLabel), "failed");
  EXPECT_EQ(cluster.desired(), "halved") << "what was written down stays";
  cluster.scratch.file(
      "config.yaml",
      std::string(kPolicies) + "  typo: [{devices: all, mode: vgpu, vgpu-devices: {L40S-48Q: 1}}]\n");
  cluster.agent->configurations_changed();
  pass(150s);
  EXPECT_EQ(cluster.desired(), "typo") << "the file has it by now";
  for (const test::ReceivedApiRequest& asked : cluster.server.seen()) {
    EXPECT_THAT(asked.request.path, Not(HasSubstr("daemonsets")));
    EXPECT_THAT(asked.request.path, Not(HasSubstr("configmaps")));
    if (asked.request.path.find("/pods") != std::string::npos) {
      EXPECT_THAT(asked.request.path, HasSubstr("/namespaces/gpu-operator/pods"));
    }
  }
}

TEST_F(AgentLoop, PausesTheOperatorsPodForAChangeAndResumesIt) {
  cluster.put_validator();
  cluster.start_agent();
  pass(5s);
  cluster.label(api::kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark);
  EXPECT_EQ(cluster.desired(), "nothing") << "its pod is still there";
  cluster.clock.run_for(30s);  // the operator takes its time
  notify_hostd();
  EXPECT_EQ(cluster.desired(), "nothing") << "its pod is still there";
  pass(40s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_FALSE(cluster.server.object(kPod).is_null());
}

TEST_F(AgentLoop, OneThatComesAfterACrashResumesThePod) {
  cluster.put_validator();
  cluster.start_agent();
  pass(5s);
  cluster.label(api::kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  cluster.kill_agent();
  cluster.label(api::kPolicyLabel, nullptr);
  pass(60s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark);
  cluster.start_agent();
  pass(20s);
  EXPECT_EQ(cluster.label(kValidator), "true");
}

// Nobody may come after it: Ferry is taken off the node.
TEST_F(AgentLoop, ResumesThePodWhenItIsToEnd) {
  cluster.put_validator();
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  EXPECT_TRUE(leaves_within(2s));
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, ResumesItOnceHostdHasEndedWhatItDoes) {
  cluster.put_validator();
  cluster.hostd.takes = 20s;
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "applying");
  EXPECT_FALSE(leaves_within(5s));
  EXPECT_EQ(cluster.label(kValidator), kPauseMark) << "its GPU is on its way";
  EXPECT_TRUE(cluster.clock.run_until([this] { return left_; }, 25s));
  EXPECT_EQ(cluster.label(kValidator), "true");
}

// Either would otherwise keep it from its end until it is killed.
TEST_F(AgentLoop, DoesNotWaitForEverWhenItIsToEnd) {
  cluster.put_validator();
  cluster.hostd.takes = 1h;
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "applying");
  EXPECT_TRUE(leaves_within(60s));
  EXPECT_EQ(cluster.label(kValidator), "true") << "and leaves nobody paused";
  cluster.kill_agent();
  cluster.label(kValidator, kPauseMark);
  left_ = false;
  cluster.start_agent();
  pass(2s);
  cluster.server.script = [](const kube::ApiRequest& request) {
    return request.method == "PATCH" ? std::optional(test::ApiFault::status_of(503, "InternalError"))
                                     : std::nullopt;
  };
  EXPECT_TRUE(leaves_within(61s)) << "nor for the API server";
}

TEST_F(AgentLoop, HasNothingToDoAtItsEndWhereNobodyIsPaused) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(30s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_TRUE(leaves_within(0s));
  cluster.label(api::kPolicyLabel, "kept");
  pass(10s);
  EXPECT_EQ(cluster.desired(), "given") << "it begins nothing";
  EXPECT_EQ(cluster.label(kValidator), "true");
}

// "Nothing of ours" includes that we keep nobody away.
TEST_F(AgentLoop, ResumesThePodWhereTheNodeIsToBeLeftAlone) {
  cluster.put_validator();
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  cluster.label(api::kOperandsLabel, "false");
  pass(5s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark) << "the label of a policy counts all the same";
  cluster.label(api::kPolicyLabel, "");
  pass(5s);
  EXPECT_EQ(cluster.label(kValidator), "true");
}

// NVIDIA's device plugin installed without the operator is in kube-system, and no label speaks of it.
TEST_F(AgentLoop, IsOnStandbyForAPodInANamespaceThatIsNamed) {
  cluster.put_pod("kube-system", "plugin", "nvidia-kubevirt-gpu-dp-daemonset");
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "standby");
  EXPECT_EQ(cluster.desired(), "nothing");
  cluster.server.erase("/api/v1/namespaces/kube-system/pods/plugin");
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

// A tenant may call its DaemonSets as it likes.
TEST_F(AgentLoop, IsNotOnStandbyForATenantsDaemonSet) {
  cluster.put_pod("tenant", "plugin", "nvidia-kubevirt-gpu-dp-daemonset");
  cluster.put_pod("tenant", "manager", "nvidia-vfio-manager");
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(60s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.standby(), "");
}

// Two device plugins that register the same resources displace each other.
TEST_F(AgentLoop, HasThePluginServeOnlyWhereNvidiasDoesNot) {
  cluster.put_pod("kube-system", "plugin", "nvidia-kubevirt-gpu-dp-daemonset");
  cluster.start_agent();
  pass(5s);
  EXPECT_EQ(cluster.standby(), "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  cluster.kill_agent();
  cluster.start_agent();
  pass(5s);
  EXPECT_EQ(cluster.standby(), "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  cluster.put_pod("kube-system", "plugin", "nvidia-kubevirt-gpu-dp-daemonset", false);
  pass(60s);
  EXPECT_NE(cluster.standby(), "") << "it starts anew";
  cluster.server.erase("/api/v1/namespaces/kube-system/pods/plugin");
  pass(5s);
  EXPECT_NE(cluster.standby(), "") << "its successor may be about to come";
  pass(30s);
  EXPECT_EQ(cluster.standby(), "");
  EXPECT_FALSE(cluster.host.exists("var/lib/ferry/serving.json"));
}

// All that the node offers would be withdrawn for one that offers nothing.
TEST_F(AgentLoop, HasThePluginServeBesideAnotherThatHasNotStarted) {
  cluster.put_daemon_set("nvidia-sandbox-device-plugin-daemonset");
  cluster.put_pod("gpu-operator", "plugin", "nvidia-sandbox-device-plugin-daemonset", false);
  cluster.label("nvidia.com/gpu.deploy.sandbox-device-plugin", "true");
  cluster.start_agent();
  pass(60s);
  EXPECT_EQ(cluster.standby(), "");
  cluster.put_pod("gpu-operator", "plugin", "nvidia-sandbox-device-plugin-daemonset", true);
  pass(5s);
  EXPECT_EQ(cluster.standby(), "NVIDIA's sandbox-device-plugin serves this node");
}

// The agent then sees no pod at all, which does not show that the other plugin has gone.
TEST_F(AgentLoop, LeavesThePluginAsItIsWhereNobodyLooks) {
  cluster.put_pod("kube-system", "plugin", "nvidia-kubevirt-gpu-dp-daemonset");
  cluster.start_agent();
  pass(5s);
  cluster.kill_agent();
  cluster.settings.operator_space.clear();
  cluster.start_agent();
  pass(60s);
  EXPECT_EQ(cluster.standby(), "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  cluster.kill_agent();
  test::must(cluster.host.remove_file("var/lib/ferry/serving.json"));
  cluster.settings.drain_timeout = 60s;
  cluster.start_agent();
  pass(5s);
  EXPECT_EQ(cluster.standby(), "NVIDIA's kubevirt-gpu-device-plugin serves this node")
      << "pods are looked at for the drain's sake";
}

// Until it is known who serves, what was said last stands: at a boot without an API server, too.
TEST_F(AgentLoop, LeavesThePluginAsItWasBeforeItKnowsThePods) {
  ASSERT_TRUE(
      cluster.host.write_file("var/lib/ferry/serving.json", api::serving_file_text("another serves")));
  cluster.server.script = [](const kube::ApiRequest& request) {
    return request.path.find("/pods") != std::string::npos
               ? std::optional(test::ApiFault::status_of(503, "InternalError"))
               : std::nullopt;
  };
  cluster.start_agent();
  pass(60s);
  EXPECT_EQ(cluster.standby(), "another serves");
  cluster.server.script = nullptr;
  pass(120s);
  EXPECT_EQ(cluster.standby(), "");
}

// The operator is in a namespace that nobody named: no DaemonSet there is no proof that none serves.
TEST_F(AgentLoop, IsOnStandbyByLabelWhereTheOperatorIsNotSeen) {
  cluster.label(kVfioManager, "true");
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "standby");
  EXPECT_EQ(cluster.desired(), "nothing");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("--operator-namespace"));
  cluster.put_daemon_set("nvidia-operator-validator");
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready") << "it is there, and the vfio-manager switched off";
  cluster.put_daemon_set("nvidia-vfio-manager");
  pass(10s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "standby");
  EXPECT_EQ(cluster.desired(), "nothing");
}

// A role that is made along with the agent is not permitted everywhere at once.
TEST_F(AgentLoop, AnAnswerThatSomethingIsForbiddenIsNotTakenAtItsWordAtOnce) {
  cluster.put_daemon_set("nvidia-operator-validator");
  cluster.label(kVfioManager, "true");
  cluster.label(api::kPolicyLabel, "given");
  cluster.start_agent();
  pass(30s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "ready");
  cluster.kill_agent();
  cluster.server.script = forbids("/daemonsets");
  cluster.start_agent();
  pass(60s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready") << "as long as nothing is known all stays";
  cluster.server.script = {};
  pass(4min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");

  cluster.kill_agent();
  cluster.server.script = forbids("/daemonsets");
  cluster.start_agent();
  pass(6min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "standby") << "by the label, since nobody will tell";
  EXPECT_EQ(cluster.desired(), "given") << "and what is written stays";
  cluster.server.script = {};
  pass(3min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

// A tool that keeps the node's labels in a repository sets them back so.
TEST_F(AgentLoop, DoesNotWaitForEverForALabelThatIsSetBack) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  const auto set_back = [&] {
    if (cluster.label(kValidator) != "true") cluster.label(kValidator, "true");
  };
  pass(1min, set_back);
  EXPECT_EQ(cluster.desired(), "nothing");
  pass(3min, set_back);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_LE(cluster.server.count("PATCH", "/nodes/"), 60U);
}

TEST_F(AgentLoop, ResumesThePodThoughHostdIsDeadAndNothingIsAskedForAnyMore) {
  cluster.put_validator();
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.desired(), "given");
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  cluster.label(api::kPolicyLabel, "typo");
  pass(60s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_EQ(cluster.label(kValidator), "true");
}

}  // namespace
}  // namespace ferry::agent
