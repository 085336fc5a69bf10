// SPDX-License-Identifier: Apache-2.0
// Nodes whose GPUs pods hold: they are evicted, in turns, and the node is cordoned meanwhile. Against an API
// server in memory.
#include <array>
#include <cstdlib>
#include <functional>
#include <random>

#include <gmock/gmock.h>

#include "agent/drain_mark.h"
#include "tests/agent/fleet.h"
#include "tests/agent/overlaps.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::ApiFault;
using test::Fleet;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr auto kTimeout = 120s;
constexpr auto kShortTimeout = 30s;

/// A fleet whose hostds name the pods that its API server has on their nodes.
class Yard {
 public:
  explicit Yard(std::size_t nodes, std::size_t most = 1, std::uint64_t seed = 1) : fleet(nodes, most, seed) {
    fleet.drain_timeout = kTimeout;
    for (const auto& machine : fleet.machines) {
      machine->way = std::make_unique<Way>(*this, *machine);
      machine->hostd.holders = [this, &one = *machine] { return holders(one); };
    }
  }

  void put_pod(const std::string& node, const std::string& name, const char* owner = "ReplicaSet") {
    json pod = {
        {"apiVersion", "v1"},
        {"kind", "Pod"},
        {"metadata",
         {{"name", name}, {"namespace", "tenants"}, {"ownerReferences", {{{"kind", owner}, {"name", "d"}}}}}},
        {"spec", {{"nodeName", node}}},
        {"status", {{"phase", "Running"}}}};
    fleet.server.put(std::move(pod));
    tell_hostds();
  }
  static std::string path_of_pod(const std::string& name) {
    return "/api/v1/namespaces/tenants/pods/" + name;
  }
  bool has_pod(const std::string& name) const { return !fleet.server.object(path_of_pod(name)).is_null(); }
  void remove_pod(const std::string& name) {
    if (has_pod(name)) fleet.server.erase(path_of_pod(name));
    tell_hostds();
  }
  std::vector<std::string> pods() const {
    std::vector<std::string> out;
    for (const auto& [name, pod] : fleet.server.objects({.kind = kPods}))
      out.push_back(pod.at("metadata").at("name").get<std::string>());
    return out;
  }

  bool is_cordoned(const std::string& node) const {
    const json object = fleet.server.object("/api/v1/nodes/" + node);
    return object.value("/spec/unschedulable"_json_pointer, false);
  }
  void cordon(const std::string& node, bool cordoned) {
    fleet.server.edit("/api/v1/nodes/" + node,
                      {{"spec", {{"unschedulable", cordoned ? json(true) : json()}}}});
  }
  std::string mark(const std::string& node) const {
    return fleet.text_of(node, "annotations", kDrainAnnotation);
  }
  std::string cordon_mark(const std::string& node) const {
    return fleet.text_of(node, "annotations", kCordonedAnnotation);
  }

  void pass(std::chrono::seconds time) {
    for (auto second = 0s; second < time; ++second) {
      fleet.pass(1s);
      tell_hostds();
    }
  }
  void tell_hostds() {
    for (const auto& machine : fleet.machines) {
      const std::string now = holders(*machine).dump();
      if (std::exchange(told_[machine->name], now) != now) machine->hostd.wanted_changed();
    }
  }
  std::size_t evictions() const { return fleet.server.count("POST", "/eviction"); }

  Fleet fleet;
  std::set<std::string> with_process;  ///< nodes on which a process of the host's holds the GPU too
  bool by_name = true;                 ///< the kubelet says who; else the pod's process alone shows it

 private:
  /// What an agent sends on its way.
  class Way final : public ApiTransport {
   public:
    Way(Yard& yard, Fleet::Machine& machine) : yard_(yard), machine_(machine) {}
    Call send(ApiRequest request, ApiListener listener) override {
      if (request.path.ends_with("/eviction")) yard_.expect_to_be_right(machine_.name, request);
      return yard_.fleet.server.send(std::move(request), std::move(listener));
    }
    void cancel(Call call) override { yard_.fleet.server.cancel(call); }

   private:
    Yard& yard_;
    Fleet::Machine& machine_;
  };

  json holders(const Fleet::Machine& machine) {
    json out = json::array();
    for (const auto& [name, pod] : fleet.server.objects({.kind = kPods})) {
      if (pod.at("spec").at("nodeName") != machine.name) continue;
      const json uid = pod.at("metadata").at("uid");
      held_[machine.name].insert(uid.get<std::string>());
      if (by_name)
        out.push_back({{"kind", "pod"}, {"name", name}, {"pid", nullptr}, {"pod_uid", nullptr}});
      else
        out.push_back({{"kind", "virtual_machine"}, {"name", "guest"}, {"pid", 7}, {"pod_uid", uid}});
    }
    if (!out.empty())
      out.push_back({{"kind", "pod"}, {"name", "(given)"}, {"pid", nullptr}, {"by_the_plugin", true}});
    if (with_process.contains(machine.name))
      out.push_back({{"kind", "process"}, {"name", "python3"}, {"pid", 9}, {"pod_uid", nullptr}});
    return out;
  }

  /// Nobody is evicted who does not hold a GPU of the node, before the node shows it, or out of turn.
  void expect_to_be_right(const std::string& node, const ApiRequest& request) {
    const json eviction = json::parse(request.body);
    const auto uid = eviction.at("/deleteOptions/preconditions/uid"_json_pointer).get<std::string>();
    EXPECT_TRUE(held_[node].contains(uid)) << request.path;
    EXPECT_FALSE(eviction.at("deleteOptions").contains("gracePeriodSeconds")) << "by force";
    EXPECT_TRUE(std::ranges::any_of(fleet.holders(), [&](const auto& slot) { return slot.second == node; }))
        << node << " has no turn";
    const auto shown = read_drain_mark(mark(node));
    EXPECT_TRUE(shown && shown->since) << node << ": " << mark(node);
    const auto& hostd =
        (*std::ranges::find(fleet.machines, node, [](const auto& one) { return one->name; }))->hostd;
    // Its end is told before its lock is let go.
    EXPECT_TRUE(hostd.runs || fleet.clock.now() - hostd.stopped < 2s) << "nobody would take the GPUs";
  }

  std::map<std::string, std::string> told_;
  std::map<std::string, std::set<std::string>> held_;  ///< UIDs, by node
};

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
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.mark("n0") + yard.cordon_mark("n0"), "");
  EXPECT_THAT(yard.fleet.holders(), IsEmpty());
  EXPECT_THAT(yard.fleet.reasons("n0"), Contains("NodeDraining"));
  EXPECT_EQ(yard.evictions(), 1U);
}

TEST(DrainLoop, LeavesThePodWhereItIsSwitchedOff) {
  Yard yard(1);
  yard.fleet.drain_timeout.reset();
  yard.put_pod("n0", "guest");
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(10min);
  EXPECT_EQ(yard.fleet.state("n0"), "refused");
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
  EXPECT_THAT(yard.pods(), ElementsAre("guest"));
  EXPECT_GT(yard.evictions(), 2U);
  EXPECT_LT(yard.evictions(), 15U) << "with growing pauses";
  yard.fleet.server.disruption_budgeted.clear();
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
  EXPECT_FALSE(yard.is_cordoned("n0"));
}

TEST(DrainLoop, WaitsAsLongAsItIsAskedToWait) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const ApiRequest& request) -> std::optional<ApiFault> {
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

TEST(DrainLoop, GivesUpWhenItsTimeIsUpAndTriesAgainForAnotherWish) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.disruption_budgeted = {"tenants/guest"};
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(kTimeout + 30s);
  EXPECT_EQ(yard.fleet.state("n0"), "refused");
  EXPECT_FALSE(yard.is_cordoned("n0"));
  EXPECT_EQ(yard.cordon_mark("n0"), "");
  EXPECT_THAT(yard.fleet.error("n0"),
              HasSubstr("after 120 seconds the GPUs are still held by pod tenants/guest"));
  EXPECT_THAT(yard.fleet.reasons("n0"), Contains("DrainFailed"));
  EXPECT_THAT(yard.fleet.holders(), IsEmpty());
  const auto asked = yard.evictions();
  yard.fleet.machines[0]->agent.reset();
  yard.fleet.start();
  yard.fleet.server.disruption_budgeted.clear();
  yard.pass(1h);
  EXPECT_EQ(yard.evictions(), asked) << "also by one that is started anew";
  yard.fleet.label("n0", "given");
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
  EXPECT_EQ(yard.mark("n0"), "");
}

TEST(DrainLoop, AMissingRightEndsItAndIsNamed) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const ApiRequest& request) -> std::optional<ApiFault> {
    if (!request.path.ends_with("/eviction")) return std::nullopt;
    return ApiFault::status_of(403, "Forbidden", "no");
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "draining") << "an API server that has just started forbids everything";
  yard.pass(5min);
  EXPECT_EQ(yard.fleet.state("n0"), "refused");
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
  yard.fleet.server.script = [](const ApiRequest& request) -> std::optional<ApiFault> {
    if (request.body.find("unschedulable") == std::string::npos) return std::nullopt;
    return ApiFault::status_of(403, "Forbidden", "a policy is against it");
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  yard.pass(5min);
  EXPECT_EQ(yard.fleet.state("n0"), "refused");
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("a policy is against it"));
  EXPECT_EQ(yard.evictions(), 0U);
  EXPECT_LT(yard.fleet.server.count("PATCH", "/nodes/n0"), 30U);
  yard.fleet.server.script = nullptr;
  yard.pass(3min);
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
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
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
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
  EXPECT_EQ(yard.fleet.in_state("as_wanted"), 3U);
  EXPECT_THAT(yard.pods(), IsEmpty());
}

// It has been given back, as far as the server goes, and its holder hears of nothing.
TEST(DrainLoop, ATurnThatIsOnItsWayBackIsNone) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.with_process.insert("n0");
  yard.fleet.server.script = [](const ApiRequest& request) -> std::optional<ApiFault> {
    if (request.body.find("\"holderIdentity\":null") == std::string::npos) return std::nullopt;
    return ApiFault::lost_after();
  };
  yard.fleet.start();
  yard.fleet.label("n0", "divided");
  ASSERT_TRUE(yard.fleet.clock.run_until([&] { return !yard.fleet.holders().empty(); }, 20s));
  yard.pass(1s);
  yard.fleet.server.silence_streams();
  for (int second = 0; second < 20 && !yard.fleet.holders().empty(); ++second) yard.pass(1s);
  ASSERT_THAT(yard.fleet.holders(), IsEmpty());
  yard.with_process.clear();
  yard.pass(10s);
  EXPECT_EQ(yard.evictions(), 0U);
  yard.fleet.server.script = nullptr;
  yard.pass(5min);
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
}

// Else the pod may go while the Node says that nobody does, and while it is another node's turn.
TEST(DrainLoop, ARequestThatIsTriedAgainEndsWithTheDrain) {
  Yard yard(1);
  yard.put_pod("n0", "guest");
  yard.fleet.server.script = [](const ApiRequest& request) -> std::optional<ApiFault> {
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
  EXPECT_THAT(yard.fleet.error("n0"), HasSubstr("pod tenants/exporter (it is of DaemonSet d) would stay"));
}

TEST(DrainLoop, DoesNotBeginForAHostdThatDiedBeforeItsTurn) {
  Yard yard(2);
  yard.put_pod("n0", "guest-0");
  yard.put_pod("n1", "guest-1");
  yard.with_process.insert("n1");
  yard.fleet.start();
  yard.fleet.label("n1", "divided");
  yard.pass(30s);
  ASSERT_EQ(yard.fleet.state("n1"), "refused");
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
    EXPECT_THAT(yard.fleet.holders(), IsEmpty()) << "nobody's turn is wasted";
  };
  yard.pass(3min);
  ASSERT_EQ(yard.fleet.state("n0"), "as_wanted");
  expect_nothing();
  hostd.come();
  yard.pass(1min);
  expect_nothing();  // what its predecessor said is not its word
  hostd.wanted_changed();
  yard.pass(1min);
  EXPECT_EQ(yard.fleet.state("n1"), "as_wanted");
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
  EXPECT_THAT(yard.fleet.holders(), IsEmpty());
  yard.fleet.server.disruption_budgeted.clear();
  hostd.start();
  yard.pass(60s);
  EXPECT_EQ(yard.fleet.state("n0"), "as_wanted");
}

int schedules() {
  const char* const wish = std::getenv("FERRY_SCHEDULES");  // NOLINT(concurrency-mt-unsafe): one thread
  return (wish == nullptr ? 1'000 : std::atoi(wish)) / 10;  // NOLINT(cert-err34-c): 0 runs none
}

class DrainSchedules : public testing::TestWithParam<int> {
 protected:
  enum Event {
    node_labelled,
    agent_killed,
    agent_with_or_without,
    hostd_restarted,
    hostd_came_or_went,
    pod_came,
    pod_went,
    process_came_or_went,
    budget_set_or_lifted,
    cordoned,
    uncordoned,
    streams_cut,
    outage,
    forbidden
  };
  static constexpr std::array<const char*, 14> kEventNames = {"node labelled",
                                                              "agent killed",
                                                              "drain on or off",
                                                              "hostd restarted",
                                                              "hostd came or went",
                                                              "pod came",
                                                              "pod went",
                                                              "process came or went",
                                                              "budget set or lifted",
                                                              "somebody cordoned",
                                                              "somebody uncordoned",
                                                              "streams cut",
                                                              "API server down or up",
                                                              "evictions forbidden"};
  using Overlaps = test::Overlaps<kEventNames.size()>;

  void run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    draw_ = [&random](int most) { return std::uniform_int_distribution<int>(0, most - 1)(random); };
    Yard yard(3, static_cast<std::size_t>(1 + draw_(2)), seed);
    yard.by_name = draw_(2) == 0;
    yard.fleet.drain_timeout = kShortTimeout;
    yard.fleet.start();
    for (const auto& machine : yard.fleet.machines) put_pod(yard, machine->name);
    yard.fleet.label_all("divided");
    yard.pass(std::chrono::seconds(draw_(60)));
    auto& chances = yard.fleet.server.chances;
    if (draw_(2) == 0) {
      chances.lost_before = chances.lost_after = chances.server_fault = chances.other_writer = 0.1;
      chances.late = chances.cut = chances.ended = chances.again = chances.compacted = 0.1;
      chances.too_many_requests = chances.unauthorized = 0.05;
    }
    for (int event = 0; event < 24; ++event) {
      happen(yard, static_cast<Event>(draw_(static_cast<int>(kEventNames.size()))));
      yard.pass(std::chrono::seconds(draw_(3) == 0 ? draw_(40) : draw_(4)));
    }
    settle(yard);
  }

  void put_pod(Yard& yard, const std::string& node) {
    yard.put_pod(node, fmt::format("p{}", ++pods_), draw_(6) == 0 ? "DaemonSet" : "ReplicaSet");
  }

  void happen(Yard& yard, Event event) {
    Fleet& fleet = yard.fleet;
    overlaps().count(recent_, event, fleet.clock.now());
    Fleet::Machine& machine = *fleet.machines.at(static_cast<std::size_t>(draw_(3)));
    static constexpr std::array kPolicies = {"given", "kept", "divided", "divided", "typo"};
    switch (event) {
      case node_labelled:
        return fleet.label(machine.name, kPolicies.at(static_cast<std::size_t>(draw_(5))));
      case agent_with_or_without:
        fleet.drain_timeout =
            draw_(3) == 0 ? std::nullopt : std::optional<std::chrono::seconds>(kShortTimeout);
        [[fallthrough]];
      case agent_killed:
        machine.agent.reset();
        return fleet.start(machine);
      case hostd_restarted:
        machine.hostd.stop();
        return machine.hostd.start();
      case hostd_came_or_went:
        return machine.hostd.runs ? machine.hostd.stop() : machine.hostd.start();
      case pod_came:
        return put_pod(yard, machine.name);
      case pod_went:
        if (const auto all = yard.pods(); !all.empty())
          yard.remove_pod(all.at(static_cast<std::size_t>(draw_(static_cast<int>(all.size())))));
        return;
      case process_came_or_went:
        if (yard.with_process.erase(machine.name) == 0) yard.with_process.insert(machine.name);
        return yard.tell_hostds();
      case budget_set_or_lifted: {
        auto& budgeted = fleet.server.disruption_budgeted;
        if (budgeted.empty())
          for (const std::string& pod : yard.pods()) budgeted.insert("tenants/" + pod);
        else
          budgeted.clear();
        return;
      }
      case cordoned:
        // Where it is cordoned already nobody can tell that somebody else wants it too.
        if (!yard.is_cordoned(machine.name) && yard.cordon_mark(machine.name).empty())
          theirs_.insert(machine.name);
        return yard.cordon(machine.name, true);
      case uncordoned:
        theirs_.erase(machine.name);
        return yard.cordon(machine.name, false);
      case streams_cut:
        return fleet.server.cut_streams();
      case outage:
        down_ = !down_;
        return fleet.server.set_down(down_);
      case forbidden:
        if (std::exchange(forbidden_, !forbidden_)) {
          fleet.server.script = nullptr;
        } else {
          fleet.server.script = [](const ApiRequest& request) -> std::optional<ApiFault> {
            if (!request.path.ends_with("/eviction")) return std::nullopt;
            return ApiFault::status_of(403, "Forbidden", "no");
          };
        }
        return;
    }
  }

  /// All goes well again: what is still held is emptied where it may be, and nobody is left cordoned by us.
  void settle(Yard& yard) const {
    Fleet& fleet = yard.fleet;
    fleet.server.chances = {};
    fleet.server.set_down(false);
    fleet.server.script = nullptr;
    fleet.server.disruption_budgeted.clear();
    yard.with_process.clear();
    for (const auto& machine : fleet.machines)
      machine->hostd.runs ? machine->hostd.wanted_changed() : machine->hostd.start();
    for (const std::string& pod : yard.pods())
      if (fleet.server.object(Yard::path_of_pod(pod)).at("/metadata/ownerReferences/0/kind"_json_pointer) ==
          "DaemonSet")
        yard.remove_pod(pod);
    fleet.drain_timeout = kTimeout;
    for (const auto& machine : fleet.machines) {
      machine->agent.reset();
      fleet.start(*machine);
    }
    fleet.label_all("divided");
    fleet.configure(9);  // another wish for all: what has failed before is tried
    yard.pass(10min);
    EXPECT_THAT(yard.pods(), IsEmpty());
    for (const auto& machine : fleet.machines) {
      const std::string& node = machine->name;
      EXPECT_EQ(fleet.state(node), "as_wanted") << node;
      EXPECT_EQ(fleet.error(node), "") << node;
      EXPECT_EQ(machine->hostd.is, "divided") << node;
      EXPECT_EQ(yard.is_cordoned(node), theirs_.contains(node)) << node;
      EXPECT_EQ(yard.mark(node) + yard.cordon_mark(node), "") << node;
    }
    EXPECT_THAT(fleet.holders(), IsEmpty()) << "a turn was kept";
    for (const auto& seen : fleet.server.seen()) {
      if (seen.request.method != "PATCH") continue;
      begun_ += seen.request.body.find("\\\"since\\\"") != std::string::npos ? 1 : 0;
      failed_ += seen.request.body.find("\\\"failed\\\"") != std::string::npos ? 1 : 0;
    }
    asked_ += yard.evictions();
  }

  static Overlaps& overlaps() {
    static Overlaps all;
    return all;
  }
  static void TearDownTestSuite() {
    const bool many = schedules() >= 100;
    overlaps().show(kEventNames, many);
    fmt::print("{} drains begun, {} ended without success, {} evictions asked for\n", begun_, failed_,
               asked_);
    EXPECT_TRUE(!many || begun_ > 50) << "else nothing was tried";
    EXPECT_TRUE(!many || failed_ > 0) << "nor does any end without success";
  }

 private:
  std::function<int(int)> draw_;
  int pods_ = 0;
  bool down_ = false;
  bool forbidden_ = false;
  std::set<std::string> theirs_;  ///< nodes that somebody else has cordoned
  Overlaps::Recent recent_;
  inline static std::size_t begun_ = 0;
  inline static std::size_t failed_ = 0;
  inline static std::size_t asked_ = 0;
};

TEST_P(DrainSchedules, EndAsWantedAndNobodyIsEvictedWithoutReason) {
  run(static_cast<std::uint64_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrainSchedules, testing::Range(0, schedules()));

}  // namespace
}  // namespace ferry
