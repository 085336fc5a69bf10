// SPDX-License-Identifier: Apache-2.0
// The agent's loop, on a node whose hostd, operator and API server are played (one_node.h).
#include "agent/node_agent.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/operator_compat/operands.h"
#include "api/files.h"
#include "api/labels.h"
#include "hostfs/host_fs.h"
#include "tests/agent/one_node.h"
#include "tests/support/api_server.h"
#include "tests/support/log_of.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::AgentLoop;
using test::forbids;
using test::kNode;
using test::kPolicies;
using test::kValidator;
using test::OneNode;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST_F(AgentLoop, FollowsALabelAndSaysWhatHasComeOfIt) {
  cluster.start_agent();
  pass(5s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "idle");
  EXPECT_EQ(cluster.desired(), "nothing");
  cluster.label(api::kPolicyLabel, "given");
  pass(4s);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(api::kStateLabel), "applying");
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_FALSE(cluster.host.exists("run/nvidia")) << "root reads scripts there: only hostd writes it";
  EXPECT_THAT(cluster.reasons(), testing::IsSupersetOf({"Ready", "Applying"}));

  cluster.label(api::kPolicyLabel, nullptr);
  pass(10s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "idle");
  EXPECT_EQ(cluster.desired(), "nothing");
  EXPECT_EQ(cluster.hostd.is, "given") << "the host is left as it is";
}

TEST_F(AgentLoop, ReportsARefusalAndIsDoneWhenTheDeviceUserEnds) {
  cluster.start_agent();
  cluster.hostd.user = true;
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "blocked");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("VM guest-7 (pid 4711)"));
  EXPECT_THAT(cluster.reasons(), Contains("Blocked"));
  const auto asked = cluster.server.seen().size();
  pass(30min);
  EXPECT_LT(cluster.server.seen().size() - asked, 30U) << "waiting is not asking";
  cluster.hostd.user = false;
  cluster.hostd.desired_changed();
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
}

TEST_F(AgentLoop, SaysTheLastOfManyTextsAndNotEachOfThem) {
  int pid = 1000;
  cluster.hostd.users = [&pid] {
    return json{{{"kind", "process"}, {"name", "train"}, {"pid", pid}, {"pod_uid", nullptr}}};
  };
  const auto says = [&] { return cluster.annotation(api::kErrorAnnotation); };
  const auto patches = [&] { return cluster.server.count("PATCH", "/nodes/"); };
  const auto shown = [&] { return says().find(fmt::format("(pid {})", pid)) != std::string::npos; };
  const auto change = [&](kube::Timers::Clock::duration pause) {
    ++pid;
    cluster.hostd.desired_changed();
    cluster.clock.run_for(pause);
  };
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "blocked");
  ASSERT_TRUE(shown()) << says();
  auto before = patches();
  for (int i = 0; i < 150; ++i) change(40ms);
  EXPECT_LE(patches() - before, 4U);
  pass(20s);
  EXPECT_TRUE(shown()) << says();
  pass(1min);
  before = patches();
  for (int second = 0; second < 600; ++second) change(1s);
  EXPECT_GE(patches() - before, 20U) << "nobody is left with what was hours ago";
  EXPECT_LE(patches() - before, 36U);
  pass(1min);
  EXPECT_TRUE(shown()) << says();
  before = patches();
  pass(1h);
  EXPECT_EQ(patches(), before);
  change(1s);
  EXPECT_TRUE(shown()) << "the first of them at once";
  change(100ms);
  cluster.hostd.users = nullptr;
  cluster.hostd.desired_changed();
  pass(1s);
  EXPECT_NE(cluster.label(api::kStateLabel), "blocked") << "only words wait";
}

TEST_F(AgentLoop, ConfigMapEditsCountAndAWrongOneChangesNothing) {
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(20s);
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mood: host}]\n");
  pass(10s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("mood"));
  EXPECT_EQ(cluster.desired(), "given") << "what was written down stays";
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mode: host}]\n");
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

TEST_F(AgentLoop, LabelsTheNodeWithTheKataHandlersThatAreReady) {
  const auto labelled = [&] {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : cluster.labels())
      if (key.starts_with(api::kKataPrefix))
        out[key.substr(std::string_view(api::kKataPrefix).size())] = value;
    return out;
  };
  const auto say = [&](const std::string& text) {
    cluster.scratch.file("run/ferry/kata.json", text);
    cluster.agent->host_changed();
    pass(5s);
  };
  cluster.label(std::string(api::kKataPrefix) + "of-before-the-boot", "ready");
  cluster.start_agent();
  pass(5s);
  EXPECT_TRUE(labelled().empty());
  const std::string two = R"({"version": 2, "handlers": [{"name": "kata-a"}, {"name": "kata-b"}]})";
  say(two);
  EXPECT_EQ(labelled(), (std::map<std::string, std::string>{{"kata-a", "ready"}, {"kata-b", "ready"}}));
  const auto asked = cluster.server.seen().size();
  say(two);
  EXPECT_EQ(cluster.server.seen().size(), asked);
  say(R"({"version": 2, "handlers": [{"name": "kata-b"}]})");
  EXPECT_EQ(labelled(), (std::map<std::string, std::string>{{"kata-b", "ready"}}));
  say("{");
  EXPECT_TRUE(labelled().empty()) << "what cannot be read promises nothing";
}

// hostd is silent all the same, however often its container runtime starts.
TEST_F(AgentLoop, KataHandlersAreNoAnswer) {
  cluster.start_agent();
  pass(5s);
  cluster.hostd.runs = false;
  cluster.label(api::kPolicyLabel, "given");
  for (int i = 0; i < 5; ++i) {
    pass(10s);
    cluster.scratch.file("run/ferry/kata.json",
                         R"({"version": 2, "handlers": [{"name": "kata-)" + std::to_string(i) + R"("}]})");
    cluster.agent->host_changed();
  }
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
}

// Other watches may be faster than the Node's, which alone says that it is no longer as our last change left
// it.
TEST_F(AgentLoop, ChangesTheNodeOnceThoughItsOwnWatchIsLate) {
  cluster.label(api::kPolicyLabel, "given");
  cluster.start_agent();
  pass(20s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "ready");
  cluster.server.hold_back("nodes");
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mood: host}]\n");
  pass(5s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "failed");
  const auto changes = cluster.server.count("PATCH", kNode);
  const auto reads = cluster.server.count("GET", kNode);
  cluster.put_pod("tenants", "p", "some");
  pass(5s);
  EXPECT_EQ(cluster.server.count("PATCH", kNode), changes);
  EXPECT_EQ(cluster.server.count("GET", kNode), reads);
  cluster.server.hold_back("");
  cluster.label(api::kPolicyLabel, nullptr);
  pass(5s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "idle") << "and that is heard";
}

// An edit of another policy, and another name for this one: nobody is paused.
TEST_F(AgentLoop, IsCalmWhereNothingChanges) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(60s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "ready");
  const auto disturbed = [&] {
    return cluster.label(kValidator) != "true" || cluster.label(api::kStateLabel) != "ready";
  };
  cluster.configure(std::string(kPolicies) + "  same: [{devices: all, mode: passthrough}]\n");
  EXPECT_FALSE(cluster.clock.run_until(disturbed, 10s));
  cluster.hostd.is = "same";
  cluster.label(api::kPolicyLabel, "same");
  EXPECT_FALSE(cluster.clock.run_until(disturbed, 10s)) << "hostd has not answered yet";
  EXPECT_EQ(cluster.desired(), "same");
  notify_hostd();
  EXPECT_FALSE(cluster.clock.run_until(disturbed, 10s));
}

// Generations begin anew once nothing is asked for, and mean other contents than before.
TEST_F(AgentLoop, AnAnswerFromBeforeDesiredJsonWasRemovedCountsForNothing) {
  const auto settle = [&](const json& policy, const char* state) {
    cluster.label(api::kPolicyLabel, policy);
    pass(20s);
    EXPECT_EQ(cluster.label(api::kStateLabel), state);
  };
  cluster.configure(std::string(kPolicies) + "  same: [{devices: all, mode: passthrough}]\n");
  cluster.start_agent();
  settle("given", "ready");
  settle("same", "ready");
  settle(nullptr, "idle");
  settle("kept", "ready");
  cluster.label(api::kPolicyLabel, "given");
  cluster.clock.run_for(5s);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(api::kStateLabel), "pending") << "hostd has not answered yet";
}

TEST_F(AgentLoop, DoesNotFightWhoTakesAwayWhatItSays) {
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "typo");
  pass(10min, [&] {
    if (!cluster.annotation(api::kErrorAnnotation).empty())
      cluster.server.edit(kNode, {{"metadata", {{"annotations", {{api::kErrorAnnotation, nullptr}}}}}});
  });
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_GT(cluster.server.count("PATCH", "/nodes/"), 3U);
  EXPECT_LE(cluster.server.count("PATCH", "/nodes/"), 30U);
}

TEST_F(AgentLoop, RecordsAChangeWhoseAnswerWasLost) {
  int patches = 0;
  cluster.server.script = [&](const kube::ApiRequest& request) {
    return request.method == "PATCH" && ++patches == 1 ? std::optional(test::ApiFault::lost_after())
                                                       : std::nullopt;
  };
  cluster.start_agent();
  pass(2min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "idle");
  EXPECT_THAT(cluster.reasons(), Contains("Idle"));
}

TEST_F(AgentLoop, SaysThatThereIsNoSuchNode) {
  const test::LogOf log;
  cluster.server.erase(kNode);
  cluster.start_agent();
  cluster.clock.run_for(30min);
  EXPECT_THAT(log.text(), HasSubstr("there is no Node n1"));
  EXPECT_THAT(log.text(), HasSubstr("NODE_NAME"));
  EXPECT_EQ(log.text().find("there is no Node n1"), log.text().rfind("there is no Node n1")) << "once";
}

TEST_F(AgentLoop, SaysThatTheDesiredStateCannotBeWritten) {
  cluster.put_validator();
  const auto in_the_way = cluster.scratch.path() / api::kDesiredFile;
  std::filesystem::create_directories(in_the_way / "in the way");
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(3min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("desired.json"));
  EXPECT_EQ(cluster.label(kValidator), "true");
  const auto asked = cluster.server.count("PATCH", "/nodes/");
  pass(30min);
  EXPECT_LE(cluster.server.count("PATCH", "/nodes/"), asked + 1);
  std::filesystem::remove_all(in_the_way);
  pass(2min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, SaysThatHostdIsSilent) {
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "pending");
  EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
  pass(30s);
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("has not taken up policy given"));
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
  cluster.hostd.start();
  pass(20s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

TEST_F(AgentLoop, WithoutAnOperatorNobodysPodsAreAskedForAndItsLabelsCount) {
  cluster.settings.operator_space = "";
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(5min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.server.open_streams(), 2U);
  cluster.label("nvidia.com/gpu.deploy.vfio-manager", "true");
  pass(30s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "standby");
  EXPECT_EQ(cluster.server.count("GET", "/pods"), 0U);
  EXPECT_EQ(cluster.server.count("GET", "/daemonsets"), 0U);
}

TEST_F(AgentLoop, AnHourOfNothingCostsNextToNothing) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(5min);
  ASSERT_EQ(cluster.label(api::kStateLabel), "ready");
  const auto before = cluster.server.seen().size();
  pass(1h);
  // Four watches, each asked anew when the server ends it: every five to ten minutes.
  EXPECT_LE(cluster.server.seen().size() - before, 4U * 12U);
  EXPECT_EQ(cluster.server.open_streams(), 4U);
}

TEST_F(AgentLoop, ALabelChangeTakesAHandfulOfRequests) {
  cluster.start_agent();
  pass(10s);
  const auto before = cluster.server.seen().size();
  cluster.label(api::kPolicyLabel, "given");
  pass(30s);
  ASSERT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_LE(cluster.server.seen().size() - before, 12U);
}

// Each time it is started anew it says something else than before, so that it is never silent.
TEST_F(AgentLoop, AHostdThatDiesOverAndOverKeepsNobodyAway) {
  cluster.put_validator();
  cluster.hostd.dies = true;
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  pass(12s);
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  pass(2min);
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("times in the middle of it"));
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
  pass(10min);
  EXPECT_EQ(cluster.label(kValidator), "true") << "nor at its later tries";
  cluster.hostd.dies = false;
  pass(1min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
  cluster.label(api::kPolicyLabel, "kept");
  pass(4s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark) << "what is asked for next is another change";
}

TEST_F(AgentLoop, WhatFailsAndIsTriedAgainSendsNobodyAwayAgain) {
  cluster.put_validator();
  cluster.hostd.fails_late = true;
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  ASSERT_TRUE(becomes("failed"));
  pass(1s);
  EXPECT_EQ(cluster.label(kValidator), "true");
  int paused = 0;
  pass(10min, [&] { paused += cluster.label(kValidator) == "true" ? 0 : 1; });
  EXPECT_EQ(paused, 0);
  cluster.hostd.fails_late = false;
  pass(1min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

TEST_F(AgentLoop, AHostdThatIsDeadKeepsNobodyAwayForWhatMayNotBegin) {
  cluster.put_validator();
  cluster.settings.most_changing = 1;
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  ASSERT_TRUE(becomes("applying"));
  cluster.hostd.stop();
  cluster.server.script = forbids("/leases");
  cluster.label(api::kPolicyLabel, "divided");
  pass(20min);
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, AnOutageIsNoReasonToGoWithoutWhatIsListedABitLater) {
  cluster.put_validator();
  cluster.label(api::kPolicyLabel, "given");
  cluster.server.set_down(true);
  cluster.start_agent();
  pass(20min);
  cluster.server.script = [](const kube::ApiRequest& request) {
    return request.path.find("/configmaps") == std::string::npos
               ? std::nullopt
               : std::optional(test::ApiFault::status_of(503, "ServiceUnavailable"));
  };
  cluster.server.set_down(false);
  pass(2min);
  EXPECT_NE(cluster.label(api::kStateLabel), "failed");
  cluster.server.script = nullptr;
  pass(5min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_THAT(cluster.reasons(), Not(Contains("InvalidConfig")));
}

// Half a list looks like one from which pods have gone: of NVIDIA's programs, and of VMs.
TEST_F(AgentLoop, MorePodsThanCanBeKeptPermitNoChange) {
  cluster.label(api::kPolicyLabel, "given");
  cluster.start_agent();
  ASSERT_TRUE(becomes("ready"));
  const auto pod = [](int number) {
    json out = {{"apiVersion", "v1"},
                {"kind", "Pod"},
                {"metadata", {{"name", "p" + std::to_string(number)}, {"namespace", "tenants"}}},
                {"spec", {{"nodeName", "n1"}}},
                {"status", {{"phase", "Running"}}}};
    for (int i = 0; i < 8; ++i)
      out["metadata"]["ownerReferences"].push_back(
          {{"kind", std::string(200, 'k')}, {"name", std::string(200, 'n')}, {"uid", std::string(200, 'u')}});
    return out;
  };
  constexpr int kTooMany = 500;
  for (int i = 0; i < kTooMany; ++i) cluster.server.put(pod(i));
  pass(30s);
  cluster.label(api::kPolicyLabel, "divided");
  pass(2min);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("no GPU is changed: "));
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("more than 2097152 bytes"));
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("kubectl get pods --all-namespaces"));
  for (int i = 0; i < kTooMany; ++i)
    cluster.server.erase("/api/v1/namespaces/tenants/pods/p" + std::to_string(i));
  pass(3min);
  EXPECT_EQ(cluster.desired(), "divided");
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

// The agent can report about the Node all the while.
TEST_F(AgentLoop, WhatCannotBeListedIsNotWaitedForForEver) {
  for (const char* kind : {"/pods", "/daemonsets", "/configmaps"}) {
    OneNode one;
    one.put_validator();
    one.label(kValidator, kPauseMark);  // by an agent before
    one.label(api::kPolicyLabel, "typo");
    one.server.script = [&](const kube::ApiRequest& request) {
      return request.path.find(kind) == std::string::npos
                 ? std::nullopt
                 : std::optional(test::ApiFault::status_of(504, "Timeout"));
    };
    one.start_agent();
    one.pass(4min);
    EXPECT_EQ(one.label(kValidator), kPauseMark) << kind;
    one.pass(4min);
    EXPECT_EQ(one.label(kValidator), "true") << kind;
    EXPECT_EQ(one.label(api::kStateLabel), "failed") << kind;
    one.kill_agent();
  }
}

}  // namespace
}  // namespace ferry::agent
