// SPDX-License-Identifier: Apache-2.0
// The agent's loop and the feature labels of its node.
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/labels/feature_labels.h"
#include "api/files.h"
#include "api/labels.h"
#include "hostfs/host_fs.h"
#include "tests/agent/labelled_node.h"
#include "tests/agent/one_node.h"
#include "tests/support/api_server.h"
#include "tests/support/must.h"
#include "tests/support/virtual_clock.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::AgentLabels;
using test::kNode;
using test::kValidator;
using testing::Contains;
using testing::HasSubstr;

TEST_F(AgentLabels, AreSetKeptUpAndTakenOff) {
  cluster.label("nvidia.com/gpu.product", "NVIDIA-L40S");  // by GPU feature discovery
  cluster.hostd.desired_changed();
  start(FeatureWay::node);
  EXPECT_EQ(cluster.label(kCount), "1");
  EXPECT_EQ(cluster.label(kGiven), "0");
  EXPECT_EQ(cluster.label("nvidia.com/gpu.product"), "NVIDIA-L40S");
  cluster.label(api::kPolicyLabel, "given");
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
  EXPECT_EQ(cluster.annotation(api::kFeaturesAnnotation), "");
}

TEST_F(AgentLabels, StayUntilHostdHasSpoken) {
  cluster.hostd.desired_changed();
  start(FeatureWay::node);
  ASSERT_EQ(cluster.label(kCount), "1");
  cluster.kill_agent();
  EXPECT_TRUE(cluster.host.remove_file(api::kStatusFile));
  start(FeatureWay::node);
  EXPECT_EQ(cluster.label(kCount), "1");
  EXPECT_NE(cluster.annotation(api::kFeaturesAnnotation), "");
}

TEST_F(AgentLabels, WhoseRecordIsLostAreKnownByName) {
  const std::string old_type = "gpu-ferry.io/vgpu.T4-8Q.count";
  cluster.hostd.desired_changed();
  for (const FeatureWay way : {FeatureWay::node, FeatureWay::none, FeatureWay::nfd}) {
    cluster.label(kGiven, "7");
    cluster.label(old_type, "2");
    cluster.label(kCount, "7");
    start(way);
    const bool says = way == FeatureWay::node;
    const bool nfds = way == FeatureWay::nfd;  // it may be NFD that has set it
    EXPECT_EQ(cluster.label(kGiven), says ? "0" : nfds ? "7" : "there is none");
    EXPECT_EQ(cluster.label(old_type), nfds ? "2" : "there is none");
    EXPECT_EQ(cluster.label(kCount), "7") << "GPU feature discovery may say that";
    cluster.kill_agent();
    cluster.server.edit(kNode, {{"metadata", {{"annotations", {{api::kFeaturesAnnotation, nullptr}}}}}});
  }
}

TEST_F(AgentLabels, ThatNfdHasSetAreItsOwn) {
  cluster.hostd.desired_changed();
  cluster.label(kGiven, "7");
  cluster.server.edit(kNode, {{"metadata", {{"annotations", {{api::kNfdAnnotation, kGiven}}}}}});
  start(FeatureWay::node);
  EXPECT_EQ(cluster.label(kGiven), "7");
  EXPECT_EQ(cluster.label("gpu-ferry.io/iommu.mode"), "on");
}

TEST_F(AgentLabels, StandWhileHostdIsStartedAgainAndAgain) {
  start(FeatureWay::node);
  cluster.label(api::kPolicyLabel, "given");
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
  cluster.label(api::kPolicyLabel, "given");
  pass(30s);
  cluster.hostd.stop();
  pass(9min);
  EXPECT_EQ(cluster.label(kGiven), "1");
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  pass(2min);
  EXPECT_TRUE(features().empty());
  EXPECT_EQ(cluster.annotation(api::kFeaturesAnnotation), "");
  EXPECT_EQ(cluster.label(api::kStateLabel), "unknown");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("has not run on this node"));
  EXPECT_THAT(cluster.reasons(), Contains("HostdUnavailable"));
  const auto asked = cluster.server.count("PATCH", "/nodes/");
  pass(1h);
  EXPECT_EQ(cluster.server.count("PATCH", "/nodes/"), asked);
  cluster.hostd.start();
  pass(5s);
  EXPECT_EQ(cluster.label(kGiven), "1");
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
  EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
}

TEST_F(AgentLabels, OfANodeWhoseHostdDoesNotStartAfterABootGoToo) {
  cluster.hostd.desired_changed();
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
  cluster.hostd.desired_changed();
  start(FeatureWay::node);
  cluster.hostd.stop();
  pass(5min);
  {
    const auto asked = test::must(LivenessLock::announce(cluster.host, api::kHostdLiveness));
    cluster.agent->host_changed();
  }
  pass(12min);
  EXPECT_TRUE(features().empty());
}

TEST_F(AgentLabels, ThatAreRefusedKeepNothingElseFromGoingOn) {
  std::string why = "a webhook says no";
  for (int i = 0; i < 300; ++i) why += "é";  // it is cut, and not within a character
  for (const int status : {403, 422}) {
    cluster.server.edit(kNode, {{"spec", {{"unschedulable", true}}},
                                {"metadata", {{"annotations", {{api::kCordonedAnnotation, "true"}}}}}});
    cluster.label(kValidator, "paused-for-gpu-ferry");
    std::size_t refusals = 0;
    cluster.server.script = [&, status](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
      const bool against = request.method == "PATCH" && request.path.find("/nodes/") != std::string::npos &&
                           request.body.find("gpu.count") != std::string::npos;
      if (!against) return std::nullopt;
      ++refusals;
      return test::ApiFault::status_of(status, status == 403 ? "Forbidden" : "Invalid", why);
    };
    cluster.hostd.desired_changed();
    start(FeatureWay::node);
    EXPECT_FALSE(cluster.server.object(kNode).value("/spec/unschedulable"_json_pointer, false));
    EXPECT_EQ(cluster.annotation(api::kCordonedAnnotation), "");
    EXPECT_EQ(cluster.label(kValidator), "true");
    cluster.label(api::kPolicyLabel, status == 403 ? "given" : "divided");
    pass(30s);
    EXPECT_EQ(cluster.desired(), status == 403 ? "given" : "divided");
    EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
    EXPECT_EQ(cluster.label(kCount), "there is none");
    EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("a webhook says no"));
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
    EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
    cluster.kill_agent();
    start(FeatureWay::none);
    cluster.kill_agent();
    ASSERT_EQ(cluster.label(kCount), "there is none");
  }
}

TEST_F(AgentLabels, OfOthersStayWhateverTheAnnotationSays) {
  const std::map<std::string, std::string> theirs = {
      {"kubernetes.io/hostname", "n1"}, {"nvidia.com/gpu.present", "true"}, {api::kPolicyLabel, "given"}};
  for (const auto& [key, value] : theirs) cluster.label(key, value);
  cluster.server.edit(
      kNode,
      {{"metadata",
        {{"annotations", {{api::kFeaturesAnnotation, json(theirs).dump()}}}, {"labels", {{kCount, "7"}}}}}});
  start(FeatureWay::none);
  for (const auto& [key, value] : theirs) EXPECT_EQ(cluster.label(key), value) << key;
  EXPECT_EQ(cluster.annotation(api::kFeaturesAnnotation), "");
}

TEST_F(AgentLabels, AreLeftToNodeFeatureDiscovery) {
  cluster.hostd.desired_changed();
  start(FeatureWay::node);
  cluster.kill_agent();
  start(FeatureWay::nfd);
  EXPECT_TRUE(features().empty());
  EXPECT_EQ(cluster.annotation(api::kFeaturesAnnotation), "");
}

}  // namespace
}  // namespace ferry::agent
