// SPDX-License-Identifier: Apache-2.0
// Nodes whose GPUs pods hold: they are evicted, in turns, and the node is cordoned meanwhile. Against an API
// server in memory.
#include <functional>

#include <gmock/gmock.h>

#include "agent/drain/drain_mark.h"
#include "tests/agent/yard.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::ApiFault;
using test::Fleet;
using test::Yard;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr auto kTimeout = Yard::kDrainTimeout;

TEST(DrainLoop, EvictsThePodThatHoldsTheGpuAndUncordonsWhenItIsDone) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  ASSERT_TRUE(yard.fleet.clock.run_until(
      [&] {
        yard.fleet.pass(1s);
        return yard.is_cordoned("n0");
      },
      60s));
  EXPECT_EQ(yard.cordon_mark("n0"), "true");
  EXPECT_EQ(yard.fleet.state("n0"), "draining");
  yard.pass(30s);
  EXPECT_THAT(yard.pods(), IsEmpty());
  EXPECT_EQ(yard.fleet.machines[0]->hostd.is, "divided");
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.mark("n0") + yard.cordon_mark("n0"), "");
  EXPECT_THAT(yard.fleet.lease_holders(), IsEmpty());
  EXPECT_THAT(yard.fleet.reasons("n0"), Contains("Draining"));
  EXPECT_EQ(yard.evictions(), 1U);
}

TEST(DrainLoop, LeavesThePodWhereItIsSwitchedOff) {
  Yard yard(1);
  yard.fleet.drain_timeout.reset();
  yard.put_pod("n0", "guest");
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(10min);
  EXPECT_EQ(yard.fleet.state("n0"), "blocked");
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.evictions(), 0U);
}

// KubeVirt answers so while it moves a VM away, and a disruption budget while others are needed.
TEST(DrainLoop, AsksAgainWhileSomethingStandsAgainstIt) {
  Yard yard(1);
  yard.by_name = false;
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "draining");
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("The disruption budget x needs 1"));
  EXPECT_THAT(yard.pods(), ElementsAre("guest"));
  EXPECT_GT(yard.evictions(), 2U);
  EXPECT_LT(yard.evictions(), 15U) << "with growing pauses";
  yard.fleet.server.disruption_budgeted.clear();
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
  EXPECT_FALSE(yard.is_cordoned("n0"));
}

// Policies refuse with 422, webhooks that are being started anew with 403.
TEST(DrainLoop, APolicyThatRefusesForAWhileDoesNotEndIt) {
  for (const int status : {403, 422}) {
    Yard yard(1);
    yard.put_pod("n0", "guest");
    yard.fleet.server.script = [status](const kube::ApiRequest& request) -> std::optional<ApiFault> {
      if (!request.path.ends_with("/eviction")) return std::nullopt;
      return ApiFault::status_of(status, status == 422 ? "Invalid" : "Forbidden", "not before noon");
    };
    yard.fleet.start();
    yard.fleet.label("n0", "divided");
    yard.pass(30s);
    EXPECT_EQ(yard.fleet.state("n0"), "draining") << status;
    EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("not before noon")) << status;
    yard.fleet.server.script = nullptr;
    yard.pass(60s);
    EXPECT_EQ(yard.fleet.state("n0"), "ready") << status;
    EXPECT_THAT(yard.fleet.reasons("n0"), Not(Contains("DrainFailed"))) << status;
  }
}

TEST(DrainLoop, WaitsAsLongAsItIsAskedToWait) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (!request.path.ends_with("/eviction")) return std::nullopt;
    auto fault =
        ApiFault::status_of(429, "TooManyRequests", "Eviction triggered evacuation of VMI \"tenants/guest\"");
    fault.retry_after = 60s;
    return fault;
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(50s);
  EXPECT_EQ(yard.evictions(), 1U);
  yard.pass(60s);
  EXPECT_EQ(yard.evictions(), 2U);
}

TEST(DrainLoop, GoesOnWhenTheClockIsSet) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(15s);
  for (const auto skew : {1h, -1h}) {
    ASSERT_EQ(yard.fleet.state("n0"), "draining");
    yard.fleet.machines[0]->skew = skew;
    yard.fleet.server.edit(
        "/api/v1/nodes/n0",
        {{"metadata", {{"labels", {{"example.com/skew", skew > 0h ? "ahead" : "behind"}}}}}});
    yard.pass(10s);
  }
  yard.fleet.server.disruption_budgeted.clear();
  yard.pass(80s);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
  EXPECT_THAT(yard.fleet.reasons("n0"), Not(Contains("DrainFailed")));
}

TEST(DrainLoop, GivesUpWhenItsTimeIsUpAndTriesAgainForAnotherDesiredState) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(kTimeout + 30s);
  EXPECT_EQ(yard.fleet.state("n0"), "blocked");
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.cordon_mark("n0"), "");
  EXPECT_THAT(yard.fleet.error("n0"),
              HasSubstr("after 120 seconds the GPUs are still in use by pod tenants/guest"));
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("The disruption budget x needs 1"));
  EXPECT_THAT(yard.fleet.reasons("n0"), Contains("DrainFailed"));
  EXPECT_THAT(yard.fleet.lease_holders(), IsEmpty());
  const auto asked = yard.evictions();
  yard.fleet.machines[0]->agent.reset();
  yard.fleet.start();
  yard.fleet.server.disruption_budgeted.clear();
  yard.pass(1h);
  EXPECT_EQ(yard.evictions(), asked) << "also by one that is started anew";
  yard.fleet.label("n0", "given");
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
  EXPECT_EQ(yard.mark("n0"), "");
}

TEST(DrainLoop, AMissingRightEndsItAndIsNamed) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (!request.path.ends_with("/eviction")) return std::nullopt;
    return ApiFault::status_of(403, "Forbidden", "no");
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "draining") << "an API server that has just started forbids everything";
  yard.pass(5min);
  EXPECT_EQ(yard.fleet.state("n0"), "blocked");
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("create on pods/eviction"));
  EXPECT_FALSE(yard.is_cordoned("n0"));
  const auto asked = yard.evictions();
  EXPECT_LE(asked, 12U);
  yard.pass(10min);
  EXPECT_EQ(yard.evictions(), asked);
}

TEST(DrainLoop, WhereCordoningIsForbiddenTheNodeStillSaysHowItIs) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.body.find("unschedulable") == std::string::npos) return std::nullopt;
    return ApiFault::status_of(403, "Forbidden", "a policy is against it");
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(5min);
  EXPECT_EQ(yard.fleet.state("n0"), "blocked");
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("a policy is against it"));
  EXPECT_EQ(yard.evictions(), 0U);
  EXPECT_LT(yard.fleet.server.count("PATCH", "/nodes/n0"), 30U);
  yard.fleet.server.script = nullptr;
  yard.pass(3min);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
  EXPECT_EQ(yard.fleet.error("n0"), "");
}

TEST(DrainLoop, OneThatComesAfterACrashGoesOnOrUndoesIt) {
  for (const bool reason : {true, false}) {
    Yard yard(1);
    yard.put_pod("n0", "guest");
    yard.fleet.server.disruption_budgeted = {"tenants/guest"};
    yard.fleet.start();
    yard.fleet.label("n0", "divided");
    yard.pass(30s);
    ASSERT_TRUE(yard.is_cordoned("n0"));
    const std::string mark = yard.mark("n0");
    yard.fleet.machines[0]->agent.reset();
    if (!reason) yard.remove_pod("guest");
    yard.pass(20s);
    if (!reason) yard.fleet.drain_timeout.reset();
    yard.fleet.start();
    yard.pass(20s);
    EXPECT_EQ(yard.mark("n0"), reason ? mark : "") << "it began when it began";
    EXPECT_EQ(yard.is_cordoned("n0"), reason);
    EXPECT_EQ(yard.cordon_mark("n0"), reason ? "true" : "");
  }
}

TEST(DrainLoop, WhatSomebodyElseHasCordonedStaysSo) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.cordon("n0", true);
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
  EXPECT_TRUE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.mark("n0") + yard.cordon_mark("n0"), "");
}

TEST(DrainLoop, OneNodeIsEmptiedAfterTheOther) {
  Yard yard(3);
  for (const char* node : {"n0", "n1", "n2"}) yard.put_pod(node, std::string("guest-") + node);
  yard.fleet.start();
  yard.fleet.label_all("divided");
  std::size_t most = 0;
  for (auto second = 0s; second < 5min; ++second) {
    yard.pass(1s);
    std::size_t cordoned = 0;
    for (const char* node : {"n0", "n1", "n2"}) cordoned += yard.is_cordoned(node) ? 1 : 0;
    most = std::max(most, cordoned);
  }
  EXPECT_EQ(most, 1U);
  EXPECT_EQ(yard.fleet.in_state("ready"), 3U);
  EXPECT_THAT(yard.pods(), IsEmpty());
}

// It has been given back, as far as the server goes, and its holder hears of nothing.
TEST(DrainLoop, ALeaseThatIsBeingFreedIsNone) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.with_process.insert("n0");
  yard.fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.body.find("\"holderIdentity\":null") == std::string::npos) return std::nullopt;
    return ApiFault::lost_after();
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  ASSERT_TRUE(yard.fleet.clock.run_until([&] { return !yard.fleet.lease_holders().empty(); }, 20s));
  yard.pass(1s);
  yard.fleet.server.silence_streams();
  for (int second = 0; second < 20 && !yard.fleet.lease_holders().empty(); ++second) yard.pass(1s);
  ASSERT_THAT(yard.fleet.lease_holders(), IsEmpty());
  yard.with_process.clear();
  yard.pass(10s);
  EXPECT_EQ(yard.evictions(), 0U);
  yard.fleet.server.script = nullptr;
  yard.pass(5min);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
}

// Else the pod may go while the Node says that nobody does, and while it is another node's turn.
TEST(DrainLoop, ARequestThatIsTriedAgainEndsWithTheDrain) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.ends_with("/eviction")) return ApiFault::lost_before();
    // It has come, and nobody hears so.
    if (request.body.find("failed") != std::string::npos) return ApiFault::lost_after();
    return std::nullopt;
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(kTimeout + 10s);
  const auto asked = yard.evictions();
  EXPECT_GT(asked, 3U);
  yard.pass(60s);
  EXPECT_EQ(yard.evictions(), asked);
}

TEST(DrainLoop, ADaemonSetsPodIsLeftAndSaidToBe) {
  Yard yard(1);
  yard.put_pod("n0", "exporter", "DaemonSet");
  yard.put_pod("n0", "guest");
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_EQ(yard.evictions(), 0U);
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_THAT(yard.fleet.error("n0"),
              HasSubstr("pod tenants/exporter (it is of DaemonSet tenants/d) would stay"));
}

// Any tenant may write an owner into a pod, and would keep the node from ever getting free.
TEST(DrainLoop, APodWhoseDaemonSetDoesNotExistIsEvicted) {
  Yard yard(1);
  const auto owner = [](const char* name, const json& uid) {
    return json{
        {"apiVersion", "apps/v1"}, {"kind", "DaemonSet"}, {"name", name}, {"uid", uid}, {"controller", true}};
  };
  const auto put = [&](const char* space) {
    return yard.fleet.server
        .put({{"apiVersion", "apps/v1"},
              {"kind", "DaemonSet"},
              {"metadata", {{"name", "real"}, {"namespace", space}}}})
        .at("metadata")
        .at("uid");
  };
  put("tenants");
  yard.put_pod_of("n0", "invented", owner("invented", "uid-1"));
  yard.put_pod_of("n0", "other-uid", owner("real", "another"));
  yard.put_pod_of("n0", "other-namespace", owner("elsewhere", put("kube-system")));
  yard.put_pod_of("n0", "no-name", owner("..", "uid-1"));
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_THAT(yard.pods(), IsEmpty());
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
}

TEST(DrainLoop, APodThatOnlySaysThatItIsStaticIsEvicted) {
  Yard yard(1);
  const json mirror = {{"kubernetes.io/config.mirror", "x"}};
  const auto node = [](const json& uid) {
    return json{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", "n0"}, {"uid", uid}, {"controller", true}};
  };
  yard.put_pod_of("n0", "guest", {{"apiVersion", "v1"}, {"kind", "ReplicaSet"}, {"name", "d"}}, mirror);
  yard.put_pod_of("n0", "made-up", node("another"), mirror);
  yard.put_pod_of("n0", "no-mirror", node(yard.fleet.server.object("/api/v1/nodes/n0")["metadata"]["uid"]));
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_THAT(yard.pods(), IsEmpty());
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
}

TEST(DrainLoop, AStaticPodIsLeftAndSaidToBe) {
  Yard yard(1);
  const json uid = yard.fleet.server.object("/api/v1/nodes/n0")["metadata"]["uid"];
  yard.put_pod_of("n0", "fixed", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", "n0"}, {"uid", uid}},
                  {{"kubernetes.io/config.mirror", "x"}});
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_EQ(yard.evictions(), 0U);
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("pod tenants/fixed (it is a static pod) would stay"));
}

// Its pods end by themselves, some time after it has gone.
TEST(DrainLoop, ThePodsOfADaemonSetThatWasDeletedAreWaitedFor) {
  Yard yard(1);
  yard.put_pod("n0", "exporter", "DaemonSet");
  yard.fleet.server.edit(Yard::path_of_pod("exporter"),
                         {{"metadata", {{"deletionTimestamp", "1970-01-01T00:00:00Z"}}}});
  yard.fleet.server.erase("/apis/apps/v1/namespaces/tenants/daemonsets/d");
  yard.put_pod("n0", "guest");
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(30s);
  EXPECT_THAT(yard.pods(), ElementsAre("exporter")) << "the other pod is evicted meanwhile";
  EXPECT_EQ(yard.evictions(), 1U);
  EXPECT_EQ(yard.fleet.state("n0"), "draining");
  yard.remove_pod("exporter");
  yard.pass(30s);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
}

TEST(DrainLoop, NoPodIsEvictedBeforeItsDaemonSetIsKnown) {
  Yard yard(1);
  yard.put_pod("n0", "exporter", "DaemonSet");
  yard.fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (!request.path.ends_with("/daemonsets/d")) return std::nullopt;
    return ApiFault::status_of(403, "Forbidden", "no");
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(5min);
  EXPECT_EQ(yard.evictions(), 0U);
  EXPECT_LE(yard.fleet.server.count("GET", "/daemonsets/d"), 7U);
  EXPECT_THAT(yard.fleet.error("n0"),
              HasSubstr("it is not known whether its DaemonSet tenants/d exists: get DaemonSet tenants/d"));
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("lacks the verb get on daemonsets"));
}

TEST(DrainLoop, DoesNotBeginForAHostdThatDiedBeforeItsLease) {
  Yard yard(2);
  yard.put_pod("n0", "guest-0");
  yard.put_pod("n1", "guest-1");
  yard.with_process.insert("n1");
  yard.fleet.start();
  yard.fleet.label("n1", "divided");
  yard.pass(30s);
  ASSERT_EQ(yard.fleet.state("n1"), "blocked");
  yard.fleet.server.disruption_budgeted = {"tenants/guest-0"};
  yard.fleet.label("n0", "divided");
  yard.pass(30s);
  ASSERT_EQ(yard.fleet.state("n0"), "draining");
  yard.with_process.clear();
  yard.pass(5s);
  test::HostdStandin& hostd = yard.fleet.machines[1]->hostd;
  hostd.stop();
  yard.fleet.server.disruption_budgeted.clear();
  const auto expect_nothing = [&] {
    EXPECT_FALSE(yard.is_cordoned("n1"));
    EXPECT_EQ(yard.mark("n1"), "");
    EXPECT_THAT(yard.pods(), ElementsAre("guest-1"));
    EXPECT_THAT(yard.fleet.lease_holders(), IsEmpty()) << "nobody's turn is wasted";
  };
  yard.pass(3min);
  ASSERT_EQ(yard.fleet.state("n0"), "ready");
  expect_nothing();
  hostd.come();
  yard.pass(1min);
  expect_nothing();  // what its predecessor said is not its word
  hostd.desired_changed();
  yard.pass(1min);
  EXPECT_EQ(yard.fleet.state("n1"), "ready");
  EXPECT_THAT(yard.pods(), IsEmpty());
}

TEST(DrainLoop, AsksNobodyWhileHostdDoesNotRunAndBeginsAgainWithIt) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(30s);
  ASSERT_GT(yard.evictions(), 0U);
  test::HostdStandin& hostd = yard.fleet.machines[0]->hostd;
  hostd.stop();
  yard.pass(2s);
  const auto asked = yard.evictions();
  yard.pass(30s);
  EXPECT_EQ(yard.evictions(), asked);
  EXPECT_TRUE(yard.is_cordoned("n0")) << "over an update";
  EXPECT_EQ(yard.fleet.state("n0"), "draining");
  hostd.start();
  yard.pass(20s);
  EXPECT_GT(yard.evictions(), asked);
  hostd.stop();
  yard.pass(2s);
  const auto asked_then = yard.evictions();
  yard.pass(kTimeout);
  EXPECT_EQ(yard.evictions(), asked_then);
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.mark("n0") + yard.cordon_mark("n0"), "");
  EXPECT_THAT(yard.fleet.reasons("n0"), Not(Contains("DrainFailed")));
  EXPECT_THAT(yard.fleet.lease_holders(), IsEmpty());
  yard.fleet.server.disruption_budgeted.clear();
  hostd.start();
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "ready");
}

// The node may be none of ours any more, and then nobody would.
TEST(DrainLoop, AnAgentThatLeavesUncordonsWhatItHasCordoned) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(30s);
  ASSERT_TRUE(yard.is_cordoned("n0"));
  bool left = false;
  yard.fleet.machines[0]->agent->leave([&] { left = true; });
  yard.pass(5s);
  EXPECT_TRUE(left);
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.mark("n0") + yard.cordon_mark("n0"), "");
  EXPECT_THAT(yard.fleet.lease_holders(), IsEmpty());
  yard.cordon("n0", true);
  yard.fleet.machines[0]->agent.reset();
  yard.fleet.start();
  yard.pass(30s);
  left = false;
  yard.fleet.machines[0]->agent->leave([&] { left = true; });
  yard.pass(5s);
  EXPECT_TRUE(left);
  EXPECT_TRUE(yard.is_cordoned("n0")) << "it was somebody else";
  EXPECT_EQ(yard.mark("n0"), "") << "its time is over by when the next one comes";
}

/// One of two nodes goes ahead, is taken from Ferry as it waits, and nobody comes after its agent.
void expect_the_other_goes_on(Yard& yard, std::size_t first) {
  Fleet& fleet = yard.fleet;
  EXPECT_LE(fleet.end(*fleet.machines[first]), 5s);
  const std::string node = fleet.machines[first]->name;
  for (const auto& [lease, user] : fleet.lease_holders()) EXPECT_NE(user, node);
  yard.pass(kLeaseLife + 2min);
  EXPECT_EQ(fleet.state(fleet.machines[1 - first]->name), "ready");
  EXPECT_THAT(fleet.results().failed, IsEmpty());
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
}

TEST(DrainLoop, AnAgentThatEndsInADrainFreesItsLease) {
  Yard yard(2);
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(30s);
  ASSERT_EQ(yard.fleet.state("n0"), "draining");
  yard.fleet.label("n1", "divided");
  yard.pass(10s);
  ASSERT_EQ(yard.fleet.state("n1"), "pending");
  expect_the_other_goes_on(yard, 0);
}

TEST(DrainLoop, AnAgentThatEndsAsItWaitsForOperandsFreesItsLease) {
  Yard yard(2);
  yard.begin_operator();
  yard.fleet.start();
  yard.fleet.label_all("divided");
  ASSERT_TRUE(yard.fleet.clock.run_until([&] { return !yard.fleet.lease_holders().empty(); }, 20s));
  const std::string first = yard.fleet.lease_holders().at(0);
  ASSERT_TRUE(yard.fleet.clock.run_until([&] { return yard.operand(first) != "true"; }, 10s));
  expect_the_other_goes_on(yard, first == "n0" ? 0 : 1);
  EXPECT_EQ(yard.operand(first), "true");
}

}  // namespace
}  // namespace ferry::agent
