// SPDX-License-Identifier: Apache-2.0
// ResourceClaims in an API server in memory: reading them, their events, and claims that are gone.
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "dra/checkpoint.h"
#include "dra/claim.h"
#include "dra/dra_program.h"
#include "dra/names.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/event_recorder.h"
#include "tests/support/api_server.h"
#include "tests/support/virtual_clock.h"

namespace ferry::dra {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr auto kPatience = 20s;

class ClaimsOfServer : public testing::Test {
 protected:
  ClaimKey put(const std::string& name) {
    const json stored = server.put(
        {{"apiVersion", "resource.k8s.io/v1"},
         {"kind", "ResourceClaim"},
         {"metadata",
          {{"name", name},
           {"namespace", "studio"},
           {"labels", {{"a", "b"}}},
           {"annotations", {{"resource.kubernetes.io/pod-claim-name", "gpu"}}}}},
         {"spec",
          {{"devices",
            {{"constraints", json::array({{{"matchAttribute", "x"}}})},
             {"requests", json::array({{{"name", "card"},
                                        {"exactly",
                                         {{"deviceClassName", "l40s"},
                                          {"count", 1},
                                          {"selectors", json::array({{{"cel", "large"}}})}}}}})}}}}},
         {"status",
          {{"reservedFor", json::array({{{"name", "pod"}}})},
           {"allocation",
            {{"devices",
              {{"results", json::array({{{"request", "card"},
                                         {"driver", kDriver},
                                         {"pool", "node7/gpu-ferry"},
                                         {"device", "whole-0000-3b-00-0"}}})},
               {"config",
                json::array({{{"opaque", {{"driver", "other"}, {"parameters", {{"large", "x"}}}}}}})}}}}}}}});
    return {.uid = stored.at("metadata").at("uid").get<std::string>(), .space = "studio", .name = name};
  }
  Result<json> read(const ClaimKey& key) {
    std::optional<Result<json>> out;
    reader.read(key, [&out](Result<json> claim) { out = std::move(claim); });
    clock.run_until([&] { return out.has_value(); }, 5min);
    return out.value_or(fail(Errc::stuck, "no answer has come"));
  }
  std::vector<json> events() const {
    std::vector<json> out;
    for (const auto& [name, event] : server.objects({.kind = kube::kEvents})) out.push_back(event);
    return out;
  }

  test::VirtualClock clock;
  test::ApiServer server{clock};
  kube::ApiClient client{server, clock, [this] { return server.draw(); }, kPatience};
  KubeClaimReader reader{client, clock};
};

TEST_F(ClaimsOfServer, AreReadWithAllThatIsNeeded) {
  const ClaimKey key = put("render-a");
  const auto claim = read(key);
  ASSERT_TRUE(claim);
  const auto allocated = read_allocated_claim(*claim, key, "node7/gpu-ferry");
  ASSERT_TRUE(allocated) << allocated.error().message;
  EXPECT_EQ(allocated->record.pod_claim, "gpu");
  EXPECT_THAT(allocated->record.devices, SizeIs(1));
  EXPECT_EQ(claim->at("spec"), json::parse(R"({"devices": {"requests": [
    {"name": "card", "exactly": {"deviceClassName": "l40s", "count": 1}}]}})"));
  EXPECT_FALSE(claim->at("metadata").contains("labels"));
  const json& config = claim->at("status").at("allocation").at("devices").at("config").at(0);
  EXPECT_EQ(config.at("opaque"), (json{{"driver", "other"}}));
}

TEST_F(ClaimsOfServer, HaveTheNamesOfTheirClasses) {
  server.put(
      {{"apiVersion", "resource.k8s.io/v1"},
       {"kind", "DeviceClass"},
       {"metadata", {{"name", "l40s"}}},
       {"spec",
        {{"selectors", json::array({{{"cel", "large"}}})}, {"extendedResourceName", "nvidia.com/L40S"}}}});
  const auto read_class = [&](const std::string& name) {
    std::optional<Result<json>> out;
    reader.read_class(name, [&out](Result<json> object) { out = std::move(object); });
    clock.run_until([&] { return out.has_value(); }, 5min);
    return out.value_or(fail(Errc::stuck, "no answer has come"));
  };
  const auto read = read_class("l40s");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->at("spec"), (json{{"extendedResourceName", "nvidia.com/L40S"}}));
  const auto missing = read_class("h100");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("DeviceClass h100"));
}

TEST_F(ClaimsOfServer, AMissingOneAndASilentServerAreToldApart) {
  const auto missing = read({.uid = "u", .space = "studio", .name = "render-b"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("studio/render-b"));
  server.set_down(true);
  const auto began = clock.now();
  const auto silent = read({.uid = "u", .space = "studio", .name = "render-b"});
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Errc::unreachable);
  EXPECT_THAT(silent.error().message, HasSubstr("studio/render-b"));
  EXPECT_LT(clock.now() - began, 30s);
}

TEST_F(ClaimsOfServer, HaveEachMessageOnce) {
  kube::EventRecorder recorder(
      client, clock, [this] { return server.draw(); }, [this] { return clock.wall(); }, "node7", {},
      KubeClaimEvents::kController);
  KubeClaimEvents given(recorder, clock);
  const ClaimKey key = put("render-a");
  const Error error{.code = make_error_code(Errc::refused), .message = "in use", .hint = "wait"};
  for (int i = 0; i < 20; ++i) {
    given.failed(key, api::ClaimAction::prepare, error);
    clock.run_for(5s);
  }
  ASSERT_THAT(events(), SizeIs(1));
  const json event = events().front();
  EXPECT_EQ(event.at("count"), 1);
  EXPECT_EQ(event.at("type"), "Warning");
  EXPECT_EQ(event.at("reason"), json(KubeClaimEvents::kPrepareFailed));
  EXPECT_EQ(event.at("message"), "in use; wait");
  EXPECT_EQ(event.at("metadata").at("namespace"), "studio");
  EXPECT_EQ(event.at("reportingComponent"), "gpu-ferry.io/dra");
  EXPECT_EQ(event.at("involvedObject"), (json{{"apiVersion", "resource.k8s.io/v1"},
                                              {"kind", "ResourceClaim"},
                                              {"namespace", "studio"},
                                              {"name", "render-a"},
                                              {"uid", key.uid}}));
  given.failed(key, api::ClaimAction::unprepare, error);
  given.warned(key, "a sentence");
  given.failed(key, api::ClaimAction::prepare, {.code = error.code, .message = "another"});
  clock.run_for(5s);
  EXPECT_THAT(events(), SizeIs(4));
}

TEST_F(ClaimsOfServer, ALostDeviceIsAnEventOfTheClaimAndOfTheNode) {
  kube::EventRecorder recorder(
      client, clock, [this] { return server.draw(); }, [this] { return clock.wall(); }, "node7", {},
      KubeClaimEvents::kController);
  KubeClaimEvents given(recorder, clock);
  given.lost(put("render-a"), "it is gone");
  clock.run_for(5s);
  std::vector<std::string> kinds;
  for (const json& event : events()) {
    EXPECT_EQ(event.at("reason"), json(KubeClaimEvents::kLost));
    EXPECT_EQ(event.at("message"), "it is gone");
    kinds.push_back(event.at("involvedObject").at("kind"));
  }
  EXPECT_THAT(kinds, testing::UnorderedElementsAre("ResourceClaim", "Node"));
}

// A connection whose other end is gone: no try ends by itself before its deadline.
TEST_F(ClaimsOfServer, AReadEndsBeforeTheKubeletIsAnswered) {
  const ClaimKey key = put("render-a");
  server.chances.lost_before = 1;
  for (int i = 0; i < 20; ++i) {
    const auto began = clock.now();
    const auto claim = read(key);
    ASSERT_FALSE(claim);
    EXPECT_EQ(claim.error().code, Errc::unreachable);
    EXPECT_THAT(claim.error().message, HasSubstr("studio/render-a"));
    EXPECT_LE(clock.now() - began, KubeClaimReader::kLongest);
  }
  server.chances = {};
  EXPECT_TRUE(read(key));
  clock.run_for(5min);
  EXPECT_EQ(clock.waiting(), 0U);
}

class LostClaimsTest : public testing::Test {
 protected:
  void hold(const std::string& uid) {
    checkpoint.claims.push_back({.uid = uid, .space = "studio", .name = "render-" + uid});
  }

  test::VirtualClock clock;
  Checkpoint checkpoint{.boot_id = "b"};
  std::vector<std::set<std::string>> undone;  ///< each call's claims that stay
  bool can_undo = true;
  LostClaims lost{clock,
                  {.checkpoint = [this]() -> const Checkpoint& { return checkpoint; },
                   .unprepare_all_but =
                       [this](const std::set<std::string>& existing) {
                         undone.push_back(existing);
                         if (!can_undo) return;
                         std::erase_if(checkpoint.claims, [&](const CheckpointClaim& claim) {
                           return !existing.contains(claim.uid);
                         });
                       }}};
};

TEST_F(LostClaimsTest, OnesThatTheServerHasAreLeftAlone) {
  hold("a");
  lost.look({"a", "another"});
  EXPECT_EQ(clock.waiting(), 0U) << "nothing is awaited";
  clock.run_for(1h);
  EXPECT_THAT(undone, IsEmpty());
}

TEST_F(LostClaimsTest, OnesThatAreGoneAreUndoneAfterAPatience) {
  hold("a");
  hold("b");
  lost.look({"a"});
  clock.run_for(4min);
  EXPECT_THAT(undone, IsEmpty()) << "the kubelet may still ask";
  clock.run_for(2min);
  EXPECT_THAT(undone, ElementsAre(std::set<std::string>{"a"}));
  EXPECT_EQ(clock.waiting(), 0U);
}

TEST_F(LostClaimsTest, EachHasThePatienceOfItsOwn) {
  hold("a");
  hold("b");
  lost.look({"b"});
  clock.run_for(4min + 50s);
  lost.look({});
  clock.run_for(20s);
  EXPECT_THAT(undone, ElementsAre(std::set<std::string>{"b"})) << "the kubelet may still ask for b";
  clock.run_for(4min + 30s);
  EXPECT_THAT(undone, SizeIs(1));
  clock.run_for(20s);
  EXPECT_THAT(undone, ElementsAre(std::set<std::string>{"b"}, std::set<std::string>{}));
  EXPECT_EQ(clock.waiting(), 0U);
}

TEST_F(LostClaimsTest, OneThatComesBackHasItsPatienceAnew) {
  hold("a");
  lost.look({});
  clock.run_for(4min);
  lost.look({"a"});
  lost.look({});
  clock.run_for(4min);
  EXPECT_THAT(undone, IsEmpty());
}

TEST_F(LostClaimsTest, TheKubeletsOwnRequestIsEnough) {
  hold("a");
  lost.look({});
  checkpoint.claims.clear();
  lost.look({});
  EXPECT_EQ(clock.waiting(), 0U);
  clock.run_for(1h);
  EXPECT_THAT(undone, IsEmpty());
}

TEST_F(LostClaimsTest, OnesThatCannotBeUndoneYetAreTriedAgain) {
  hold("a");
  can_undo = false;
  lost.look({});
  clock.run_for(16min);
  EXPECT_THAT(undone, SizeIs(3));
  can_undo = true;
  clock.run_for(5min);
  EXPECT_THAT(checkpoint.claims, IsEmpty());
  EXPECT_EQ(clock.waiting(), 0U);
}

}  // namespace
}  // namespace ferry::dra
