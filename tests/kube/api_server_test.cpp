// SPDX-License-Identifier: Apache-2.0
// That the server in memory does what tests take from it: the rules of the real one that they lean on.
#include "tests/support/api_server.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/kube/kube_fixture.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;

const std::string kNode = "/api/v1/nodes/n1";

class ApiServerTest : public testing::Test, public KubeFixture {
 protected:
  Result<kube::ApiReply> ask(kube::ApiRequest request) {
    std::optional<Result<kube::ApiReply>> reply;
    server.send(std::move(request),
                {.ended = [&](Result<kube::ApiReply> answer) { reply = std::move(answer); }});
    clock.run_until([&] { return reply.has_value(); }, 1h);
    return reply.value_or(fail(Errc::stuck, "no answer"));
  }
  int status(kube::ApiRequest request) {
    const auto reply = ask(std::move(request));
    return reply ? reply->status : 0;
  }
  kube::ApiRequest patch(const json& content, const std::string& manager = "ferry") {
    return {.method = "PATCH",
            .path = kNode + "?fieldManager=" + manager,
            .content_type = "application/merge-patch+json",
            .body = content.dump()};
  }
  kube::ApiRequest application(const json& content, const std::string& manager, bool force = false) {
    return {.method = "PATCH",
            .path = kNode + "?fieldManager=" + manager + (force ? "&force=true" : ""),
            .content_type = "application/apply-patch+yaml",
            .body = content.dump()};
  }
  std::string version() const { return server.object(kNode)["metadata"]["resourceVersion"]; }
};

TEST_F(ApiServerTest, AWriteThatChangesNothingIsNone) {
  server.put(node("n1", {{"a", "1"}}));
  const auto before = version();
  EXPECT_EQ(status(patch(labels("a", "1"))), 200);
  EXPECT_EQ(version(), before);
  EXPECT_EQ(status(patch(labels("a", "2"))), 200);
  EXPECT_NE(version(), before);
}

TEST_F(ApiServerTest, APatchOfAnOldVersionIsAConflict) {
  server.put(node("n1"));
  auto of_old = labels("a", "2");
  of_old["metadata"]["resourceVersion"] = version();
  server.edit(kNode, labels("a", "1"));
  EXPECT_EQ(status(patch(of_old)), 409);
  EXPECT_EQ(server.object(kNode)["metadata"]["labels"]["a"], "1");
}

TEST_F(ApiServerTest, OneWhoAppliesSharesOrTakesFields) {
  server.put(node("n1", {{"a", "1"}}));
  EXPECT_EQ(status(application(labels("a", "1"), "x")), 200) << "the same value is no conflict";
  EXPECT_EQ(status(application(labels("a", "2"), "x")), 409);
  EXPECT_EQ(status(application(labels("a", "2"), "x", true)), 200);
  EXPECT_EQ(status(application(labels("b", "2"), "x")), 200);
  EXPECT_FALSE(server.object(kNode)["metadata"]["labels"].contains("a"))
      << "given up, and nobody else's by then";
}

TEST_F(ApiServerTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(status({.path = "/api/v1/nodes/n1"}), 404);
  EXPECT_EQ(status({.path = "/api/v1/secrets"}), 404);
  EXPECT_EQ(status({.path = "/"}), 404);
  EXPECT_EQ(status({.method = "OPTIONS", .path = kNode, .content_type = {}, .body = "{}"}), 405);
  EXPECT_EQ(status({.method = "POST", .path = "/api/v1/nodes", .content_type = {}, .body = "x"}), 400);
  server.put(node("n1"));
  EXPECT_EQ(status({.method = "PATCH", .path = kNode, .content_type = "application/json", .body = "{}"}),
            415);
}

TEST_F(ApiServerTest, WhatIsSentArrivesThoughNobodyWaits) {
  server.put(node("n1"));
  server.cancel(server.send(patch(labels("a", "1")), {.ended = [](const auto&) { FAIL(); }}));
  clock.run_for(1min);
  EXPECT_EQ(server.object(kNode)["metadata"]["labels"]["a"], "1");
}

TEST_F(ApiServerTest, WhatIsLostIsKnownByTheDeadlineAtTheLatest) {
  server.put(node("n1"));
  for (int i = 0; i < 20; ++i) {
    server.next = {ApiFault::lost_after()};
    const auto before = clock.now();
    EXPECT_EQ(code_of(ask(patch(labels("a", std::to_string(i))))), Errc::unreachable);
    EXPECT_LE(clock.now() - before, 30s);
    EXPECT_EQ(server.object(kNode)["metadata"]["labels"]["a"], std::to_string(i));
  }
}

TEST_F(ApiServerTest, EqualSeedsFailAlike) {
  const auto explanation = [](std::uint64_t seed) {
    KubeFixture kube(seed);
    kube.server.chances = {.lost_before = 0.3, .lost_after = 0.3, .server_fault = 0.2};
    std::string out;
    for (int i = 0; i < 50; ++i)
      kube.server.send({.path = kNode}, {.ended = [&](const Result<kube::ApiReply>& reply) {
                         out += std::to_string(reply ? reply->status : 0) + " ";
                       }});
    kube.clock.run_for(1h);
    return out;
  };
  EXPECT_EQ(explanation(7), explanation(7));
  EXPECT_NE(explanation(7), explanation(8));
}

TEST_F(ApiServerTest, StreamsHaveEventsSinceAVersion) {
  server.put(node("n1"));
  const auto from = version();
  server.edit(kNode, labels("a", "1"));
  server.erase(kNode);
  std::string heard;
  std::optional<Result<kube::ApiReply>> reply;
  server.send(
      {.path = "/api/v1/nodes?watch=1&resourceVersion=" + from + "&timeoutSeconds=90", .deadline = 0ms},
      {.received = [&](std::string_view bytes) { heard += bytes; },
       .ended = [&](Result<kube::ApiReply> answer) { reply = std::move(answer); }});
  clock.run_for(2min);
  EXPECT_EQ(reply.value_or(fail(Errc::stuck, "open")).value_or(kube::ApiReply{}).status, 200);
  std::vector<std::string> types;
  for (std::size_t at = 0; at < heard.size(); at = heard.find('\n', at) + 1)
    types.push_back(json::parse(heard.substr(at, heard.find('\n', at) - at))["type"]);
  EXPECT_THAT(types, ElementsAre("MODIFIED", "DELETED", "BOOKMARK"));
}

// --- The clock ---------------------------------------------------------------------------------------------

TEST(VirtualClock, RunsWhatIsDueInOrder) {
  VirtualClock clock;
  std::string order;
  clock.at(clock.now() + 2s, [&] { order += "b"; });
  clock.at(clock.now() + 1s, [&] {
    order += "a";
    clock.at(clock.now() - 1h, [&] { order += "now"; });
  });
  const auto never = clock.at(clock.now() + 1s, [&] { order += "never"; });
  clock.cancel(never);
  clock.run_for(1s);
  EXPECT_EQ(order, "anow");
  EXPECT_TRUE(clock.run_until([&] { return order == "anowb"; }, 1h));
  EXPECT_FALSE(clock.run_until([] { return false; }, 1h));
  EXPECT_EQ(clock.waiting(), 0U);
}

TEST(VirtualClock, DoesNotStandStill) {
  VirtualClock clock;
  std::function<void()> again = [&] { clock.at(clock.now(), again); };
  again();
  EXPECT_THROW(clock.run_for(1s), std::runtime_error);
}

}  // namespace
