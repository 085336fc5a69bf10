// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "dra/publish/slice_publisher.h"
#include "kube/api_error.h"
#include "kube/api_path.h"
#include "tests/support/api_server.h"
#include "tests/support/virtual_clock.h"

namespace ferry::dra {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

kube::ApiReply reply_of(int status, const json& body) {
  return {.status = status, .body = body.dump()};
}

TEST(ServerFeatures, AreTheFieldsThatComeBack) {
  const json sent = slice_json(probe_slice({.node = "node7"}));
  const auto all = features_of_answer(reply_of(201, sent));
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->counters);
  EXPECT_TRUE(all->taints);
  EXPECT_TRUE(all->compatibility_groups);
  json kept = sent;
  for (json& device : kept["spec"]["devices"]) device.erase("consumesCounters");
  EXPECT_EQ(features_of_answer(reply_of(201, kept)).value_or(ServerFeatures()),
            (ServerFeatures{.counters = false, .taints = true, .compatibility_groups = false}));
}

TEST(ServerFeatures, ARefusalAsInvalidIsAServerWithout) {
  const auto none = features_of_answer(reply_of(422, {{"kind", "Status"}, {"reason", "Invalid"}}));
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, ServerFeatures());
}

TEST(ServerFeatures, AnOldServerIsNamedAsSuch) {
  const auto old = features_of_answer(kube::ApiReply{.status = 404, .body = "404 page not found\n"});
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code, Errc::unsupported);
  EXPECT_THAT(old.error().message, HasSubstr("resource.k8s.io/v1"));
  EXPECT_THAT(old.error().hint, HasSubstr("1.34"));
}

TEST(ServerFeatures, OtherAnswersSayNothing) {
  const auto forbidden =
      features_of_answer(reply_of(403, {{"kind", "Status"}, {"reason", "Forbidden"}, {"code", 403}}));
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().code, kube::ApiErrc::forbidden);
  EXPECT_EQ(features_of_answer(fail(Errc::unreachable, "the connection was lost")).error().code,
            Errc::unreachable);
  const auto nonsense = features_of_answer(kube::ApiReply{.status = 201, .body = "?"});
  ASSERT_FALSE(nonsense);
  EXPECT_EQ(nonsense.error().code, Errc::malformed_host);
  EXPECT_THAT(nonsense.error().message, HasSubstr("as a trial: "));
}

TEST(FeatureProbe, StoresNothing) {
  test::VirtualClock clock;
  test::ApiServer server(clock);
  FeatureProbe probe(server);
  std::vector<Result<ServerFeatures>> answers;
  probe.begin({.node = "node7"},
              [&](Result<ServerFeatures> answer) { answers.push_back(std::move(answer)); });
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(probe.is_under_way());
  clock.run_for(5s);
  ASSERT_EQ(answers.size(), 1U);
  ASSERT_TRUE(answers.front());
  EXPECT_TRUE(answers.front()->counters);
  EXPECT_FALSE(probe.is_under_way());
  EXPECT_TRUE(server.objects({.kind = kube::kResourceSlices}).empty());
  EXPECT_EQ(server.count("POST", "dryRun=All"), 1U);
  EXPECT_EQ(server.count("POST", "fieldValidation=Ignore"), 1U);
}

TEST(FeatureProbe, ForgetsItsRequestAtItsEnd) {
  test::VirtualClock clock;
  test::ApiServer server(clock);
  bool answered = false;
  {
    FeatureProbe probe(server);
    probe.begin({.node = "node7"}, [&](const Result<ServerFeatures>&) { answered = true; });
  }
  clock.run_for(1min);
  EXPECT_FALSE(answered);
}

}  // namespace
}  // namespace ferry::dra
