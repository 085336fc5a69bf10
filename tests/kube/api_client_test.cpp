// SPDX-License-Identifier: Apache-2.0
#include "kube/api_client.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/kube/kube_fixture.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kNode = "/api/v1/nodes/n1";
constexpr std::string_view kPod = "/api/v1/namespaces/a/pods/p";
const kube::FieldChoice kAll{.mode = kube::FieldChoice::Mode::all_but, .fields = {}};

class ApiClientTest : public testing::Test, public KubeFixture {
 protected:
  ApiClientTest() { server.put(node("n1", {{"a", "1"}})); }

  Result<json> get(const kube::ObjectRef& object) {
    return outcome<json>([&](auto done) { client.get(object, std::move(done), kAll); });
  }
  Result<json> merge_patch(const json& patch) {
    return outcome<json>(
        [&](auto done) { client.merge_patch(kube::node_ref("n1"), patch, std::move(done)); });
  }
  Result<json> apply(const json& content) {
    return outcome<json>([&](auto done) { client.apply(kube::node_ref("n1"), content, std::move(done)); });
  }
  Result<json> create(const json& content) {
    return outcome<json>([&](auto done) { client.create(kube::kConfigMaps, "a", content, std::move(done)); });
  }
  Result<kube::Eviction> evict(const std::string& uid) {
    return outcome<kube::Eviction>(
        [&](auto done) { client.evict(kube::pod_ref("a", "p"), uid, std::move(done)); });
  }
  static bool begins(const Result<kube::Eviction>& eviction) {
    return eviction && !eviction->gone && eviction->why.empty();
  }
  Result<> remove(const kube::ObjectRef& object, const std::string& uid) {
    Answer<bool> answer;
    client.remove(object, uid, [on_end = answer.here()](const Result<>& result) {
      on_end(result ? Result<bool>(true) : Result<bool>(fail(result.error())));
    });
    clock.run_until([&] { return answer.is_there(); }, 2h);
    const auto result = answer.get();
    return result ? Result<>() : Result<>(fail(result.error()));
  }
  Result<json> change(const kube::ApiClient::MakePatch& make, const json* known = nullptr) {
    return outcome<json>(
        [&](auto done) { client.change(kube::node_ref("n1"), make, std::move(done), known); });
  }
  std::string pod_uid() { return server.put(pod("a", "p"))["metadata"]["uid"]; }
  std::string label(const std::string& key) const {
    return server.object(kNode).value(json::json_pointer("/metadata/labels/" + key), "");
  }
  std::vector<std::string> methods() const {
    std::vector<std::string> out;
    for (const auto& seen : server.seen()) out.push_back(seen.request.method);
    return out;
  }
};

TEST_F(ApiClientTest, ReplacesAnObjectInTheStateThatIsNamed) {
  const auto replace = [&](const json& content) {
    return outcome<json>([&](auto done) { client.replace(kube::node_ref("n1"), content, std::move(done)); });
  };
  json content = server.object(kNode);
  content["metadata"]["labels"] = {{"b", "2"}};
  const auto replaced = replace(content);
  ASSERT_TRUE(replaced) << replaced.error().message;
  EXPECT_FALSE(server.object(kNode)["metadata"]["labels"].contains("a"));
  EXPECT_EQ(server.count("PUT", kNode + "?fieldManager=ferry"), 1U);
  const auto stale = replace(content);
  EXPECT_EQ(code_of(stale), kube::ApiErrc::conflict);
  EXPECT_THAT(message_of(stale), HasSubstr("update Node n1"));
}

TEST_F(ApiClientTest, WithPatienceTriesASilentServerForThatLong) {
  server.script = [](const kube::ApiRequest&) { return std::optional(ApiFault::lost_before()); };
  kube::ApiClient hurried(
      server, clock, [] { return 0.5; }, 5s);
  const auto began = clock.now();
  EXPECT_FALSE(outcome<json>([&](auto done) { hurried.get(kube::node_ref("n1"), std::move(done), kAll); }));
  EXPECT_LE(clock.now() - began, 5s + kube::ApiRequest().deadline);
  EXPECT_LT(server.count("GET"), kube::ApiClient::kMostTries);
}

TEST_F(ApiClientTest, WithPatienceConnectsNoLongerThanIsLeftOfIt) {
  std::vector<std::chrono::milliseconds> connects;
  server.script = [&](const kube::ApiRequest& request) {
    connects.push_back(request.connect);
    return std::optional(ApiFault::status_of(503, "ServiceUnavailable"));
  };
  kube::ApiClient hurried(
      server, clock, [] { return 0.9; }, 5s);
  const auto began = clock.now();
  EXPECT_FALSE(outcome<json>([&](auto done) { hurried.get(kube::node_ref("n1"), std::move(done), kAll); }));
  EXPECT_LE(clock.now() - began, 5s);
  ASSERT_GE(connects.size(), 2U) << "a moment is waited for";
  EXPECT_LT(connects.size(), kube::ApiClient::kMostTries);
  EXPECT_EQ(connects.front(), 5s);
  for (std::size_t i = 1; i < connects.size(); ++i) {
    EXPECT_LT(connects[i], connects[i - 1]);
    EXPECT_GE(connects[i], 1s);
  }
  connects.clear();
  EXPECT_FALSE(get(kube::node_ref("n1")));
  EXPECT_THAT(connects, testing::Each(kube::ApiRequest().connect)) << "an agent has time";
  EXPECT_EQ(connects.size(), kube::ApiClient::kMostTries);
}

// What answers need not be an API server.
TEST_F(ApiClientTest, ChangesNothingThatIsNoObjectOfTheServers) {
  for (const char* body :
       {R"({"metadata":null})", R"({"metadata":[]})", R"({"metadata":{"resourceVersion":7}})",
        R"({"metadata":{"resourceVersion":null}})", "{}"}) {
    server.next = {ApiFault{.status = 200, .body = body}};
    const auto changed = outcome<json>([&](auto done) {
      client.change(
          kube::node_ref("n1"), [](const json&) { return labels("a", "2"); }, std::move(done));
    });
    EXPECT_EQ(message_of(changed), "get Node n1: the answer has no resourceVersion") << body;
  }
  EXPECT_EQ(label("a"), "1");
}

// --- What is asked -----------------------------------------------------------------------------------------

TEST_F(ApiClientTest, GetsAnObject) {
  EXPECT_EQ(get(kube::node_ref("n1")).value_or(json()), server.object(kNode));
}

TEST_F(ApiClientTest, SaysWhatIsNotThere) {
  const auto got = get(kube::config_map_ref("a", "b"));
  EXPECT_EQ(code_of(got), kube::ApiErrc::not_found);
  EXPECT_EQ(message_of(got),
            "get ConfigMap a/b: the API server answers 404 NotFound: configmaps \"b\" not found");
}

TEST_F(ApiClientTest, GetsTheFieldsThatAreAskedFor) {
  const kube::FieldChoice name{.mode = kube::FieldChoice::Mode::only, .fields = {{"metadata", {{"name"}}}}};
  const auto get_of = [&](const kube::FieldChoice& fields) {
    return outcome<json>(
        [&](auto done) { client.get(kube::config_map_ref("a", "b"), std::move(done), fields); });
  };
  server.put(config_map("a", "b", std::string(3UL << 20U, 'x')));
  EXPECT_EQ(get_of(name).value_or(json()), json::parse(R"({"metadata":{"name":"b"}})"));
  const auto whole = get_of(kube::whole_object());
  EXPECT_EQ(code_of(whole), kube::ApiErrc::too_large);
  EXPECT_THAT(message_of(whole), HasSubstr("get ConfigMap a/b: the fields that are read have more than"));
  server.next = {ApiFault::status_of(503, "ServiceUnavailable"), ApiFault::lost_after()};
  EXPECT_EQ(get_of(name).value_or(json()), json::parse(R"({"metadata":{"name":"b"}})")) << "tried again";
  server.erase("/api/v1/namespaces/a/configmaps/b");
  EXPECT_EQ(code_of(get_of(name)), kube::ApiErrc::not_found);
}

TEST_F(ApiClientTest, ListsThePodsOfANode) {
  server.put(pod("a", "mine"));
  server.put(pod("b", "mine"));
  server.put(pod("a", "anothers", "n2"));
  const auto list =
      outcome<json>([&](auto done) { client.list(kube::pods_of_node("n1"), {}, std::move(done)); });
  EXPECT_EQ(list.value_or(json()).value("items", json()).size(), 2U);
}

TEST_F(ApiClientTest, MergesAPatchUnderOurName) {
  EXPECT_EQ(code_of(merge_patch({{"metadata", {{"labels", {{"a", nullptr}, {"b", "2"}}}}}})),
            std::error_code());
  EXPECT_EQ(label("a"), "");
  EXPECT_EQ(label("b"), "2");
  EXPECT_THAT(server.seen().back().request.path, HasSubstr("fieldManager=ferry"));
}

TEST_F(ApiClientTest, WritesWordsThatAreNoUtf8WithTheWrongByteReplaced) {
  EXPECT_EQ(code_of(merge_patch(labels("b", "x\xFFy"))), std::error_code());
  EXPECT_EQ(label("b"), "x\xEF\xBF\xBDy");
}

TEST_F(ApiClientTest, AppliesItsFieldsAndRemovesThoseItNoLongerNames) {
  EXPECT_EQ(code_of(apply({{"metadata", {{"labels", {{"b", "1"}, {"c", "1"}}}}}})), std::error_code());
  EXPECT_EQ(code_of(apply({{"metadata", {{"labels", {{"b", "2"}}}}}})), std::error_code());
  EXPECT_EQ(label("a"), "1") << "another's";
  EXPECT_EQ(label("b"), "2");
  EXPECT_EQ(label("c"), "") << "no longer wanted";
}

TEST_F(ApiClientTest, TakesAnothersField) {
  EXPECT_EQ(code_of(apply(labels("a", "2"))), std::error_code());
  EXPECT_EQ(label("a"), "2");
}

TEST_F(ApiClientTest, AppliesWhatIsNotThereYet) {
  const auto applied = outcome<json>([&](auto done) {
    client.apply(kube::config_map_ref("a", "b"), {{"data", {{"x", "y"}}}}, std::move(done));
  });
  EXPECT_EQ(code_of(applied), std::error_code());
  EXPECT_EQ(server.object("/api/v1/namespaces/a/configmaps/b")["data"]["x"], "y");
}

TEST_F(ApiClientTest, CreatesOnce) {
  EXPECT_EQ(code_of(create(config_map("a", "b"))), std::error_code());
  EXPECT_EQ(code_of(create(config_map("a", "b"))), kube::ApiErrc::already_exists);
}

TEST_F(ApiClientTest, RemovesTheOneThatIsMeant) {
  server.put(config_map("a", "b"));
  EXPECT_EQ(code_of(remove(kube::config_map_ref("a", "b"), "uid-of-a-former-one")), std::error_code())
      << "that one is gone";
  EXPECT_FALSE(server.object("/api/v1/namespaces/a/configmaps/b").is_null());
  const std::string uid = server.object("/api/v1/namespaces/a/configmaps/b")["metadata"]["uid"];
  EXPECT_EQ(code_of(remove(kube::config_map_ref("a", "b"), uid)), std::error_code());
  EXPECT_TRUE(server.object("/api/v1/namespaces/a/configmaps/b").is_null());
  EXPECT_EQ(code_of(remove(kube::config_map_ref("a", "b"), uid)), std::error_code()) << "gone already";
}

// An empty name would ask for all nodes.
TEST_F(ApiClientTest, SendsNothingForANameThatNoObjectCanHave) {
  EXPECT_EQ(code_of(get(kube::node_ref(""))), Errc::usage);
  EXPECT_EQ(code_of(remove(kube::node_ref(".."), "")), Errc::usage);
  EXPECT_EQ(message_of(outcome<json>([&](auto done) {
              client.change(
                  kube::node_ref("a/b"), [](const json&) { return json(); }, std::move(done));
            })),
            "'a/b' cannot be the name of a Node");
  EXPECT_TRUE(server.seen().empty());
}

TEST_F(ApiClientTest, AnAnswerThatCannotBeReadIsAnError) {
  server.next = {ApiFault{.status = 200, .body = "<html>"}};
  EXPECT_EQ(code_of(get(kube::node_ref("n1"))), Errc::malformed_host);
}

// --- Evictions ---------------------------------------------------------------------------------------------

TEST_F(ApiClientTest, EvictsAPod) {
  EXPECT_TRUE(begins(evict(pod_uid())));
  clock.run_for(1min);
  EXPECT_TRUE(server.object(std::string(kPod)).is_null());
}

TEST_F(ApiClientTest, ADisruptionBudgetIsNotNow) {
  const auto uid = pod_uid();
  server.disruption_budgeted.insert("a/p");
  const auto eviction = evict(uid).value_or(kube::Eviction{});
  EXPECT_FALSE(eviction.gone);
  EXPECT_THAT(eviction.why, HasSubstr("disruption budget. The disruption budget x needs 1"));
  EXPECT_EQ(server.seen().size(), 1U) << "when to ask again is the caller's to say";
}

// KubeVirt's answer for a VM: it begins to move it, and denies the eviction.
TEST_F(ApiClientTest, AWebhookThatDeniesWithTooManyRequestsIsNotNow) {
  const auto uid = pod_uid();
  auto fault = ApiFault::status_of(
      429, "TooManyRequests", "admission webhook \"x\" denied the request: Eviction triggered evacuation");
  fault.retry_after = 10s;
  server.next = {fault};
  const auto eviction = evict(uid).value_or(kube::Eviction{});
  EXPECT_FALSE(eviction.gone);
  EXPECT_NE(eviction.why, "");
  EXPECT_EQ(eviction.retry_after, 10s);
}

TEST_F(ApiClientTest, AServerTooBusyForAnEvictionIsAskedAgain) {
  const auto uid = pod_uid();
  server.next = {ApiFault{.status = 429, .body = "Too many requests, please try again later.\n"}};
  EXPECT_TRUE(begins(evict(uid)));
  EXPECT_EQ(server.seen().size(), 2U);
}

// An admission policy refuses with 422; the other version of the request would be refused for its version.
TEST_F(ApiClientTest, AnEvictionThatAPolicyRefusesIsAnErrorWithThePolicysReason) {
  const auto uid = pod_uid();
  server.next = {ApiFault::status_of(422, "Invalid", "denied request: not on a Friday"),
                 ApiFault::status_of(400, "BadRequest", "no kind \"Eviction\" is registered")};
  const auto eviction = evict(uid);
  ASSERT_FALSE(eviction);
  EXPECT_EQ(eviction.error().code, kube::ApiErrc::invalid);
  EXPECT_THAT(eviction.error().message, HasSubstr("422 Invalid: denied request: not on a Friday"));
}

TEST_F(ApiClientTest, APodThatIsNotThereIsGone) {
  EXPECT_TRUE(evict("uid-7").value_or(kube::Eviction{}).gone);
}

TEST_F(ApiClientTest, APodOfTheSameNameIsNotTheOne) {
  pod_uid();
  EXPECT_TRUE(evict("uid-of-a-former-one").value_or(kube::Eviction{}).gone);
  clock.run_for(1min);
  EXPECT_FALSE(server.object(std::string(kPod)).is_null());
  server.next = {ApiFault::status_of(409, "Conflict",
                                     "Precondition failed: UID in precondition: a, UID in object meta: b")};
  EXPECT_TRUE(evict("a").value_or(kube::Eviction{}).gone) << "replaced while the server deletes it";
}

TEST_F(ApiClientTest, AnyOtherConflictIsNotTakenForGone) {
  const auto uid = pod_uid();
  server.next = {ApiFault::status_of(409, "Conflict", "the object has been modified")};
  const auto eviction = evict(uid).value_or(kube::Eviction{});
  EXPECT_FALSE(eviction.gone);
  EXPECT_NE(eviction.why, "");
}

TEST_F(ApiClientTest, EvictsInTheWordsThatTheServerKnows) {
  server.knows_policy_v1 = false;
  EXPECT_EQ(code_of(evict(pod_uid())), std::error_code());
  EXPECT_EQ(server.seen().size(), 2U);
  clock.run_for(1min);
  EXPECT_EQ(code_of(evict(pod_uid())), std::error_code());
  EXPECT_EQ(server.seen().size(), 3U) << "remembered";
  clock.run_for(1min);
  server.knows_policy_v1 = true;
  EXPECT_EQ(code_of(evict(pod_uid())), std::error_code())
      << "a cluster may be upgraded under a running agent";
}

TEST_F(ApiClientTest, AnEvictionInvalidInAllWordsIsAnError) {
  const auto uid = pod_uid();
  server.script = [](const kube::ApiRequest&) { return ApiFault::status_of(400, "BadRequest"); };
  EXPECT_EQ(code_of(evict(uid)), kube::ApiErrc::invalid);
  EXPECT_EQ(server.seen().size(), 2U);
}

// --- Again and again ---------------------------------------------------------------------------------------

TEST_F(ApiClientTest, AsksAgainWhileThatMayHelp) {
  server.next = {ApiFault::lost_before(), ApiFault::status_of(503, "ServiceUnavailable"),
                 ApiFault::status_of(429, "TooManyRequests")};
  EXPECT_EQ(code_of(get(kube::node_ref("n1"))), std::error_code());
  EXPECT_EQ(server.seen().size(), 4U);
}

TEST_F(ApiClientTest, ReportsTheLastFailureWhenItDoesNot) {
  server.set_down(true);
  const auto got = get(kube::node_ref("n1"));
  EXPECT_EQ(code_of(got), Errc::unreachable);
  EXPECT_EQ(message_of(got), "get Node n1: the connection was lost");
  EXPECT_EQ(server.seen().size(), kube::ApiClient::kMostTries);
}

TEST_F(ApiClientTest, WaitsAsLongAsTheServerAsks) {
  server.next = {ApiFault{.status = 429, .body = {}, .retry_after = 42s}};
  const auto before = clock.now();
  EXPECT_EQ(code_of(get(kube::node_ref("n1"))), std::error_code());
  EXPECT_GE(clock.now() - before, 42s);
  EXPECT_LE(clock.now() - before, 45s);
}

TEST_F(ApiClientTest, WaitsNoLongerThanIsReasonable) {
  server.next = {ApiFault{.status = 503, .body = {}, .retry_after = 86'400s}};
  const auto before = clock.now();
  EXPECT_EQ(code_of(get(kube::node_ref("n1"))), std::error_code());
  EXPECT_LE(clock.now() - before, 6min);
}

// The transport sends the token that is there then.
TEST_F(ApiClientTest, AsksOnceMoreWhenItIsNotKnown) {
  const auto unknown = ApiFault::status_of(401, "Unauthorized");
  server.next = {unknown};
  EXPECT_EQ(code_of(get(kube::node_ref("n1"))), std::error_code());
  server.next = {unknown, unknown};
  EXPECT_EQ(code_of(get(kube::node_ref("n1"))), kube::ApiErrc::unauthorized);
  EXPECT_EQ(server.seen().size(), 4U);
}

struct NoUse {
  const char* what;
  int code;
  const char* reason;
  kube::ApiErrc meaning;
};

class AskingAgainIsNoUse : public ApiClientTest, public testing::WithParamInterface<NoUse> {};

TEST_P(AskingAgainIsNoUse, ForTheServerHasUnderstood) {
  server.next = {ApiFault::status_of(GetParam().code, GetParam().reason)};
  EXPECT_EQ(code_of(merge_patch(labels("a", "2"))), GetParam().meaning);
  EXPECT_EQ(server.seen().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Table, AskingAgainIsNoUse,
                         testing::Values(NoUse{"BadRequest", 400, "BadRequest", kube::ApiErrc::invalid},
                                         NoUse{"Forbidden", 403, "Forbidden", kube::ApiErrc::forbidden},
                                         NoUse{"NotFound", 404, "NotFound", kube::ApiErrc::not_found},
                                         NoUse{"Conflict", 409, "Conflict", kube::ApiErrc::conflict},
                                         NoUse{"Gone", 410, "Gone", kube::ApiErrc::expired},
                                         NoUse{"Invalid", 422, "Invalid", kube::ApiErrc::invalid}),
                         [](const auto& row) { return row.param.what; });

TEST_F(ApiClientTest, RepeatsAPatchWhoseAnswerWasLost) {
  server.next = {ApiFault::lost_after()};
  EXPECT_EQ(code_of(merge_patch(labels("a", "2"))), std::error_code());
  EXPECT_EQ(label("a"), "2");
}

TEST_F(ApiClientTest, ACreateWhoseAnswerWasLostMayExistAlready) {
  server.next = {ApiFault::lost_after()};
  EXPECT_EQ(code_of(create(config_map("a", "b"))), kube::ApiErrc::already_exists);
}

TEST_F(ApiClientTest, MakesNoSecondObjectOfAMadeUpName) {
  auto content = config_map("a", "");
  content["metadata"] = {{"generateName", "x-"}};
  server.next = {ApiFault::lost_after()};
  EXPECT_EQ(code_of(create(content)), Errc::unreachable);
  EXPECT_EQ(server.objects({.kind = kube::kConfigMaps}).size(), 1U);
}

TEST_F(ApiClientTest, RemovesNoSecondObjectOfAName) {
  server.put(config_map("a", "b"));
  server.next = {ApiFault::lost_after()};
  EXPECT_EQ(code_of(remove(kube::config_map_ref("a", "b"), "")), Errc::unreachable);
  EXPECT_EQ(server.seen().size(), 1U);
  server.put(config_map("a", "b"));
  server.next = {ApiFault::lost_after()};
  const std::string uid = server.object("/api/v1/namespaces/a/configmaps/b")["metadata"]["uid"];
  EXPECT_EQ(code_of(remove(kube::config_map_ref("a", "b"), uid)), std::error_code());
}

// --- Changes -----------------------------------------------------------------------------------------------

// One more than there is: what is made from an old view is wrong.
Result<json> one_more(const json& object) {
  const auto count = std::stoi(object["metadata"]["labels"].value("count", "0"));
  return labels("count", std::to_string(count + 1));
}

TEST_F(ApiClientTest, ChangesTheObjectAsItIs) {
  EXPECT_EQ(code_of(change(one_more)), std::error_code());
  EXPECT_EQ(label("count"), "1");
  EXPECT_THAT(methods(), ElementsAre("GET", "PATCH"));
}

TEST_F(ApiClientTest, ReadsAgainWhenAnotherWasFirst) {
  server.put(node("n1", {{"count", "5"}}));
  bool interfered = false;
  server.script = [&](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.method == "PATCH" && !std::exchange(interfered, true))
      server.edit(kNode, labels("count", "10"));
    return std::nullopt;
  };
  EXPECT_EQ(code_of(change(one_more)), std::error_code());
  EXPECT_EQ(label("count"), "11");
  EXPECT_THAT(methods(), ElementsAre("GET", "PATCH", "GET", "PATCH"));
}

TEST_F(ApiClientTest, ChangesOnceThoughTheAnswerWasLost) {
  server.script = [lost = false](const kube::ApiRequest& request) mutable -> std::optional<ApiFault> {
    if (request.method == "PATCH" && !std::exchange(lost, true)) return ApiFault::lost_after();
    return std::nullopt;
  };
  const auto to_one = [](const json& object) -> Result<json> {
    return object["metadata"]["labels"].value("count", "") == "1" ? json() : labels("count", "1");
  };
  EXPECT_EQ(code_of(change(to_one)), std::error_code());
  EXPECT_EQ(label("count"), "1");
  EXPECT_EQ(server.count("PATCH"), 1U) << "it has been seen in the object";
}

TEST_F(ApiClientTest, WritesNothingWhereNothingIsToBeChanged) {
  const auto known = server.object(kNode);
  const auto changed = change([](const json&) -> Result<json> { return json::object(); }, &known);
  EXPECT_EQ(changed.value_or(json()), known);
  EXPECT_TRUE(server.seen().empty());
}

TEST_F(ApiClientTest, ReadsNothingWhenTheObjectIsKnown) {
  const auto known = server.object(kNode);
  EXPECT_EQ(code_of(change(one_more, &known)), std::error_code());
  EXPECT_THAT(methods(), ElementsAre("PATCH"));
}

TEST_F(ApiClientTest, ReadsTheObjectAfterAllWhenItWasKnownTooLongAgo) {
  const auto known = server.object(kNode);
  server.edit(kNode, labels("count", "7"));
  EXPECT_EQ(code_of(change(one_more, &known)), std::error_code());
  EXPECT_EQ(label("count"), "8");
  EXPECT_THAT(methods(), ElementsAre("PATCH", "GET", "PATCH"));
}

TEST_F(ApiClientTest, GivesUpWhereOthersAlwaysAreFirst) {
  server.chances.other_writer = 1;
  EXPECT_EQ(code_of(change(one_more)), kube::ApiErrc::conflict);
  EXPECT_EQ(server.count("PATCH"), kube::ApiClient::kMostRounds);
}

TEST_F(ApiClientTest, WaitsForAChangeAsLongAsTheServerAsks) {
  server.script = [asked = false](const kube::ApiRequest& request) mutable -> std::optional<ApiFault> {
    if (request.method == "PATCH" && !std::exchange(asked, true))
      return ApiFault{.status = 503, .body = {}, .retry_after = 30s};
    return std::nullopt;
  };
  const auto before = clock.now();
  EXPECT_EQ(code_of(change(one_more)), std::error_code());
  EXPECT_GE(clock.now() - before, 30s);
}

TEST_F(ApiClientTest, ErrorOfWhoMakesThePatchIsTheResult) {
  EXPECT_EQ(message_of(change([](const json&) -> Result<json> { return fail(Errc::refused, "no"); })), "no");
  EXPECT_EQ(server.count("PATCH"), 0U);
}

TEST_F(ApiClientTest, ObjectWithoutAVersionIsNotWrittenBlindly) {
  server.next = {ApiFault{.status = 200, .body = R"({"metadata":{"labels":{}}})"}};
  EXPECT_EQ(code_of(change(one_more)), Errc::malformed_host);
  EXPECT_EQ(server.count("PATCH"), 0U);
}

// A patch that is late must not undo a later one.
TEST_F(ApiClientTest, ALateChangeIsRefused) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    KubeFixture slow(seed);
    slow.server.put(node("n1"));
    slow.server.chances = {.lost_before = 0.05, .lost_after = 0.1, .other_writer = 0.1, .late = 0.3};
    for (const char* value : {"pending", "success"}) {
      const auto make = [&](const json& object) -> Result<json> {
        return object["metadata"].value("labels", json::object()).value("state", "") == value
                   ? json()
                   : labels("state", value);
      };
      const auto begin = [&](auto done) { slow.client.change(kube::node_ref("n1"), make, std::move(done)); };
      int tries = 1;
      while (!slow.outcome<json>(begin) && tries < 10) ++tries;
      EXPECT_LT(tries, 10) << "seed " << seed;
    }
    slow.clock.run_for(1h);
    EXPECT_EQ(slow.server.object(kNode)["metadata"]["labels"]["state"], "success") << "seed " << seed;
  }
}

// --- Letting go --------------------------------------------------------------------------------------------

TEST_F(ApiClientTest, ACancelledCallIsNotHeardOf) {
  bool heard = false;
  const auto made = [&](const json& object) { return one_more(object); };
  const auto known = server.object(kNode);
  for (const auto pause : {0ms, 5ms, 30ms, 200ms, 1'000ms}) {
    server.next = {ApiFault::lost_before(), ApiFault::lost_before()};
    const std::vector<kube::ApiClient::Call> calls = {
        client.get(
            kube::node_ref("n1"), [&](const auto&) { heard = true; }, kAll),
        client.get(
            kube::node_ref(""), [&](const auto&) { heard = true; }, kAll),
        client.change(kube::node_ref("n1"), made, [&](const auto&) { heard = true; }),
        client.change(
            kube::node_ref("n1"), made, [&](const auto&) { heard = true; }, &known)};
    // Those that pass the pause are over by then.
    clock.run_for(pause);
    heard = false;
    for (const auto call : calls) client.cancel(call);
    EXPECT_EQ(client.under_way(), 0U);
    clock.run_for(1h);
    EXPECT_FALSE(heard) << pause.count();
  }
}

TEST_F(ApiClientTest, ACallMayBeginAndCancelOthers) {
  Answer<json> second;
  bool third_heard = false;
  kube::ApiClient::Call third = 0;
  client.get(
      kube::node_ref("n1"),
      [&](const auto&) {
        client.cancel(third);
        client.get(kube::node_ref("n1"), second.here(), kAll);
      },
      kAll);
  third = client.change(kube::node_ref("n1"), one_more, [&](const auto&) { third_heard = true; });
  clock.run_for(1h);
  EXPECT_TRUE(second.is_there());
  EXPECT_FALSE(third_heard);
  EXPECT_EQ(client.under_way(), 0U);
}

TEST_F(ApiClientTest, NothingIsHeardOfOneThatIsGone) {
  bool heard = false;
  {
    kube::ApiClient gone(server, clock, [] { return 0.5; });
    gone.get(
        kube::node_ref("n1"), [&](const auto&) { heard = true; }, kAll);
    gone.change(kube::node_ref("n1"), one_more, [&](const auto&) { heard = true; });
  }
  clock.run_for(1h);
  EXPECT_FALSE(heard);
}

}  // namespace
