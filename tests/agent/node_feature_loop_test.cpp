// SPDX-License-Identifier: Apache-2.0
// The agent's loop and the NodeFeature object, which Node Feature Discovery reads.
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "api/labels.h"
#include "hostfs/host_fs.h"
#include "kube/api_transport.h"
#include "tests/agent/labelled_node.h"
#include "tests/agent/one_node.h"
#include "tests/support/api_server.h"
#include "tests/support/virtual_clock.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::AgentLabels;

class AgentNodeFeature : public AgentLabels {
 protected:
  static constexpr const char* kObject =
      "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpus/nodefeatures/ferry-features-for-n1";
  static constexpr const char* kOwner = "/api/v1/namespaces/gpus/configmaps/ferry-features";

  AgentNodeFeature() {
    cluster.hostd.desired_changed();
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
  EXPECT_EQ(object()["metadata"]["labels"], json({{"nfd.node.kubernetes.io/node-name", "n1"}}));
  EXPECT_EQ(said(kCount), "1");
  EXPECT_EQ(said(kGiven), "0");
  EXPECT_EQ(said("nvidia.com/gpu.memory"), json()) << "what is not known is not there";
  EXPECT_EQ(writes(), 1U);
  cluster.label(api::kPolicyLabel, "given");
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
      listener.ended = [this, ended = std::move(listener.ended)](const Result<kube::ApiReply>& reply) {
        clock_.at(clock_.now() + 4s, [ended, reply] { ended(reply); });
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
  cluster.label(api::kPolicyLabel, "given");
  pass(30s);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready") << "nothing else waits for it";
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
  EXPECT_TRUE(cluster.host.remove_file(api::kStatusFile));
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
  // Kubernetes' garbage collection does the same.
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

}  // namespace
}  // namespace ferry::agent
