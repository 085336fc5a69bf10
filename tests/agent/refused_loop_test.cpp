// SPDX-License-Identifier: Apache-2.0
// The agent's loop where the API server or a webhook refuses a request.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>

#include "agent/operator_compat/operands.h"
#include "api/labels.h"
#include "hostfs/host_fs.h"
#include "kube/api_path.h"
#include "tests/agent/one_node.h"
#include "tests/support/api_server.h"
#include "tests/support/log_of.h"
#include "tests/support/virtual_clock.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using test::AgentLoop;
using test::forbids;
using test::kValidator;
using testing::HasSubstr;

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
  std::size_t recorded() const {
    std::size_t count = 0;
    for (const auto& [name, event] : cluster.server.objects({.kind = kube::kEvents, .space = "default"}))
      if (event.at("message").get<std::string>().find("a webhook says no") != std::string::npos)
        count += event.value("count", std::size_t{1});
    return count;
  }
  std::size_t refusals = 0;
};

TEST_F(AgainstTheAgent, RecordsOnceWhatTheNodeDoesNotShow) {
  refuse(422, api::kStateLabel);
  cluster.hostd.fails = true;
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  for (int i = 0; i < 30; ++i) {
    pass(1min);
    cluster.hostd.desired_changed();
  }
  std::size_t count = 0;
  for (const auto& [name, event] : cluster.server.objects({.kind = kube::kEvents, .space = "default"}))
    if (event.at("reason") == "Failed") count += event.value("count", std::size_t{1});
  EXPECT_EQ(count, 1U);
}

TEST_F(AgainstTheAgent, WhatIsAskedForIsDoneAllTheSame) {
  cluster.start_agent();
  for (const char* const word : {api::kStateLabel, "gpu.deploy", "metadata"}) {
    for (const int status : {403, 422}) {
      cluster.put_validator();
      refuse(status, word);
      const auto recorded_before = recorded();
      const std::string desired_policy = status == 403 ? "given" : "divided";
      cluster.label(api::kPolicyLabel, desired_policy);
      pass(1min);
      EXPECT_NE(cluster.desired(), desired_policy) << "soon it may be permitted";
      if (word != std::string_view("metadata")) {
        EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("a webhook says no")) << word;
      }
      pass(3min);
      EXPECT_EQ(cluster.desired(), desired_policy) << word;
      EXPECT_EQ(cluster.hostd.is, desired_policy) << word;
      EXPECT_GT(recorded(), recorded_before) << word;
      pass(30min);
      const auto tried = refusals;
      const auto once = recorded();
      pass(2h);
      EXPECT_EQ(recorded(), once) << "nothing is recorded twice";
      EXPECT_LE(refusals - tried, 120U) << word;
      cluster.server.script = nullptr;
      pass(11min);
      EXPECT_EQ(cluster.label(api::kStateLabel), "ready") << word;
      EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "") << word;
      EXPECT_EQ(cluster.label(kValidator), "true") << word;
    }
  }
}

// Words that the Node does not take keep nobody paused and no node cordoned.
TEST_F(AgainstTheAgent, WhatIsDoneWaitsForNoWords) {
  cluster.put_validator();
  cluster.start_agent();
  cluster.label(api::kPolicyLabel, "given");
  cluster.clock.run_until([&] { return cluster.label(kValidator) == kPauseMark; }, 10s);
  cluster.hostd.fails = true;
  refuse(422, api::kErrorAnnotation);
  pass(1min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_EQ(cluster.label(kValidator), "true");
  EXPECT_EQ(cluster.annotation(api::kErrorAnnotation), "");
  pass(30min);
  const auto once = recorded();
  const auto tried = refusals;
  pass(2h);
  EXPECT_EQ(recorded(), once) << "nothing is recorded twice";
  EXPECT_GE(refusals - tried, 5U) << "it may be permitted by now";
  EXPECT_LE(refusals - tried, 60U);
  cluster.server.script = nullptr;
  pass(11min);
  EXPECT_NE(cluster.annotation(api::kErrorAnnotation), "");
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
  cluster.label(api::kPolicyLabel, "given");
  cluster.start_agent();
  pass(6min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "failed");
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("ConfigMap"));
  EXPECT_THAT(cluster.annotation(api::kErrorAnnotation), HasSubstr("403"));
  cluster.label(api::kPolicyLabel, nullptr);
  cluster.label(api::kWorkloadLabel, "container");
  pass(20s);
  EXPECT_EQ(cluster.desired(), "container") << "which needs none";
  cluster.label(api::kPolicyLabel, "given");
  cluster.server.script = {};
  pass(3min);
  EXPECT_EQ(cluster.label(api::kStateLabel), "ready");
}

}  // namespace
}  // namespace ferry::agent
