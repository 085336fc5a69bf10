// SPDX-License-Identifier: Apache-2.0
// The agent's loop, on a node whose hostd, operator and API server are played (one_node.h).
#include "agent/node_agent.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/cluster_words.h"
#include "agent/desired_state/desired_file.h"
#include "agent/labels/feature_file.h"
#include "agent/operator_compat/operands.h"
#include "agent/operator_compat/validation_files.h"
#include "common/plugin_files.h"
#include "hostfs/host_fs.h"
#include "kube/api_path.h"
#include "tests/agent/one_node.h"
#include "tests/support/api_server.h"
#include "tests/support/log_of.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::AgentLoop;
using test::forbids;
using test::kNode;
using test::kPod;
using test::kPolicies;
using test::kValidator;
using test::kVfioManager;
using test::OneNode;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecondVgpus = "  halved: [{devices: all, mode: vgpu, vgpu-devices: {L40S-24Q: 2}}]\n";

TEST_F(AgentLoop, FollowsALabelAndSaysWhatHasComeOfIt) {
  cluster.start_agent();
  pass(5s);
  EXPECT_EQ(cluster.label(kStateLabel), "idle");
  EXPECT_EQ(cluster.desired(), "nothing");
  cluster.label(kPolicyLabel, "given");
  pass(4s);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(kStateLabel), "applying");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.host.read_file("run/nvidia/validations/workload-type").value_or(""), "vm-passthrough\n");
  EXPECT_TRUE(cluster.host.exists("run/nvidia/validations/vfio-pci-ready"));
  EXPECT_THAT(cluster.reasons(), testing::IsSupersetOf({"Ready", "Applying"}));

  cluster.label(kPolicyLabel, nullptr);
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "idle");
  EXPECT_EQ(cluster.desired(), "nothing");
  EXPECT_EQ(cluster.hostd.is, "given") << "the host is left as it is";
}

TEST_F(AgentLoop, TellsARefusalAndIsDoneWhenTheHolderGoes) {
  cluster.start_agent();
  cluster.hostd.user = true;
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "blocked");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("VM guest-7 (pid 4711)"));
  EXPECT_THAT(cluster.reasons(), Contains("Blocked"));
  const auto asked = cluster.server.seen().size();
  pass(30min);
  EXPECT_LT(cluster.server.seen().size() - asked, 30U) << "waiting is not asking";
  cluster.hostd.user = false;
  cluster.hostd.wanted_changed();
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
}

TEST_F(AgentLoop, SaysTheLastOfManyTextsAndNotEachOfThem) {
  int pid = 1000;
  cluster.hostd.users = [&pid] {
    return json{{{"kind", "process"}, {"name", "train"}, {"pid", pid}, {"pod_uid", nullptr}}};
  };
  const auto says = [&] { return cluster.annotation(kErrorAnnotation); };
  const auto patches = [&] { return cluster.server.count("PATCH", "/nodes/"); };
  const auto shown = [&] { return says().find(fmt::format("(pid {})", pid)) != std::string::npos; };
  const auto change = [&](kube::Timers::Clock::duration pause) {
    ++pid;
    cluster.hostd.wanted_changed();
    cluster.clock.run_for(pause);
  };
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kStateLabel), "blocked");
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
  cluster.hostd.wanted_changed();
  pass(1s);
  EXPECT_NE(cluster.label(kStateLabel), "blocked") << "only words wait";
}

TEST_F(AgentLoop, ConfigMapEditsCountAndAWrongOneChangesNothing) {
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(20s);
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mood: host}]\n");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("mood"));
  EXPECT_EQ(cluster.desired(), "given") << "what was written down stays";
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mode: host}]\n");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

TEST_F(AgentLoop, LabelsTheNodeWithTheKataHandlersThatAreReady) {
  const auto labelled = [&] {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : cluster.labels())
      if (key.starts_with(kKataPrefix)) out[key.substr(std::string_view(kKataPrefix).size())] = value;
    return out;
  };
  const auto say = [&](const std::string& text) {
    cluster.scratch.file("run/ferry/kata.json", text);
    cluster.agent->host_changed();
    pass(5s);
  };
  cluster.label(std::string(kKataPrefix) + "of-before-the-boot", "ready");
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

class AgentLabels : public AgentLoop {
 protected:
  static constexpr const char* kCount = "nvidia.com/gpu.count";
  static constexpr const char* kGiven = "gpu-ferry.io/gpu.passthrough.count";
  void start(FeatureWay way) {
    cluster.settings.features = way;
    cluster.start_agent();
    pass(5s);
  }
  std::set<std::string> features() const {
    std::set<std::string> out;
    for (const auto& [key, value] : cluster.labels())
      if (key.starts_with("gpu-ferry.io/gpu.") || key.starts_with("nvidia.com/gpu.")) out.insert(key);
    return out;
  }
  std::string file() const { return cluster.host.read_file(kFeatureFile).value_or(""); }
};

TEST_F(AgentLabels, AreSetKeptUpAndTakenOff) {
  cluster.label("nvidia.com/gpu.product", "NVIDIA-L40S");  // by GPU feature discovery
  cluster.hostd.wanted_changed();
  start(FeatureWay::node);
  EXPECT_EQ(cluster.label(kCount), "1");
  EXPECT_EQ(cluster.label(kGiven), "0");
  EXPECT_EQ(cluster.label("nvidia.com/gpu.product"), "NVIDIA-L40S");
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  EXPECT_EQ(cluster.label(kGiven), "1");
  const auto asked = cluster.server.seen().size();
  pass(5min);
  EXPECT_LT(cluster.server.seen().size() - asked, 10U) << "what is so is not written again";
  cluster.kill_agent();
  cluster.label(kCount, "3");
  start(FeatureWay::none);
  EXPECT_EQ(features(), (std::set<std::string>{kCount, "nvidia.com/gpu.product"}))
      << "what others have set, before us or since, is theirs";
  EXPECT_EQ(cluster.annotation(kFeaturesAnnotation), "");
}

TEST_F(AgentLabels, StayUntilHostdHasSpoken) {
  cluster.hostd.wanted_changed();
  start(FeatureWay::node);
  ASSERT_EQ(cluster.label(kCount), "1");
  cluster.kill_agent();
  EXPECT_TRUE(cluster.host.remove_file(kStatusFile));
  start(FeatureWay::node);
  EXPECT_EQ(cluster.label(kCount), "1");
  EXPECT_NE(cluster.annotation(kFeaturesAnnotation), "");
}

TEST_F(AgentLabels, WhoseRecordIsLostAreKnownByName) {
  const std::string old_type = "gpu-ferry.io/vgpu.T4-8Q.count";
  cluster.hostd.wanted_changed();
  for (const FeatureWay way : {FeatureWay::node, FeatureWay::none, FeatureWay::file}) {
    cluster.label(kGiven, "7");
    cluster.label(old_type, "2");
    cluster.label(kCount, "7");
    start(way);
    const bool says = way == FeatureWay::node;
    const bool nfds = way == FeatureWay::file;  // it may be NFD that has set it
    EXPECT_EQ(cluster.label(kGiven), says ? "0" : nfds ? "7" : "there is none");
    EXPECT_EQ(cluster.label(old_type), nfds ? "2" : "there is none");
    EXPECT_EQ(cluster.label(kCount), "7") << "GPU feature discovery may say that";
    cluster.kill_agent();
    cluster.server.edit(kNode, {{"metadata", {{"annotations", {{kFeaturesAnnotation, nullptr}}}}}});
  }
}

TEST_F(AgentLabels, ThatNfdHasSetAreItsOwn) {
  cluster.hostd.wanted_changed();
  cluster.label(kGiven, "7");
  cluster.server.edit(kNode, {{"metadata", {{"annotations", {{kNfdAnnotation, kGiven}}}}}});
  start(FeatureWay::node);
  EXPECT_EQ(cluster.label(kGiven), "7");
  EXPECT_EQ(cluster.label("gpu-ferry.io/iommu.mode"), "on");
}

TEST_F(AgentLabels, StandWhileHostdIsStartedAgainAndAgain) {
  start(FeatureWay::node);
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  ASSERT_EQ(cluster.label(kGiven), "1");
  const auto asked = cluster.server.count("PATCH", "/nodes/");
  for (int i = 0; i < 12; ++i) {
    cluster.hostd.stop();
    pass(9min);
    cluster.hostd.start();
    pass(10s);
  }
  EXPECT_EQ(cluster.server.count("PATCH", "/nodes/"), asked);
}

TEST_F(AgentLabels, GoWithHostdOnceItIsGoneAndComeAgain) {
  start(FeatureWay::node);
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  cluster.hostd.stop();
  pass(9min);
  EXPECT_EQ(cluster.label(kGiven), "1");
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  pass(2min);
  EXPECT_TRUE(features().empty());
  EXPECT_EQ(cluster.annotation(kFeaturesAnnotation), "");
  EXPECT_EQ(cluster.label(kStateLabel), "unknown");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("has not run on this node"));
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
  EXPECT_TRUE(cluster.host.exists("run/nvidia/validations/vfio-pci-ready")) << "what is done stays done";
  const auto asked = cluster.server.count("PATCH", "/nodes/");
  pass(1h);
  EXPECT_EQ(cluster.server.count("PATCH", "/nodes/"), asked);
  cluster.hostd.start();
  pass(5s);
  EXPECT_EQ(cluster.label(kGiven), "1");
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
}

TEST_F(AgentLabels, OfANodeWhoseHostdDoesNotStartAfterABootGoToo) {
  cluster.hostd.wanted_changed();
  start(FeatureWay::node);
  ASSERT_EQ(cluster.label(kCount), "1");
  cluster.kill_agent();
  cluster.hostd.stop();
  std::filesystem::remove_all(cluster.host.root() / "run/ferry");
  start(FeatureWay::node);
  pass(9min);
  EXPECT_EQ(cluster.label(kCount), "1");
  pass(2min);
  EXPECT_TRUE(features().empty());
}

// Whoever asks has the lock for that moment, and looks like hostd to who else asks.
TEST_F(AgentLabels, AreNotKeptByWhoElseAsksWhetherHostdRuns) {
  cluster.hostd.wanted_changed();
  start(FeatureWay::node);
  cluster.hostd.stop();
  pass(5min);
  {
    const auto asked = test::must(LivenessLock::announce(cluster.host, kHostdLiveness));
    cluster.agent->host_changed();
  }
  pass(12min);
  EXPECT_TRUE(features().empty());
}

/// A webhook, which is against changes of the Node that have `word` in them.
class AgainstTheAgent : public AgentLoop {
 protected:
  void refuse(int status, std::string word) {
    cluster.server.script = [this, status, word = std::move(word)](const kube::ApiRequest& request) {
      const bool against = request.method == "PATCH" && request.path.find("/nodes/") != std::string::npos &&
                           request.body.find(word) != std::string::npos;
      if (against) ++refusals;
      return against ? std::optional(test::ApiFault::status_of(status, "Forbidden", "a webhook says no"))
                     : std::nullopt;
    };
  }
  std::size_t told() const {
    std::size_t count = 0;
    for (const auto& [name, event] : cluster.server.objects({.kind = kube::kEvents, .space = "default"}))
      if (event.at("message").get<std::string>().find("a webhook says no") != std::string::npos)
        count += event.value("count", std::size_t{1});
    return count;
  }
  std::size_t refusals = 0;
};

TEST_F(AgainstTheAgent, TellsOnceWhatTheNodeDoesNotShow) {
  refuse(422, kStateLabel);
  cluster.hostd.fails = true;
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  for (int i = 0; i < 30; ++i) {
    pass(1min);
    cluster.hostd.wanted_changed();
  }
  std::size_t count = 0;
  for (const auto& [name, event] : cluster.server.objects({.kind = kube::kEvents, .space = "default"}))
    if (event.at("reason") == "Failed") count += event.value("count", std::size_t{1});
  EXPECT_EQ(count, 1U);
}

TEST_F(AgainstTheAgent, WhatIsAskedForIsDoneAllTheSame) {
  cluster.start_agent();
  for (const char* const word : {kStateLabel, "gpu.deploy", "metadata"}) {
    for (const int status : {403, 422}) {
      cluster.put_validator();
      refuse(status, word);
      const auto told_before = told();
      const std::string desired_policy = status == 403 ? "given" : "divided";
      cluster.label(kPolicyLabel, desired_policy);
      pass(1min);
      EXPECT_NE(cluster.desired(), desired_policy) << "soon it may be permitted";
      if (word != std::string_view("metadata")) {
        EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("a webhook says no")) << word;
      }
      pass(3min);
      EXPECT_EQ(cluster.desired(), desired_policy) << word;
      EXPECT_EQ(cluster.hostd.is, desired_policy) << word;
      EXPECT_GT(told(), told_before) << word;
      pass(30min);
      const auto tried = refusals;
      const auto once = told();
      pass(2h);
      EXPECT_EQ(told(), once) << "nothing is told twice";
      EXPECT_LE(refusals - tried, 120U) << word;
      cluster.server.script = nullptr;
      pass(11min);
      EXPECT_EQ(cluster.label(kStateLabel), "ready") << word;
      EXPECT_EQ(cluster.annotation(kErrorAnnotation), "") << word;
      EXPECT_EQ(cluster.label(kValidator), "true") << word;
    }
  }
}

// Words that the Node does not take keep nobody paused and no node cordoned.
TEST_F(AgainstTheAgent, WhatIsDoneWaitsForNoWords) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  cluster.hostd.fails = true;
  refuse(422, kErrorAnnotation);
  pass(1min);
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
  pass(30min);
  const auto once = told();
  const auto tried = refusals;
  pass(2h);
  EXPECT_EQ(told(), once) << "nothing is told twice";
  EXPECT_GE(refusals - tried, 5U) << "it may be permitted by now";
  EXPECT_LE(refusals - tried, 60U);
  cluster.server.script = nullptr;
  pass(11min);
  EXPECT_NE(cluster.annotation(kErrorAnnotation), "");
}

TEST_F(AgentLabels, ThatAreRefusedKeepNothingElseFromGoingOn) {
  for (const int status : {403, 422}) {
    cluster.server.edit(kNode, {{"spec", {{"unschedulable", true}}},
                                {"metadata", {{"annotations", {{kCordonedAnnotation, "true"}}}}}});
    cluster.label(kValidator, "paused-for-gpu-ferry");
    std::size_t refusals = 0;
    cluster.server.script = [&, status](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
      const bool against = request.method == "PATCH" && request.path.find("/nodes/") != std::string::npos &&
                           request.body.find("gpu.count") != std::string::npos;
      if (!against) return std::nullopt;
      ++refusals;
      return test::ApiFault::status_of(status, status == 403 ? "Forbidden" : "Invalid", "a webhook says no");
    };
    cluster.hostd.wanted_changed();
    start(FeatureWay::node);
    EXPECT_FALSE(cluster.server.object(kNode).value("/spec/unschedulable"_json_pointer, false));
    EXPECT_EQ(cluster.annotation(kCordonedAnnotation), "");
    EXPECT_EQ(cluster.label(kValidator), "true");
    cluster.label(kPolicyLabel, status == 403 ? "given" : "divided");
    pass(30s);
    EXPECT_EQ(cluster.desired(), status == 403 ? "given" : "divided");
    EXPECT_EQ(cluster.label(kStateLabel), "ready");
    EXPECT_EQ(cluster.label(kCount), "there is none");
    EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("a webhook says no"));
    EXPECT_THAT(cluster.reasons(), Contains("ConfigWarning"));
    pass(30min);
    const auto tried = refusals;
    const auto asked = cluster.server.count("PATCH", "/nodes/");
    pass(2h);
    EXPECT_GE(refusals - tried, 10U) << "it may be permitted by now";
    EXPECT_LE(refusals - tried, 60U);
    EXPECT_EQ(cluster.server.count("PATCH", "/nodes/") - asked, refusals - tried) << "nothing is said twice";
    cluster.server.script = nullptr;
    pass(11min);
    EXPECT_EQ(cluster.label(kCount), "1");
    EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
    cluster.kill_agent();
    start(FeatureWay::none);
    cluster.kill_agent();
    ASSERT_EQ(cluster.label(kCount), "there is none");
  }
}

TEST_F(AgentLabels, OfOthersStayWhateverTheAnnotationSays) {
  const std::map<std::string, std::string> theirs = {
      {"kubernetes.io/hostname", "n1"}, {"nvidia.com/gpu.present", "true"}, {kPolicyLabel, "given"}};
  for (const auto& [key, value] : theirs) cluster.label(key, value);
  cluster.server.edit(
      kNode,
      {{"metadata",
        {{"annotations", {{kFeaturesAnnotation, json(theirs).dump()}}}, {"labels", {{kCount, "7"}}}}}});
  start(FeatureWay::none);
  for (const auto& [key, value] : theirs) EXPECT_EQ(cluster.label(key), value) << key;
  EXPECT_EQ(cluster.annotation(kFeaturesAnnotation), "");
}

TEST_F(AgentLabels, AreLeftToNodeFeatureDiscovery) {
  cluster.hostd.wanted_changed();
  start(FeatureWay::node);
  cluster.kill_agent();
  start(FeatureWay::file);
  EXPECT_TRUE(features().empty());
  EXPECT_EQ(cluster.annotation(kFeaturesAnnotation), "");
  EXPECT_THAT(file(), HasSubstr("\nnvidia.com/gpu.count=1\n"));
  EXPECT_THAT(file(), HasSubstr("\ngpu-ferry.io/gpu.passthrough.count=0\n"));
  const std::string first = file();
  pass(20s);
  EXPECT_EQ(file(), first);
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  EXPECT_THAT(file(), HasSubstr("\ngpu-ferry.io/gpu.passthrough.count=1\n"));
  cluster.kill_agent();
  start(FeatureWay::none);
  EXPECT_EQ(file(), "");
}

TEST_F(AgentLabels, OfAFileGoWithHostd) {
  cluster.hostd.wanted_changed();
  start(FeatureWay::file);
  ASSERT_NE(file(), "");
  cluster.hostd.stop();
  pass(11min);
  EXPECT_EQ(file(), "");
  cluster.hostd.start();
  pass(5s);
  EXPECT_NE(file(), "");
}

TEST_F(AgentLabels, OfAFileAreRenewedBeforeItsEnd) {
  cluster.hostd.wanted_changed();
  start(FeatureWay::file);
  const std::string first = file();
  ASSERT_NE(first, "");
  cluster.clock.run_for(kFeatureFileRenewal - 1min);
  EXPECT_EQ(file(), first);
  cluster.clock.run_for(2min);
  EXPECT_NE(file(), first);
  EXPECT_TRUE(cluster.host.remove_file(kFeatureFile));
  cluster.agent->configurations_changed();
  pass(5s);
  EXPECT_NE(file(), "") << "one that somebody has removed is there again at the next look";
}

class AgentNodeFeature : public AgentLabels {
 protected:
  static constexpr const char* kObject =
      "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpus/nodefeatures/ferry-features-for-n1";
  static constexpr const char* kOwner = "/api/v1/namespaces/gpus/configmaps/ferry-features";

  AgentNodeFeature() {
    cluster.hostd.wanted_changed();
    cluster.server.script = [this](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
      if (nfd_is_there || request.path.find("nfd.k8s-sigs.io") == std::string::npos) return std::nullopt;
      return test::ApiFault::status_of(404, "NotFound");
    };
  }
  json object() const { return cluster.server.object(kObject); }
  json said(const char* key) const { return object().value("/spec/labels"_json_pointer, json())[key]; }
  std::string owner() const {
    return object().value("/metadata/ownerReferences/0/kind"_json_pointer, std::string("nobody"));
  }
  std::size_t writes() const { return cluster.server.count("PATCH", "nodefeatures"); }
  void put_owner() {
    cluster.settings.feature_owner = "ferry-features";
    cluster.server.put({{"apiVersion", "v1"},
                        {"kind", "ConfigMap"},
                        {"metadata", {{"name", "ferry-features"}, {"namespace", "gpus"}}}});
  }

  bool nfd_is_there = true;
};

TEST_F(AgentNodeFeature, SaysWhatTheGpusAreAndKeepsItUp) {
  start(FeatureWay::nfd);
  EXPECT_TRUE(features().empty()) << "the Node is NFD's to label";
  EXPECT_EQ(file(), "");
  EXPECT_EQ(object()["metadata"]["labels"], json({{"nfd.node.kubernetes.io/node-name", "n1"}}));
  EXPECT_EQ(said(kCount), "1");
  EXPECT_EQ(said(kGiven), "0");
  EXPECT_EQ(said("nvidia.com/gpu.memory"), json()) << "what is not known is not there";
  EXPECT_EQ(writes(), 1U);
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  EXPECT_EQ(said(kGiven), "1");
  const auto written = writes();
  pass(5min);
  EXPECT_EQ(writes(), written) << "what is so is not written again";
  cluster.server.erase(kObject);
  pass(5s);
  EXPECT_EQ(said(kGiven), "1") << "one that somebody has removed is there again";
  cluster.server.edit(kObject, {{"spec", {{"labels", {{kCount, "7"}}}}}});
  pass(5s);
  EXPECT_EQ(said(kCount), "1");
}

TEST_F(AgentNodeFeature, IsNotFoughtForWithoutAPause) {
  start(FeatureWay::nfd);
  pass(1min, [this] {
    if (said(kCount) == "1") cluster.server.edit(kObject, {{"spec", {{"labels", {{kCount, "7"}}}}}});
  });
  EXPECT_LT(writes(), 20U);
}

/// Answers to writes of NodeFeature objects are on their way for a while, and streams are not.
class LateAnswers final : public kube::ApiTransport {
 public:
  LateAnswers(test::VirtualClock& clock, kube::ApiTransport& under) : clock_(clock), under_(under) {}

  Call send(kube::ApiRequest request, kube::ApiListener listener) override {
    if (request.method == "PATCH" && request.path.find("nodefeatures") != std::string::npos) {
      listener.ended = [this, told = std::move(listener.ended)](const Result<kube::ApiReply>& reply) {
        clock_.at(clock_.now() + 4s, [told, reply] { told(reply); });
      };
    }
    return under_.send(std::move(request), std::move(listener));
  }
  void cancel(Call call) override { under_.cancel(call); }

 private:
  test::VirtualClock& clock_;
  kube::ApiTransport& under_;
};

TEST_F(AgentNodeFeature, IsWrittenAgainThoughTheAnswerComesAfterItsEnd) {
  LateAnswers late(cluster.clock, cluster.server);
  cluster.transport = &late;
  cluster.settings.features = FeatureWay::nfd;
  cluster.start_agent();
  pass(2s);
  EXPECT_FALSE(object().is_null());
  cluster.server.erase(kObject);
  pass(1s);
  EXPECT_TRUE(object().is_null()) << "else the answer was there first";
  pass(1min);
  EXPECT_FALSE(object().is_null());
  EXPECT_EQ(writes(), 2U);
  cluster.kill_agent();
}

TEST_F(AgentNodeFeature, IsWaitedForWhereNobodyKnowsIt) {
  nfd_is_there = false;
  start(FeatureWay::nfd);
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready") << "nothing else waits for it";
  EXPECT_EQ(writes(), 0U);
  const auto asked = cluster.server.count("GET", "nodefeatures");
  pass(30min);
  EXPECT_LT(cluster.server.count("GET", "nodefeatures") - asked, 80U);
  nfd_is_there = true;
  pass(2min);
  EXPECT_EQ(said(kGiven), "1");
}

TEST_F(AgentNodeFeature, StaysUntilHostdHasSpoken) {
  start(FeatureWay::nfd);
  cluster.kill_agent();
  EXPECT_TRUE(cluster.host.remove_file(kStatusFile));
  start(FeatureWay::nfd);
  EXPECT_EQ(said(kCount), "1");
  EXPECT_EQ(writes(), 1U);
}

TEST_F(AgentNodeFeature, SaysNothingOnceHostdIsGone) {
  start(FeatureWay::nfd);
  cluster.hostd.stop();
  pass(9min);
  EXPECT_EQ(said(kCount), "1");
  pass(2min);
  EXPECT_EQ(said(kCount), json());
  cluster.hostd.start();
  pass(5s);
  EXPECT_EQ(said(kCount), "1");
}

TEST_F(AgentNodeFeature, OfTheNodeIsRemovedByAnAgentThatIsNotToHaveOne) {
  start(FeatureWay::nfd);
  EXPECT_EQ(owner(), "Node");
  cluster.kill_agent();
  cluster.server.set_down(true);
  start(FeatureWay::none);
  cluster.server.set_down(false);
  EXPECT_FALSE(object().is_null());
  pass(3min);
  EXPECT_TRUE(object().is_null());
  cluster.kill_agent();
  const auto asked = cluster.server.count("DELETE");
  start(FeatureWay::node);
  EXPECT_EQ(cluster.server.count("DELETE"), asked) << "where there is none nobody is asked";
  EXPECT_EQ(cluster.label(kCount), "1");
}

TEST_F(AgentNodeFeature, GoesWithItsConfigMap) {
  put_owner();
  start(FeatureWay::nfd);
  EXPECT_EQ(owner(), "ConfigMap");
  EXPECT_EQ(object()["metadata"]["ownerReferences"][0]["uid"],
            cluster.server.object(kOwner)["metadata"]["uid"]);
  // As the collection of garbage does it.
  cluster.server.erase(kOwner);
  cluster.server.erase(kObject);
  pass(5min);
  EXPECT_TRUE(object().is_null()) << "it is not wanted any more";
  cluster.kill_agent();
  start(FeatureWay::none);
  EXPECT_EQ(cluster.server.count("DELETE"), 0U) << "nobody has to clean up, or needs the right to";
}

TEST_F(AgentNodeFeature, IsTriedAgainWhenItIsRefused) {
  bool refused = true;
  cluster.server.script = [&refused](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
    if (!refused || request.method != "PATCH" || request.path.find("nodefeatures") == std::string::npos)
      return std::nullopt;
    return test::ApiFault::status_of(403, "Forbidden");
  };
  start(FeatureWay::nfd);
  pass(10min);
  EXPECT_TRUE(object().is_null());
  EXPECT_LT(writes(), 40U);
  refused = false;
  pass(2min);
  EXPECT_EQ(said(kCount), "1");
}

// hostd is silent all the same, however often its container runtime starts.
TEST_F(AgentLoop, KataHandlersAreNoAnswer) {
  cluster.start_agent();
  pass(5s);
  cluster.hostd.runs = false;
  cluster.label(kPolicyLabel, "given");
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
  cluster.label(kPolicyLabel, "given");
  cluster.start_agent();
  pass(20s);
  ASSERT_EQ(cluster.label(kStateLabel), "ready");
  cluster.server.hold_back("nodes");
  cluster.configure("version: v2\npolicies:\n  given: [{devices: all, mood: host}]\n");
  pass(5s);
  ASSERT_EQ(cluster.label(kStateLabel), "failed");
  const auto changes = cluster.server.count("PATCH", kNode);
  const auto reads = cluster.server.count("GET", kNode);
  cluster.put_pod("tenants", "p", "some");
  pass(5s);
  EXPECT_EQ(cluster.server.count("PATCH", kNode), changes);
  EXPECT_EQ(cluster.server.count("GET", kNode), reads);
  cluster.server.hold_back("");
  cluster.label(kPolicyLabel, nullptr);
  pass(5s);
  EXPECT_EQ(cluster.label(kStateLabel), "idle") << "and that is heard";
}

// In the place of NVIDIA's vGPU device manager, whose pod, and the device plugin beside it, are of the
// operator.
TEST_F(AgentLoop, ObeysOneLabelAloneAmongNvidiasPrograms) {
  cluster.settings.config_maps.clear();
  cluster.settings.config_files = {cluster.scratch.path() / "config.yaml"};
  cluster.settings.among_others = true;
  cluster.settings.defaults = {.workload = Workload::vm_vgpu, .policy = {}, .vgpu_config = "divided"};
  cluster.scratch.file("config.yaml", std::string(kPolicies) + kSecondVgpus);
  for (const char* const operand : {"vgpu-device-manager", "sandbox-device-plugin"})
    cluster.label(std::string(kDeployPrefix) + operand, "true");
  cluster.put_pod("gpu-operator", "self", "nvidia-vgpu-device-manager");
  cluster.label(kWorkloadLabel, "vm-passthrough");
  cluster.label(kPolicyLabel, "given");
  cluster.start_agent();
  pass(30s);
  EXPECT_EQ(cluster.desired(), "divided");
  EXPECT_EQ(cluster.label(kVgpuStateLabel), "success");
  EXPECT_EQ(cluster.label(std::string(kDeployPrefix) + "sandbox-device-plugin"), "true");
  cluster.label("nvidia.com/vgpu.config", "halved");
  pass(150s);
  EXPECT_EQ(cluster.desired(), "halved");
  cluster.label("nvidia.com/vgpu.config", "typo");
  pass(10s);
  EXPECT_EQ(cluster.label(kVgpuStateLabel), "failed");
  EXPECT_EQ(cluster.desired(), "halved") << "what was written down stays";
  cluster.scratch.file(
      "config.yaml",
      std::string(kPolicies) + "  typo: [{devices: all, mode: vgpu, vgpu-devices: {L40S-48Q: 1}}]\n");
  cluster.agent->configurations_changed();
  pass(150s);
  EXPECT_EQ(cluster.desired(), "typo") << "the file has it by now";
  for (const test::ApiSeen& asked : cluster.server.seen()) {
    EXPECT_THAT(asked.request.path, Not(HasSubstr("daemonsets")));
    EXPECT_THAT(asked.request.path, Not(HasSubstr("configmaps")));
    if (asked.request.path.find("/pods") != std::string::npos) {
      EXPECT_THAT(asked.request.path, HasSubstr("/namespaces/gpu-operator/pods"));
    }
  }
}

// An edit of another policy, and another name for this one: nobody is paused, and no ready file is withdrawn.
TEST_F(AgentLoop, IsCalmWhereNothingChanges) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(60s);
  ASSERT_EQ(cluster.label(kStateLabel), "ready");
  const auto disturbed = [&] {
    return cluster.label(kValidator) != "true" || cluster.label(kStateLabel) != "ready" ||
           !cluster.host.exists("run/nvidia/validations/vfio-pci-ready");
  };
  cluster.configure(std::string(kPolicies) + "  same: [{devices: all, mode: passthrough}]\n");
  EXPECT_FALSE(cluster.clock.run_until(disturbed, 10s));
  cluster.hostd.is = "same";
  cluster.label(kPolicyLabel, "same");
  EXPECT_FALSE(cluster.clock.run_until(disturbed, 10s)) << "hostd has not answered yet";
  EXPECT_EQ(cluster.desired(), "same");
  tell_hostd();
  EXPECT_FALSE(cluster.clock.run_until(disturbed, 10s));
}

TEST_F(AgentLoop, PausesTheOperatorsPodForAChangeAndResumesIt) {
  cluster.put_validator();
  cluster.start_agent();
  pass(5s);
  cluster.label(kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark);
  EXPECT_EQ(cluster.desired(), "nothing") << "its pod is still there";
  cluster.clock.run_for(30s);  // the operator takes its time
  tell_hostd();
  EXPECT_EQ(cluster.desired(), "nothing") << "its pod is still there";
  pass(40s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_FALSE(cluster.server.object(kPod).is_null());
}

TEST_F(AgentLoop, OneThatComesAfterACrashResumesThePod) {
  cluster.put_validator();
  cluster.start_agent();
  pass(5s);
  cluster.label(kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  cluster.kill_agent();
  cluster.label(kPolicyLabel, nullptr);
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
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  EXPECT_TRUE(leaves_within(2s));
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, ResumesItOnceHostdHasEndedWhatItDoes) {
  cluster.put_validator();
  cluster.hostd.takes = 20s;
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kStateLabel), "applying");
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
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kStateLabel), "applying");
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
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  ASSERT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_TRUE(leaves_within(0s));
  cluster.label(kPolicyLabel, "kept");
  pass(10s);
  EXPECT_EQ(cluster.desired(), "given") << "it begins nothing";
  EXPECT_EQ(cluster.label(kValidator), "true");
}

// "Nothing of ours" includes that we keep nobody away.
TEST_F(AgentLoop, ResumesThePodWhereTheNodeIsToBeLeftAlone) {
  cluster.put_validator();
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  cluster.label(kOperandsLabel, "false");
  pass(5s);
  EXPECT_EQ(cluster.label(kValidator), "true");
}

// NVIDIA's device plugin installed without the operator is in kube-system, and no label speaks of it.
TEST_F(AgentLoop, StandsBackFromAPodInANamespaceThatIsNamed) {
  cluster.put_pod("kube-system", "plugin", "nvidia-kubevirt-gpu-dp-daemonset");
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "standby");
  EXPECT_EQ(cluster.desired(), "nothing");
  cluster.server.erase("/api/v1/namespaces/kube-system/pods/plugin");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

// A tenant may call its DaemonSets as it likes.
TEST_F(AgentLoop, StandsBackForNoTenantsDaemonSet) {
  cluster.put_pod("tenant", "plugin", "nvidia-kubevirt-gpu-dp-daemonset");
  cluster.put_pod("tenant", "manager", "nvidia-vfio-manager");
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(60s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
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

// Not that the other one has gone is seen then, but nothing.
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
  ASSERT_TRUE(cluster.host.write_file("var/lib/ferry/serving.json", serving_file_text("another serves")));
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
TEST_F(AgentLoop, StandsBackByLabelWhereTheOperatorIsNotSeen) {
  cluster.label(kVfioManager, "true");
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "standby");
  EXPECT_EQ(cluster.desired(), "nothing");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("--operator-namespace"));
  cluster.put_daemon_set("nvidia-operator-validator");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready") << "it is there, and the vfio-manager switched off";
  EXPECT_TRUE(cluster.host.exists("run/nvidia/validations/vfio-pci-ready"));
  cluster.put_daemon_set("nvidia-vfio-manager");
  pass(10s);
  EXPECT_EQ(cluster.label(kStateLabel), "standby");
  EXPECT_FALSE(cluster.host.exists("run/nvidia/validations/vfio-pci-ready")) << "ours is no longer true";
  EXPECT_EQ(cluster.desired(), "nothing");
}

// A role that is made along with the agent is not permitted everywhere at once.
TEST_F(AgentLoop, AnAnswerThatSomethingIsForbiddenIsNotTakenAtItsWordAtOnce) {
  cluster.put_daemon_set("nvidia-operator-validator");
  cluster.label(kVfioManager, "true");
  cluster.label(kPolicyLabel, "given");
  cluster.start_agent();
  pass(30s);
  ASSERT_EQ(cluster.label(kStateLabel), "ready");
  cluster.kill_agent();
  cluster.server.script = forbids("/daemonsets");
  cluster.start_agent();
  pass(60s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready") << "as long as nothing is known all stays";
  cluster.server.script = {};
  pass(4min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");

  cluster.kill_agent();
  cluster.server.script = forbids("/daemonsets");
  cluster.start_agent();
  pass(6min);
  EXPECT_EQ(cluster.label(kStateLabel), "standby") << "by the label, since nobody will tell";
  EXPECT_EQ(cluster.desired(), "given") << "and what is written stays";
  cluster.server.script = {};
  pass(3min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

TEST_F(AgentLoop, DoesNotFightWhoTakesAwayWhatItSays) {
  cluster.start_agent();
  cluster.label(kPolicyLabel, "typo");
  pass(10min, [&] {
    if (!cluster.annotation(kErrorAnnotation).empty())
      cluster.server.edit(kNode, {{"metadata", {{"annotations", {{kErrorAnnotation, nullptr}}}}}});
  });
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_GT(cluster.server.count("PATCH", "/nodes/"), 3U);
  EXPECT_LE(cluster.server.count("PATCH", "/nodes/"), 30U);
}

// As a tool does that has the node's labels in a repository.
TEST_F(AgentLoop, DoesNotWaitForEverForALabelThatIsSetBack) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  const auto set_back = [&] {
    if (cluster.label(kValidator) != "true") cluster.label(kValidator, "true");
  };
  pass(1min, set_back);
  EXPECT_EQ(cluster.desired(), "nothing");
  pass(3min, set_back);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_LE(cluster.server.count("PATCH", "/nodes/"), 60U);
}

TEST_F(AgentLoop, ResumesThePodThoughHostdIsDeadAndNothingIsAskedForAnyMore) {
  cluster.put_validator();
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(10s);
  ASSERT_EQ(cluster.desired(), "given");
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  cluster.label(kPolicyLabel, "typo");
  pass(60s);
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, KeepsItsFilesTrueWhileTheServerCannotBeTold) {
  const char* const ready = "run/nvidia/validations/vfio-pci-ready";
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(20s);
  ASSERT_TRUE(cluster.host.exists(ready));
  cluster.server.script = [](const kube::ApiRequest& request) {
    return request.method == "PATCH" ? std::optional(test::ApiFault::status_of(503, "InternalError"))
                                     : std::nullopt;
  };
  cluster.label(kPolicyLabel, "typo2");
  cluster.clock.run_for(1s);
  cluster.label(kPolicyLabel, "divided");
  cluster.clock.run_for(1s);
  EXPECT_FALSE(cluster.host.exists(ready)) << "although the node still says ready";
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

TEST_F(AgentLoop, TellsOfAChangeWhoseAnswerWasLost) {
  int patches = 0;
  cluster.server.script = [&](const kube::ApiRequest& request) {
    return request.method == "PATCH" && ++patches == 1 ? std::optional(test::ApiFault::lost_after())
                                                       : std::nullopt;
  };
  cluster.start_agent();
  pass(2min);
  EXPECT_EQ(cluster.label(kStateLabel), "idle");
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

TEST_F(AgentLoop, SaysWhichRightIsMissing) {
  const test::LogOf log;
  cluster.server.script = forbids("/nodes");
  cluster.start_agent();
  pass(2min);
  EXPECT_THAT(log.text(), HasSubstr("lacks the verb list on nodes"));
}

TEST_F(AgentLoop, LooksAllTheSameWhereAConfigMapIsForbidden) {
  cluster.server.script = forbids("/configmaps");
  cluster.label(kPolicyLabel, "given");
  cluster.start_agent();
  pass(6min);
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("ConfigMap"));
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("403"));
  cluster.label(kPolicyLabel, nullptr);
  cluster.label(kWorkloadLabel, "container");
  pass(20s);
  EXPECT_EQ(cluster.desired(), "container") << "which needs none";
  cluster.label(kPolicyLabel, "given");
  cluster.server.script = {};
  pass(3min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

TEST_F(AgentLoop, SaysThatTheDesiredStateCannotBeWritten) {
  cluster.put_validator();
  const auto in_the_way = cluster.scratch.path() / kDesiredFile;
  std::filesystem::create_directories(in_the_way / "in the way");
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(3min);
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("desired.json"));
  EXPECT_EQ(cluster.label(kValidator), "true");
  const auto asked = cluster.server.count("PATCH", "/nodes/");
  pass(30min);
  EXPECT_LE(cluster.server.count("PATCH", "/nodes/"), asked + 1);
  std::filesystem::remove_all(in_the_way);
  pass(2min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, SaysThatHostdIsSilent) {
  cluster.hostd.stop();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "pending");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
  pass(30s);
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("has not taken up policy given"));
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
  cluster.hostd.start();
  pass(20s);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

TEST_F(AgentLoop, WithoutAnOperatorNobodysPodsAreAskedForAndItsLabelsCount) {
  cluster.settings.operator_space = "";
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(5min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.server.open_streams(), 2U);
  cluster.label("nvidia.com/gpu.deploy.vfio-manager", "true");
  pass(30s);
  EXPECT_EQ(cluster.label(kStateLabel), "standby");
  EXPECT_EQ(cluster.server.count("GET", "/pods"), 0U);
  EXPECT_EQ(cluster.server.count("GET", "/daemonsets"), 0U);
}

TEST_F(AgentLoop, AnHourOfNothingCostsNextToNothing) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(5min);
  ASSERT_EQ(cluster.label(kStateLabel), "ready");
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
  cluster.label(kPolicyLabel, "given");
  pass(30s);
  ASSERT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_LE(cluster.server.seen().size() - before, 12U);
}

// Each time it is started anew it says something else than before, so that it is never silent.
TEST_F(AgentLoop, AHostdThatDiesOverAndOverKeepsNobodyAway) {
  cluster.put_validator();
  cluster.hostd.dies = true;
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  pass(12s);
  ASSERT_EQ(cluster.label(kValidator), kPauseMark);
  pass(2min);
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("times in the middle of it"));
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
  pass(10min);
  EXPECT_EQ(cluster.label(kValidator), "true") << "nor at its later tries";
  cluster.hostd.dies = false;
  pass(1min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(kErrorAnnotation), "");
  cluster.label(kPolicyLabel, "kept");
  pass(4s);
  EXPECT_EQ(cluster.label(kValidator), kPauseMark) << "what is asked for next is another change";
}

TEST_F(AgentLoop, WhatFailsAndIsTriedAgainSendsNobodyAwayAgain) {
  cluster.put_validator();
  cluster.hostd.fails_late = true;
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  ASSERT_TRUE(becomes("failed"));
  pass(1s);
  EXPECT_EQ(cluster.label(kValidator), "true");
  int paused = 0;
  pass(10min, [&] { paused += cluster.label(kValidator) == "true" ? 0 : 1; });
  EXPECT_EQ(paused, 0);
  cluster.hostd.fails_late = false;
  pass(1min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

TEST_F(AgentLoop, AHostdThatIsDeadKeepsNobodyAwayForWhatMayNotBegin) {
  cluster.put_validator();
  cluster.settings.most_changing = 1;
  cluster.start_agent();
  cluster.label(kPolicyLabel, "given");
  ASSERT_TRUE(becomes("applying"));
  cluster.hostd.stop();
  cluster.server.script = forbids("/leases");
  cluster.label(kPolicyLabel, "divided");
  pass(20min);
  EXPECT_EQ(cluster.label(kValidator), "true");
}

TEST_F(AgentLoop, AnOutageIsNoReasonToGoWithoutWhatIsListedABitLater) {
  cluster.put_validator();
  cluster.label(kPolicyLabel, "given");
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
  EXPECT_NE(cluster.label(kStateLabel), "failed");
  cluster.server.script = nullptr;
  pass(5min);
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
  EXPECT_THAT(cluster.reasons(), Not(Contains("InvalidConfig")));
}

// Half a list looks like one from which pods have gone: of NVIDIA's programs, and of VMs.
TEST_F(AgentLoop, MorePodsThanCanBeKeptPermitNoChange) {
  cluster.label(kPolicyLabel, "given");
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
  cluster.label(kPolicyLabel, "divided");
  pass(2min);
  EXPECT_EQ(cluster.desired(), "given");
  EXPECT_EQ(cluster.label(kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("no GPU is changed: "));
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("more than 2097152 bytes"));
  EXPECT_THAT(cluster.annotation(kErrorAnnotation), HasSubstr("kubectl get pods --all-namespaces"));
  for (int i = 0; i < kTooMany; ++i)
    cluster.server.erase("/api/v1/namespaces/tenants/pods/p" + std::to_string(i));
  pass(3min);
  EXPECT_EQ(cluster.desired(), "divided");
  EXPECT_EQ(cluster.label(kStateLabel), "ready");
}

// The Node can be told of all the while.
TEST_F(AgentLoop, WhatCannotBeListedIsNotWaitedForForEver) {
  for (const char* kind : {"/pods", "/daemonsets", "/configmaps"}) {
    OneNode one;
    one.put_validator();
    one.label(kValidator, kPauseMark);  // by an agent before
    one.label(kPolicyLabel, "typo");
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
    EXPECT_EQ(one.label(kStateLabel), "failed") << kind;
    one.kill_agent();
  }
}

}  // namespace
}  // namespace ferry::agent
