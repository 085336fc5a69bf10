// SPDX-License-Identifier: Apache-2.0
#include "kube/event_recorder.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kube/kube_fixture.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::SizeIs;

constexpr auto kNormal = kube::EventRecorder::Type::normal;
constexpr auto kWarning = kube::EventRecorder::Type::warning;

class EventRecorderTest : public testing::Test, public KubeFixture {
 protected:
  std::vector<json> events() const {
    std::vector<json> out;
    for (const auto& [key, event] : server.objects({.kind = kube::kEvents})) out.push_back(event);
    return out;
  }
  /// The messages that are there then.
  std::vector<std::string> written_after(std::chrono::seconds time) {
    clock.run_for(time);
    std::vector<std::string> out;
    for (const json& event : events()) out.push_back(event["message"].get<std::string>());
    return out;
  }
  json only_event() const {
    const auto all = events();
    return all.size() == 1 ? all.front() : json{{"events", all.size()}};
  }
  kube::EventRecorder recorder_of(const std::string& node) {
    return {client, clock, [this] { return server.draw(); }, [this] { return clock.wall(); }, node};
  }

  kube::EventRecorder recorder = recorder_of("n1");
};

TEST_F(EventRecorderTest, WritesWhatKubectlDescribeNodeShows) {
  recorder.record(kWarning, "InUse", "0000:3b:00.0 is in use by qemu (pid 7)");
  clock.run_for(5s);
  auto event = only_event();
  EXPECT_EQ(event["involvedObject"],
            (json{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", "n1"}, {"uid", "n1"}}));
  EXPECT_EQ(event["metadata"]["namespace"], "default");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(event["reason"], "InUse");
  EXPECT_EQ(event["message"], "0000:3b:00.0 is in use by qemu (pid 7)");
  EXPECT_EQ(event["source"], (json{{"component", "ferry"}, {"host", "n1"}}));
  EXPECT_EQ(event["reportingComponent"], "gpu-ferry.io/agent");
  EXPECT_EQ(event["count"], 1);
  EXPECT_EQ(event["firstTimestamp"], "1970-01-01T01:00:00Z");
  EXPECT_EQ(event["lastTimestamp"], "1970-01-01T01:00:00Z");
}

TEST_F(EventRecorderTest, AnEventOfAnotherObjectIsInItsNamespace) {
  const kube::EventSubject claim{
      .object = {.kind = kube::kResourceClaims, .space = "studio", .name = "render-a"}, .uid = "u-1"};
  recorder.record(claim, kWarning, "Failed", "one");
  recorder.record(claim, kWarning, "Failed", "one");
  recorder.record({.object = claim.object, .uid = "u-2"}, kWarning, "Failed", "one");
  recorder.record(kWarning, "Failed", "one");
  clock.run_for(5s);
  std::vector<json> of_claims;
  for (const json& event : events())
    if (event["metadata"]["namespace"] == "studio") of_claims.push_back(event);
  EXPECT_THAT(events(), SizeIs(3));
  ASSERT_THAT(of_claims, SizeIs(2));
  for (const json& event : of_claims) {
    EXPECT_EQ(event["involvedObject"]["kind"], "ResourceClaim");
    EXPECT_EQ(event["involvedObject"]["namespace"], "studio");
    EXPECT_EQ(event["source"]["host"], "n1");
    EXPECT_TRUE(event["metadata"]["name"].get<std::string>().starts_with("render-a."));
  }
}

TEST_F(EventRecorderTest, CountsTheSameAgain) {
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(1min);
  recorder.record(kNormal, "Bound", "one");
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(1min);
  EXPECT_EQ(only_event()["count"], 3);
  EXPECT_EQ(only_event()["firstTimestamp"], "1970-01-01T01:00:00Z");
  EXPECT_EQ(only_event()["lastTimestamp"], "1970-01-01T01:01:00Z");
  EXPECT_EQ(server.count("POST"), 1U);
}

TEST_F(EventRecorderTest, AnotherReasonOrMessageIsAnotherEvent) {
  recorder.record(kNormal, "Bound", "one");
  recorder.record(kNormal, "Bound", "two");
  recorder.record(kNormal, "Unbound", "one");
  clock.run_for(5s);
  EXPECT_THAT(events(), SizeIs(3));
}

TEST_F(EventRecorderTest, TheSameAfterTenMinutesIsAnother) {
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(9min);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(9min);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_EQ(only_event()["count"], 3) << "ten minutes since the last of them";
  clock.run_for(10min);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_THAT(events(), SizeIs(2));
}

TEST_F(EventRecorderTest, GoesByNoClockOnTheWall) {
  recorder.record(kNormal, "Bound", "one");
  clock.skew = -24h;
  clock.run_for(1min);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_EQ(only_event()["count"], 2);
}

TEST_F(EventRecorderTest, MakesOneAnewThatTheServerHasDeleted) {
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(1min);
  server.erase("/api/v1/namespaces/default/events/" + only_event()["metadata"]["name"].get<std::string>());
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_EQ(only_event()["count"], 2);
}

TEST_F(EventRecorderTest, SendsNoTwoWritesOfOneEventAtATime) {
  server.chances.late = 1;
  for (int i = 0; i < 5; ++i) {
    recorder.record(kNormal, "Bound", "one");
    clock.run_for(1ms);
  }
  EXPECT_EQ(server.seen().size(), 1U);
  server.chances = {};
  clock.run_for(10min);
  EXPECT_EQ(only_event()["count"], 5) << "what was counted meanwhile follows";
}

TEST_F(EventRecorderTest, WritesTenAtOnceAndThenOneEachHalfMinute) {
  for (int i = 0; i < 30; ++i) recorder.record(kNormal, "Bound", std::to_string(i));
  clock.run_for(1s);
  EXPECT_THAT(events(), SizeIs(10));
  for (int i = 0; i < 600; ++i) {
    recorder.record(kNormal, "Unbound", std::to_string(i / 10));
    clock.run_for(1s);
  }
  EXPECT_LE(server.seen().size(), 10U + 20U);
  EXPECT_GE(server.seen().size(), 10U + 18U);
}

TEST_F(EventRecorderTest, CountsWhatItMayNotWrite) {
  for (int i = 0; i < 100; ++i) recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  const auto written = server.seen().size();
  for (int i = 0; i < 100; ++i) {
    recorder.record(kNormal, "Bound", "one");
    clock.run_for(3s);
  }
  EXPECT_LE(server.seen().size() - written, 20U);
  clock.run_for(1min);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_EQ(only_event()["count"], 201);
}

// A node of eight GPUs tells of all of them, though somewhat later.
TEST_F(EventRecorderTest, WritesABurstInItsOrderAsItMay) {
  for (int i = 0; i < 16; ++i) recorder.record(kWarning, "Blocked", fmt::format("gpu {:02}", i));
  clock.run_for(5s);
  EXPECT_THAT(events(), SizeIs(10));
  clock.run_for(31s);
  EXPECT_THAT(events(), SizeIs(11));
  EXPECT_TRUE(std::ranges::any_of(events(), [](const json& event) { return event["message"] == "gpu 10"; }));
  clock.run_for(3min);
  EXPECT_THAT(events(), SizeIs(16));
  EXPECT_EQ(clock.waiting(), 0U) << "then there is nothing to wait for";
}

TEST_F(EventRecorderTest, NoWarningWaitsForWhatIsNormal) {
  for (int i = 0; i < 1'000; ++i) recorder.record(kNormal, "Bound", std::to_string(i));
  for (int i = 0; i < 11; ++i) recorder.record(kWarning, "InUse", std::to_string(i));
  clock.run_for(1s);
  const auto warnings = [this] {
    return std::ranges::count_if(events(), [](const json& event) { return event["type"] == "Warning"; });
  };
  EXPECT_EQ(warnings(), 10);
  EXPECT_THAT(events(), SizeIs(20));
  clock.run_for(31s);
  EXPECT_EQ(warnings(), 11);
  EXPECT_THAT(events(), SizeIs(22)) << "nor the other way round";
}

TEST_F(EventRecorderTest, RemembersNoMoreThanItMayEverWrite) {
  for (int i = 0; i < 10'000; ++i) recorder.record(kNormal, "Bound", fmt::format("{:04}", i));
  EXPECT_THAT(written_after(9min),
              testing::AllOf(testing::SizeIs(testing::Ge(25U)), testing::Each(testing::Lt("0100"))))
      << "what comes later than it can remember is passed over";
  clock.run_for(11min);
  recorder.record(kNormal, "Bound", "the last");
  clock.run_for(5s);
  const auto all = events();
  EXPECT_TRUE(std::ranges::any_of(all, [](const json& event) { return event["message"] == "the last"; }))
      << "what is old makes room";
}

TEST_F(EventRecorderTest, IsLostWithoutHarm) {
  server.set_down(true);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5min);
  EXPECT_EQ(client.under_way(), 0U);
  server.set_down(false);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_EQ(only_event()["count"], 2) << "made when it can be, with all that were";
}

TEST_F(EventRecorderTest, IsMadeOnceThoughTheAnswerWasLost) {
  server.next = {ApiFault::lost_after()};
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(2min);
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  EXPECT_EQ(only_event()["count"], 2);
}

TEST_F(EventRecorderTest, NothingIsSentWhenItIsNotPermitted) {
  server.script = [](const kube::ApiRequest&) { return ApiFault::status_of(403, "Forbidden"); };
  for (int i = 0; i < 100; ++i) {
    recorder.record(kNormal, "Bound", "one");
    clock.run_for(1s);
  }
  EXPECT_LE(server.seen().size(), 15U);
}

TEST_F(EventRecorderTest, LogsOnceThatNoneIsTaken) {
  std::vector<std::string> hints;
  kube::EventRecorder telling(
      client, clock, [this] { return server.draw(); }, [this] { return clock.wall(); }, "n1",
      [&](const Error& error) { hints.push_back(error.hint); });
  server.script = [](const kube::ApiRequest&) { return ApiFault::status_of(403, "Forbidden"); };
  for (int i = 0; i < 3; ++i) telling.record(kNormal, "Bound", std::to_string(i));
  clock.run_for(5s);
  ASSERT_THAT(hints, SizeIs(1));
  EXPECT_THAT(hints.front(), testing::HasSubstr("lacks the verb create on events"));
  server.script = {};
  telling.record(kNormal, "Bound", "written");
  clock.run_for(5s);
  server.script = [](const kube::ApiRequest&) { return ApiFault::status_of(403, "Forbidden"); };
  telling.record(kNormal, "Bound", "again not");
  clock.run_for(5s);
  EXPECT_THAT(hints, SizeIs(2));
}

TEST_F(EventRecorderTest, AsksNothingWhileNothingHappens) {
  recorder.record(kNormal, "Bound", "one");
  clock.run_for(5s);
  const auto before = server.seen().size();
  clock.run_for(1h);
  EXPECT_EQ(server.seen().size(), before);
  EXPECT_EQ(clock.waiting(), 0U);
}

struct LongMessage {
  const char* what;
  std::string message;
  std::size_t kept;
};

class CutMessage : public EventRecorderTest, public testing::WithParamInterface<LongMessage> {};

TEST_P(CutMessage, EndsBetweenTwoCharacters) {
  recorder.record(kNormal, "Bound", GetParam().message);
  clock.run_for(5s);
  EXPECT_EQ(only_event()["message"].get<std::string>(), GetParam().message.substr(0, GetParam().kept));
}

INSTANTIATE_TEST_SUITE_P(
    Table, CutMessage,
    testing::Values(LongMessage{"Empty", "", 0}, LongMessage{"Fits", std::string(1024, 'x'), 1024},
                    LongMessage{"OneMore", std::string(1025, 'x'), 1024},
                    LongMessage{"TwoBytes", std::string(1023, 'x') + "\xC3\xA9", 1023},
                    LongMessage{"TwoBytesFit", std::string(1022, 'x') + "\xC3\xA9", 1024},
                    LongMessage{"ThreeBytes", std::string(1022, 'x') + "\xE2\x82\xAC", 1022},
                    LongMessage{"FourBytes", std::string(1021, 'x') + "\xF0\x9F\x9A\xA2", 1021}),
    [](const auto& row) { return row.param.what; });

TEST_F(EventRecorderTest, WrongBytesAreReplaced) {
  recorder.record(kNormal, "Bound", std::string(2'000, '\xBF'));
  recorder.record(kNormal, "Bound", "a\xFF");
  clock.run_for(5s);
  EXPECT_EQ(server.count("POST"), 2U);
}

TEST_F(EventRecorderTest, NamesAreLegalAndUnique) {
  auto long_name = recorder_of(std::string(219, 'a') + "." + std::string(33, 'b'));
  for (int i = 0; i < 5; ++i) {
    recorder.record(kNormal, "Bound", std::to_string(i));
    long_name.record(kNormal, "Bound", std::to_string(i));
  }
  clock.run_for(5s);
  std::set<std::string> names;
  for (const auto& event : events()) names.insert(event["metadata"]["name"]);
  EXPECT_THAT(names, SizeIs(10));
  for (const auto& name : names) {
    EXPECT_LE(name.size(), 253U);
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-"), std::string::npos) << name;
    EXPECT_EQ(name.find(".."), std::string::npos) << name;
  }
}

TEST_F(EventRecorderTest, NothingIsHeardOfOneThatIsGone) {
  {
    auto gone = recorder_of("n2");
    gone.record(kNormal, "Bound", "one");
  }
  EXPECT_EQ(client.under_way(), 0U);
  clock.run_for(1h);
}

}  // namespace
