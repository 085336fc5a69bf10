// SPDX-License-Identifier: Apache-2.0
#include "kube/object_watch.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kube/kube_fixture.h"
#include "tests/kube/watching.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kNode = "/api/v1/nodes/n1";
const std::string kMap = "/api/v1/namespaces/a/configmaps/m";

class ObjectWatchTest : public testing::Test, public KubeFixture {
 protected:
  ObjectWatchTest() {
    server.put(node("n1", {{"a", "1"}}));
    server.put(node("n2"));
  }

  std::size_t lists() const { return server.count("GET") - watches(); }
  std::size_t watches() const { return server.count("GET", "watch=1"); }
  std::string label(const std::string& key) const {
    const auto found = watching->objects().find("n1");
    if (found == watching->objects().end()) return "no such node";
    return found->second.value(json::json_pointer("/metadata/labels/" + key), "");
  }
  /// From a watch that is listed and open.
  void settle() {
    clock.run_for(1s);
    said_before = watching.said.size();
    changes_before = watching.changes;
  }
  int changes() const { return watching.changes - changes_before; }
  /// The query of the last request for a watch.
  std::string last_watch() const {
    std::string path;
    for (const auto& seen : server.seen())
      if (seen.is_watch()) path = seen.request.path;
    return path;
  }
  std::string server_version() const { return server.object(kNode)["metadata"]["resourceVersion"]; }

  Watching watching{*this, kube::only(kube::node_ref("n1")), [this] { return server.draw(); }};
  std::size_t said_before = 0;
  int changes_before = 0;
};

TEST_F(ObjectWatchTest, HasWhatTheServerHas) {
  EXPECT_FALSE(watching->listed());
  settle();
  EXPECT_TRUE(watching->listed());
  EXPECT_EQ(watching->objects(), server.objects(kube::only(kube::node_ref("n1"))));
  EXPECT_FALSE(watching->objects().at("n1")["metadata"].contains("managedFields"));
  EXPECT_EQ(watching.changes, 1);
  EXPECT_THAT(watching.said, IsEmpty());
}

TEST_F(ObjectWatchTest, ReportsEachRequestForAWatchAndTheVersionThatItHas) {
  int opened = 0;
  kube::ObjectWatch watch(
      server, clock, [this] { return server.draw(); }, kube::only(kube::node_ref("n1")),
      {.changed = [] {}, .trouble = [](const Error&) {}, .well = [] {}, .opened = [&opened] { ++opened; }});
  EXPECT_EQ(watch.version(), "");
  ASSERT_TRUE(watch.begin());
  EXPECT_EQ(opened, 0);
  clock.run_for(1s);
  EXPECT_EQ(opened, 1);
  server.edit(kNode, labels("a", "2"));
  clock.run_for(1s);
  EXPECT_EQ(watch.version(), server_version());
  server.cut_streams();
  clock.run_for(5s);
  EXPECT_EQ(opened, 2);
  clock.run_for(1h);
  EXPECT_GE(opened, 2 + 5) << "the server ends a watch after ten minutes at the latest";
}

TEST_F(ObjectWatchTest, ReportsThatThereIsNothing) {
  const Watching none(*this, kube::only(kube::config_map_ref("a", "m")), [] { return 0.5; });
  clock.run_for(1s);
  EXPECT_TRUE(none->listed());
  EXPECT_EQ(none.changes, 1);
  EXPECT_THAT(none->objects(), IsEmpty());
}

TEST_F(ObjectWatchTest, FollowsWhatHappens) {
  const Watching maps(*this,
                      kube::Selection{.kind = kube::kConfigMaps, .space = "a", .fields = {}, .labels = {}},
                      [this] { return server.draw(); });
  clock.run_for(1s);
  server.put(config_map("a", "m", "one"));
  server.put(config_map("b", "m", "another namespace's"));
  clock.run_for(1s);
  EXPECT_EQ(maps->objects().at("a/m")["data"]["config.yaml"], "one");
  server.put(config_map("a", "m", "two"));
  clock.run_for(1s);
  EXPECT_EQ(maps->objects().at("a/m")["data"]["config.yaml"], "two");
  server.erase(kMap);
  clock.run_for(1s);
  EXPECT_THAT(maps->objects(), IsEmpty());
  EXPECT_EQ(maps.changes, 4);
}

TEST_F(ObjectWatchTest, AnObjectThatIsNoLongerSelectedGoes) {
  const Watching pods(*this,
                      kube::Selection{.kind = kube::kPods, .space = {}, .fields = {}, .labels = "app=x"},
                      [this] { return server.draw(); });
  auto labelled = pod("a", "p");
  labelled["metadata"]["labels"] = {{"app", "x"}};
  server.put(labelled);
  clock.run_for(1s);
  EXPECT_EQ(pods->objects().size(), 1U);
  server.edit("/api/v1/namespaces/a/pods/p", labels("app", "y"));
  clock.run_for(1s);
  EXPECT_THAT(pods->objects(), IsEmpty());
}

TEST_F(ObjectWatchTest, RefusesWhatNoObjectCanBeCalled) {
  kube::ObjectWatch watch(server, clock, [] { return 0.5; }, {.kind = kube::kConfigMaps, .space = ".."}, {});
  EXPECT_EQ(code_of(watch.begin()), Errc::usage);
}

// --- While nothing happens ---------------------------------------------------------------------------------

TEST_F(ObjectWatchTest, AsksLittleInAnIdleHour) {
  settle();
  const auto before = server.seen().size();
  clock.run_for(1h);
  const auto asked = server.seen().size() - before;
  EXPECT_GE(asked, 6U);
  EXPECT_LE(asked, 12U) << "the server ends each watch after five to ten minutes, and nothing else does";
  EXPECT_EQ(lists(), 1U);
  EXPECT_EQ(server.open_streams(), 1U);
  EXPECT_EQ(changes(), 0);
  EXPECT_THAT(watching.said, IsEmpty());
}

TEST_F(ObjectWatchTest, HasOneRequestOpenAndNoTimer) {
  settle();
  const auto waiting = clock.waiting();
  server.cut_streams();
  EXPECT_EQ(clock.waiting(), waiting - 3 + 1) << "three were the server's; one is until the next try";
  settle();
  EXPECT_EQ(clock.waiting(), waiting);
}

TEST_F(ObjectWatchTest, DoesNotEndAllWatchesAtOnce) {
  settle();
  clock.run_for(3h);
  std::set<std::string> timeouts;
  for (const auto& seen : server.seen())
    if (seen.is_watch()) timeouts.insert(seen.request.path.substr(seen.request.path.find("timeoutSeconds=")));
  EXPECT_GT(timeouts.size(), 5U);
}

// --- Taken up where it was ---------------------------------------------------------------------------------

TEST_F(ObjectWatchTest, GoesOnFromTheLastVersionWhenTheServerEndsIt) {
  settle();
  server.edit(kNode, labels("a", "2"));
  clock.run_for(11min);
  EXPECT_GE(watches(), 2U);
  EXPECT_EQ(lists(), 1U);
  EXPECT_THAT(last_watch(), HasSubstr("resourceVersion=" + server_version() + "&"));
}

TEST_F(ObjectWatchTest, GoesOnFromABookmark) {
  settle();
  for (int i = 0; i < 100; ++i) server.put(config_map("a", "m", std::to_string(i)));
  clock.run_for(90s);  // another kind's history moves on, and a bookmark says so
  server.compact();
  server.cut_streams();
  clock.run_for(1min);
  EXPECT_EQ(lists(), 1U) << "what was forgotten is from before the bookmark";
}

TEST_F(ObjectWatchTest, SeesWhatHappenedWhileItWasCut) {
  settle();
  clock.run_for(40s);
  server.cut_streams();
  server.edit(kNode, labels("a", "2"));
  clock.run_for(5s);
  EXPECT_EQ(label("a"), "2");
  EXPECT_EQ(lists(), 1U);
  EXPECT_THAT(watching.said, IsEmpty()) << "that a connection is lost is no trouble";
}

TEST_F(ObjectWatchTest, NoticesADeadConnection) {
  settle();
  server.silence_streams();
  server.edit(kNode, labels("a", "2"));
  clock.run_for(5min);
  EXPECT_EQ(label("a"), "2");
}

TEST_F(ObjectWatchTest, AsksMoreAndMoreSlowlyWhereEachWatchIsCutAtOnce) {
  settle();
  const auto before = server.seen().size();
  for (int i = 0; i < 600; ++i) {
    server.cut_streams();
    clock.run_for(1s);
  }
  EXPECT_LE(server.seen().size() - before, 90U);
  server.edit(kNode, labels("a", "2"));
  clock.run_for(2min);
  EXPECT_EQ(label("a"), "2");
}

TEST_F(ObjectWatchTest, FollowsThroughWatchesThatAreCutEverySecond) {
  settle();
  for (int i = 0; i < 100; ++i) {
    server.edit(kNode, labels("a", std::to_string(i)));
    clock.run_for(1s);
    server.cut_streams();
  }
  clock.run_for(1min);
  EXPECT_EQ(label("a"), "99");
  EXPECT_LE(lists(), 20U);
}

// --- Forgotten history ------------------------------------------------------------------------------------

class ExpiredWatch : public ObjectWatchTest, public testing::WithParamInterface<int> {};

// The server says it in the stream or in place of it: some of these seeds each.
TEST_P(ExpiredWatch, IsListedAnewAtOnce) {
  for (int i = 0; i < GetParam(); ++i) server.draw();
  settle();
  clock.run_for(40s);  // then a lost connection is taken up where it was
  server.set_down(true);
  server.put(node("n1", {{"a", "2"}}));
  server.compact();
  server.set_down(false);
  clock.run_for(3s);
  EXPECT_EQ(label("a"), "2");
  EXPECT_EQ(lists(), 2U);
  EXPECT_EQ(watches(), 3U) << "the one that was cut, the one that was too late, the new one";
  EXPECT_THAT(watching.said, IsEmpty());
  EXPECT_EQ(server.open_streams(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Table, ExpiredWatch, testing::Range(0, 8));

TEST_F(ObjectWatchTest, AnObjectThatWentWhileItsHistoryWasForgottenGoes) {
  settle();
  clock.run_for(40s);
  server.cut_streams();
  server.erase(kNode);
  server.compact();
  clock.run_for(3s);
  EXPECT_THAT(watching->objects(), IsEmpty());
  EXPECT_EQ(changes(), 1);
}

TEST_F(ObjectWatchTest, AServerThatForgetsEverythingAlwaysIsNotAskedWithoutEnd) {
  server.chances.compacted = 1;
  server.script = [this](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("watch=1") != std::string::npos)
      server.put(config_map("a", "m", std::to_string(server.draw())));
    return std::nullopt;
  };
  settle();
  const auto before = server.seen().size();
  clock.run_for(1h);
  EXPECT_LE(server.seen().size() - before, 400U);
  EXPECT_THAT(watching.said, ElementsAre("trouble")) << "reported once";
  server.script = nullptr;
  server.chances = {};
  server.edit(kNode, labels("a", "2"));
  clock.run_for(3min);
  EXPECT_EQ(label("a"), "2");
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
}

TEST_F(ObjectWatchTest, ARestoredServerWithOlderVersionsIsBelieved) {
  settle();
  // As after etcd was put back: everything is younger than we are.
  server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("watch=1") != std::string::npos) return ApiFault::lost_before();
    return ApiFault{.status = 200, .body = R"({"metadata":{"resourceVersion":"5"},"items":[
                       {"metadata":{"name":"n1","resourceVersion":"4","labels":{"a":"old"}}}]})"};
  };
  server.set_down(true);
  clock.run_for(10s);
  server.set_down(false);
  clock.run_for(1min);
  EXPECT_EQ(label("a"), "old");
  EXPECT_THAT(last_watch(), HasSubstr("resourceVersion=5&"));
}

// --- What a stream may carry
// --------------------------------------------------------------------------------

TEST_F(ObjectWatchTest, WhatIsSentTwiceOrLateChangesNothing) {
  settle();
  const auto older = server.object(kNode);
  server.edit(kNode, labels("a", "2"));
  const auto newer = server.object(kNode);
  clock.run_for(1s);
  const auto before = watching.changes;
  for (const auto& [type, object] : {std::pair("MODIFIED", older), std::pair("MODIFIED", newer),
                                     std::pair("ADDED", older), std::pair("DELETED", older)})
    server.say(json{{"type", type}, {"object", object}}.dump());
  EXPECT_EQ(label("a"), "2");
  EXPECT_EQ(watching.changes, before);

  server.erase(kNode);
  clock.run_for(1s);
  server.say(json{{"type", "MODIFIED"}, {"object", newer}}.dump());
  EXPECT_THAT(watching->objects(), IsEmpty()) << "what is gone is not brought back";
}

TEST_F(ObjectWatchTest, ReportsOnceForAllThatCameTogether) {
  settle();
  for (int i = 0; i < 10; ++i) server.put(node("n1", {{"a", std::to_string(i)}}));
  clock.run_for(1s);
  EXPECT_GE(changes(), 1);
  EXPECT_LE(changes(), 20);
  EXPECT_EQ(label("a"), "9");
}

struct Broken {
  const char* what;
  std::string line;
  const char* says;
};

class BrokenStream : public ObjectWatchTest, public testing::WithParamInterface<Broken> {};

TEST_P(BrokenStream, IsTroubleAndReadAnew) {
  settle();
  server.say(GetParam().line);
  EXPECT_THAT(watching.said, ElementsAre("trouble"));
  ASSERT_EQ(watching.troubles.size(), 1U);
  EXPECT_THAT(watching.troubles.front().message, HasSubstr(GetParam().says));
  EXPECT_EQ(server.open_streams(), 0U);
  server.edit(kNode, labels("a", "2"));
  clock.run_for(2min);
  EXPECT_EQ(label("a"), "2");
  EXPECT_EQ(lists(), 2U);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
}

INSTANTIATE_TEST_SUITE_P(Table, BrokenStream,
                         testing::Values(Broken{"Html", "<html>", "is no JSON object"},
                                         Broken{"Unknown", R"({"type":"MOVED","object":{}})", "of a type"},
                                         Broken{"ErrorWithoutCode",
                                                R"({"type":"ERROR","object":{"message":"odd"}})", "odd"},
                                         Broken{"TooLong", std::string(3UL * 1024 * 1024, 'x'), "more than"}),
                         [](const auto& row) { return row.param.what; });

TEST_F(ObjectWatchTest, AFaultInTheStreamIsTroubleWhenItComesAgain) {
  settle();
  const auto* const fault = R"({"type":"ERROR","object":{"code":500,"message":"etcd is slow"}})";
  server.say(fault);
  clock.run_for(10s);
  EXPECT_THAT(watching.said, IsEmpty());
  EXPECT_EQ(server.open_streams(), 1U);
  server.say(fault);
  EXPECT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_THAT(watching.troubles.front().message, HasSubstr("etcd is slow"));
  clock.run_for(3min);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
}

TEST_F(ObjectWatchTest, AServerThatIsBusyOnceIsNoTrouble) {
  server.next = {ApiFault::status_of(503, "ServiceUnavailable")};
  clock.run_for(5s);
  EXPECT_TRUE(watching->listed());
  EXPECT_THAT(watching.said, IsEmpty());
}

// --- Trouble ----------------------------------------------------------------------------------------------

TEST_F(ObjectWatchTest, ReportsTroubleOnceAndWhenItIsOver) {
  settle();
  server.set_down(true);
  clock.run_for(10min);
  EXPECT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_EQ(watching.troubles.front().code, Errc::unreachable);
  EXPECT_EQ(label("a"), "1") << "what was known is kept";
  server.erase(kNode);
  server.set_down(false);
  clock.run_for(1min);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
  EXPECT_THAT(watching->objects(), IsEmpty()) << "what went meanwhile is noticed";
}

TEST_F(ObjectWatchTest, AsksAServerThatIsDownLessAndLess) {
  settle();
  server.set_down(true);
  const auto before = server.seen().size();
  clock.run_for(1h);
  EXPECT_LE(server.seen().size() - before, 200U);
  EXPECT_GE(server.seen().size() - before, 60U) << "and comes back within a minute";
}

struct Documented {
  const char* what;
  int code;
  const char* reason;
  kube::ApiErrc meaning;
};

class RefusedWatch : public ObjectWatchTest, public testing::WithParamInterface<Documented> {};

TEST_P(RefusedWatch, IsReportedAndTriedAgain) {
  const auto refusal = ApiFault::status_of(GetParam().code, GetParam().reason, "because");
  server.script = [=](const kube::ApiRequest&) { return refusal; };
  settle();
  clock.run_for(1h);
  EXPECT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_EQ(watching.troubles.front().code, GetParam().meaning);
  EXPECT_THAT(watching.troubles.front().message, HasSubstr("Node metadata.name=n1"));
  EXPECT_LE(server.seen().size(), 200U);
  server.script = nullptr;
  clock.run_for(3min);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
  EXPECT_EQ(label("a"), "1");
}

// A server that lists and does not let watch is no better.
TEST_P(RefusedWatch, AlsoWhereListsAreAnswered) {
  const auto refusal = ApiFault::status_of(GetParam().code, GetParam().reason, "because");
  server.script = [=](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("watch=1") == std::string::npos) return std::nullopt;
    return refusal;
  };
  settle();
  clock.run_for(1h);
  EXPECT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_LE(server.seen().size(), 400U);
  server.script = nullptr;
  clock.run_for(4min);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedWatch,
    testing::Values(Documented{"BadRequest", 400, "BadRequest", kube::ApiErrc::invalid},
                    Documented{"Unauthorized", 401, "Unauthorized", kube::ApiErrc::unauthorized},
                    Documented{"Forbidden", 403, "Forbidden", kube::ApiErrc::forbidden},
                    Documented{"NotFound", 404, "NotFound", kube::ApiErrc::not_found},
                    Documented{"TooMany", 429, "TooManyRequests", kube::ApiErrc::too_many_requests},
                    Documented{"Internal", 500, "InternalError", kube::ApiErrc::server_fault},
                    Documented{"Unavailable", 503, "ServiceUnavailable", kube::ApiErrc::server_fault},
                    Documented{"TooLargeVersion", 504, "Timeout", kube::ApiErrc::server_fault}),
    [](const auto& row) { return row.param.what; });

TEST_F(ObjectWatchTest, AListStaysGoodWhileTheServerIsBusy) {
  std::size_t asked = 0;
  std::size_t busy = 3;
  server.script = [&](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("watch=1") == std::string::npos || ++asked > busy) return std::nullopt;
    return ApiFault::status_of(429, "TooManyRequests", "because");
  };
  settle();
  clock.run_for(1min);
  EXPECT_EQ(asked, busy + 1);
  EXPECT_EQ(lists(), 1U);
  // A list that is older is made anew.
  busy = std::numeric_limits<std::size_t>::max();
  server.cut_streams();
  clock.run_for(10min);
  EXPECT_GT(lists(), 1U);
}

TEST_F(ObjectWatchTest, AListStaysGoodWhileAProxyEndsEachWatch) {
  settle();
  for (int ends = 0; ends < 3; ++ends) {
    server.end_streams();
    clock.run_for(10s);
  }
  EXPECT_EQ(lists(), 1U);
  EXPECT_THAT(watching.said, ElementsAre("trouble"));
}

TEST_F(ObjectWatchTest, SaysWhichRightIsMissingAndAsksAgainSoonAndThenSeldom) {
  server.script = [](const kube::ApiRequest&) { return ApiFault::status_of(403, "Forbidden", "no"); };
  clock.run_for(15s);
  ASSERT_EQ(watching.troubles.size(), 1U);
  EXPECT_THAT(watching.troubles.front().hint, HasSubstr("the verb list on nodes"));
  const auto before = server.seen().size();
  EXPECT_GE(before, 3U) << "a server that has just started knows no roles yet";
  clock.run_for(1h);
  EXPECT_LE(server.seen().size() - before, 150U) << "asking mends no role";
}

TEST_F(ObjectWatchTest, ATokenThatWasReplacedIsNoTrouble) {
  server.next = {ApiFault::status_of(401, "Unauthorized")};
  clock.run_for(5s);
  EXPECT_TRUE(watching->listed());
  EXPECT_THAT(watching.said, IsEmpty());
}

TEST_F(ObjectWatchTest, WaitsAsLongAsTheServerAsks) {
  server.next = {ApiFault{.status = 429, .body = {}, .retry_after = 100s}};
  clock.run_for(99s);
  EXPECT_EQ(server.seen().size(), 1U);
  clock.run_for(3s);
  EXPECT_TRUE(watching->listed());
}

TEST_F(ObjectWatchTest, ReportsAgainWhenTheReasonIsAnother) {
  server.next = {ApiFault::status_of(500, "InternalError"), ApiFault::status_of(503, "ServiceUnavailable"),
                 ApiFault::status_of(503, "ServiceUnavailable"), ApiFault::status_of(403, "Forbidden")};
  clock.run_for(10min);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "trouble", "well"));
}

struct BadList {
  const char* what;
  const char* body;
};

class UnreadableList : public ObjectWatchTest, public testing::WithParamInterface<BadList> {};

TEST_P(UnreadableList, IsTrouble) {
  server.next = {ApiFault{.status = 200, .body = GetParam().body}};
  settle();
  EXPECT_THAT(watching.said, Not(IsEmpty()));
  EXPECT_EQ(watching.troubles.front().code, Errc::malformed_host);
  clock.run_for(1min);
  EXPECT_EQ(label("a"), "1");
}

INSTANTIATE_TEST_SUITE_P(
    Table, UnreadableList,
    testing::Values(BadList{"Empty", ""}, BadList{"Html", "<html>"}, BadList{"NoVersion", R"({"items":[]})"},
                    BadList{"ItemsAreText", R"({"metadata":{"resourceVersion":"1"},"items":"x"})"},
                    BadList{"NoName", R"({"metadata":{"resourceVersion":"1"},"items":[{}]})"},
                    BadList{"ItemIsText", R"({"metadata":{"resourceVersion":"1"},"items":["x"]})"}),
    [](const auto& row) { return row.param.what; });

// --- Large lists -----------------------------------------------------------------------------------------

/// More than one page, in a namespace of its own.
class LongList : public testing::Test, public KubeFixture {
 protected:
  LongList() {
    for (int i = 0; i < 120; ++i) server.put(config_map("a", "m" + std::to_string(1'000 + i)));
  }
  std::size_t pages() const { return server.count("GET", "limit=50"); }
  const kube::Selection maps{.kind = kube::kConfigMaps, .space = "a"};
};

TEST_F(LongList, ComesByPages) {
  const Watching watching(*this, maps, [] { return 0.5; });
  clock.run_for(5s);
  EXPECT_EQ(watching->objects(), server.objects(maps));
  EXPECT_EQ(pages(), 3U);
  EXPECT_EQ(server.count("GET", "continue="), 2U);
  server.erase("/api/v1/namespaces/a/configmaps/m1000");
  clock.run_for(5s);
  EXPECT_EQ(watching->objects(), server.objects(maps));
}

// Nothing of a list is used before its last page: half a list looks like one from which objects have gone.
TEST_F(LongList, BeginsAnewWhereItsContinuationIsForgotten) {
  int forgotten = 1;
  server.script = [&](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("continue=") == std::string::npos || forgotten-- <= 0) return std::nullopt;
    return ApiFault::status_of(410, "Expired");
  };
  const Watching watching(*this, maps, [] { return 0.5; });
  clock.run_for(5s);
  EXPECT_EQ(watching->objects(), server.objects(maps));
  EXPECT_EQ(pages(), 5U) << "one, the one that is forgotten, and all three";
  EXPECT_EQ(watching.changes, 1);
  EXPECT_THAT(watching.said, IsEmpty());
}

TEST_F(LongList, IsNotThereBeforeItsLastPage) {
  server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("continue=") == std::string::npos) return std::nullopt;
    return ApiFault::status_of(410, "Expired");
  };
  const Watching watching(*this, maps, [] { return 0.5; });
  clock.run_for(1h);
  EXPECT_FALSE(watching->listed());
  EXPECT_THAT(watching->objects(), IsEmpty());
  ASSERT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_EQ(watching.troubles.front().code, kube::ApiErrc::expired);
  EXPECT_LE(server.seen().size(), 800U) << "asking is slowed down";
}

TEST_F(LongList, AnObjectThatIsTooLargeIsTrouble) {
  server.put(config_map("a", "m0", std::string(3UL << 20U, 'x')));
  const Watching watching(*this, maps, [] { return 0.5; });
  clock.run_for(1min);
  EXPECT_FALSE(watching->listed());
  ASSERT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_EQ(watching.troubles.front().code, kube::ApiErrc::too_large);
  EXPECT_THAT(watching.troubles.front().message, HasSubstr("list ConfigMap in a: "));
  EXPECT_THAT(watching.troubles.front().hint, HasSubstr("kubectl get configmaps --namespace a"));
  server.erase("/api/v1/namespaces/a/configmaps/m0");
  clock.run_for(2min);
  EXPECT_THAT(watching.said, ElementsAre("trouble", "well"));
  EXPECT_EQ(watching->objects(), server.objects(maps));
}

TEST_F(LongList, SoIsOneThatComesLater) {
  const Watching watching(*this, maps, [] { return 0.5; });
  clock.run_for(5s);
  const auto before = watching->objects();
  server.put(config_map("a", "m0", std::string(1UL << 20U, 'x')));
  clock.run_for(1min);
  EXPECT_THAT(watching.said, IsEmpty());
  server.put(config_map("a", "m1", std::string(1UL << 20U, 'x')));
  clock.run_for(1min);
  ASSERT_THAT(watching.said, ElementsAre("trouble"));
  EXPECT_EQ(watching.troubles.front().code, kube::ApiErrc::too_large);
  EXPECT_EQ(watching->objects().size(), before.size() + 1);
}

// --- Parts of objects --------------------------------------------------------------------------------------

/// A thousand bytes of each tenth ConfigMap.
class TakenParts : public LongList {
 protected:
  static json part_of_some(const json& map) {
    const std::string name = map["metadata"]["name"];
    if (!name.ends_with('7')) return {};
    return {{"metadata", {{"name", name}}}, {"text", std::string(1'000, 'x')}};
  }
  int changes = 0;
  std::vector<Error> troubles;
  kube::ObjectWatch watch{server,
                          clock,
                          [] { return 0.5; },
                          maps,
                          {.changed = [this] { ++changes; },
                           .trouble = [this](const Error& error) { troubles.push_back(error); },
                           .well = [] {}},
                          kube::ObjectWatch::Kept{.take = part_of_some, .most = 16'384}};
};

TEST_F(TakenParts, AreKeptAlone) {
  ASSERT_TRUE(watch.begin());
  clock.run_for(5s);
  EXPECT_EQ(watch.objects().size(), 12U) << "of all pages";
  EXPECT_EQ(watch.objects().at("a/m1007")["kind"], "ConfigMap");
  EXPECT_FALSE(watch.objects().at("a/m1007").contains("data"));
  server.put(config_map("a", "m1007", "another text"));
  server.put(config_map("a", "n8"));
  clock.run_for(5s);
  EXPECT_EQ(changes, 1);
  server.put(config_map("a", "n7"));
  server.erase("/api/v1/namespaces/a/configmaps/m1017");
  clock.run_for(5s);
  EXPECT_TRUE(watch.objects().contains("a/n7"));
  EXPECT_FALSE(watch.objects().contains("a/m1017"));
  EXPECT_THAT(troubles, IsEmpty());
}

TEST_F(TakenParts, MayBeTooManyTogether) {
  for (int i = 0; i < 100; ++i) server.put(config_map("a", "n" + std::to_string(i) + "7"));
  ASSERT_TRUE(watch.begin());
  clock.run_for(5s);
  EXPECT_FALSE(watch.listed());
  ASSERT_EQ(troubles.size(), 1U);
  EXPECT_EQ(troubles.front().code, kube::ApiErrc::too_large);
  EXPECT_THAT(troubles.front().message, HasSubstr("more than 16384 bytes"));
}

TEST_F(ObjectWatchTest, AnEmptyListMayBeNull) {
  server.next = {ApiFault{.status = 200, .body = R"({"metadata":{"resourceVersion":"9999"},"items":null})"}};
  clock.run_for(1s);
  EXPECT_TRUE(watching->listed());
  EXPECT_THAT(watching->objects(), IsEmpty());
}

TEST_F(ObjectWatchTest, OneThatIsGoneAsksNoMore) {
  {
    const Watching gone(*this, kube::only(kube::node_ref("n2")), [] { return 0.5; });
    clock.run_for(1s);
    EXPECT_EQ(server.open_streams(), 2U);
  }
  EXPECT_EQ(server.open_streams(), 1U);
  {
    server.next = {std::nullopt, ApiFault::lost_before()};
    const Watching gone(*this, kube::only(kube::node_ref("n2")), [] { return 0.5; });
  }
  const auto before = server.seen().size();
  clock.run_for(4min);
  EXPECT_EQ(server.seen().size(), before);
}

}  // namespace
