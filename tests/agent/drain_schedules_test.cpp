// SPDX-License-Identifier: Apache-2.0
// All that may happen to a few nodes whose GPUs pods hold, beside the operator: turns, drains, pauses, edits,
// deaths, outages and clocks, at once. Against an API server in memory.
#include <array>
#include <functional>
#include <random>

#include <gmock/gmock.h>

#include "tests/agent/overlaps.h"
#include "tests/agent/schedules.h"
#include "tests/agent/yard.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::ApiFault;
using test::Fleet;
using test::Yard;
using testing::IsEmpty;

constexpr auto kShortTimeout = 30s;

int schedules() {
  return test::schedules() / 10;
}

class DrainSchedules : public testing::TestWithParam<int> {
 protected:
  enum Event {
    node_labelled,
    agent_killed,
    agent_ended,
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
    forbidden,
    configuration_edited,
    clock_set,
    owner_came_or_went
  };
  static constexpr std::array<const char*, 18> kEventNames = {"node labelled",
                                                              "agent killed",
                                                              "agent ended",
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
                                                              "evictions forbidden",
                                                              "configuration edited",
                                                              "clock set",
                                                              "owner came or went"};
  using Overlaps = test::Overlaps<kEventNames.size()>;

  void run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    draw_ = [&random](int most) { return std::uniform_int_distribution<int>(0, most - 1)(random); };
    Yard yard(3, static_cast<std::size_t>(1 + draw_(2)), seed);
    yard.by_name = draw_(2) == 0;
    yard.fleet.drain_timeout = kShortTimeout;
    yard.begin_operator();
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
    for (int event = 0; event < 32; ++event) {
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
      case agent_ended:
        fleet.end(machine);
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
          fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
            if (!request.path.ends_with("/eviction")) return std::nullopt;
            return ApiFault::status_of(403, "Forbidden", "no");
          };
        }
        return;
      case configuration_edited:
        return fleet.configure(1 + draw_(4));
      case clock_set:
        machine.skew = std::chrono::minutes(20 * (draw_(13) - 2));
        return;
      case owner_came_or_went:
        return own(yard, !owned_);
    }
  }

  /// NVIDIA's vfio-manager is switched on or off.
  void own(Yard& yard, bool owned) {
    if (std::exchange(owned_, owned) == owned) return;
    owned ? yard.put_daemon_set(kOwner) : yard.remove_daemon_set(kOwner);
    for (const auto& machine : yard.fleet.machines)
      yard.fleet.server.edit("/api/v1/nodes/" + machine->name,
                             {{"metadata", {{"labels", {{kOwnerLabel, owned ? json("true") : json()}}}}}});
  }

  /// All goes well again: what is still held is emptied where it may be, and nobody is left cordoned by us.
  void settle(Yard& yard) {
    Fleet& fleet = yard.fleet;
    own(yard, false);
    fleet.server.chances = {};
    fleet.server.set_down(false);
    fleet.server.script = nullptr;
    fleet.server.disruption_budgeted.clear();
    yard.with_process.clear();
    for (const auto& machine : fleet.machines)
      machine->hostd.runs ? machine->hostd.desired_changed() : machine->hostd.start();
    for (const std::string& pod : yard.pods())
      if (fleet.server.object(Yard::path_of_pod(pod)).at("/metadata/ownerReferences/0/kind"_json_pointer) ==
          "DaemonSet")
        yard.remove_pod(pod);
    fleet.drain_timeout = Yard::kDrainTimeout;
    for (const auto& machine : fleet.machines) {
      machine->agent.reset();
      fleet.start(*machine);
    }
    fleet.label_all("divided");
    fleet.configure(9);  // another desired state for all: what has failed before is tried
    yard.pass(10min);
    EXPECT_THAT(yard.pods(), IsEmpty());
    for (const auto& machine : fleet.machines) {
      const std::string& node = machine->name;
      EXPECT_EQ(fleet.state(node), "ready") << node;
      EXPECT_EQ(fleet.error(node), "") << node;
      EXPECT_EQ(machine->hostd.is, "divided") << node;
      EXPECT_EQ(yard.is_cordoned(node), theirs_.contains(node)) << node;
      EXPECT_EQ(yard.mark(node) + yard.cordon_mark(node), "") << node;
      EXPECT_EQ(yard.operand(node), "true") << node << ": an operand was left paused";
    }
    EXPECT_THAT(fleet.lease_holders(), IsEmpty()) << "a turn was kept";
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
    const bool many = test::share_of(schedules()) >= 100;
    const bool all_pairs = test::share_of(schedules()) >= 200;  // there are so many by now
    overlaps().show(kEventNames, all_pairs);
    fmt::print("{} drains begun, {} ended without success, {} evictions asked for\n", begun_, failed_,
               asked_);
    EXPECT_TRUE(!many || begun_ > 50) << "else nothing was tried";
    EXPECT_TRUE(!many || failed_ > 0) << "nor does any end without success";
  }

 private:
  static constexpr const char* kOwner = "nvidia-vfio-manager";
  static constexpr const char* kOwnerLabel = "nvidia.com/gpu.deploy.vfio-manager";

  std::function<int(int)> draw_;
  int pods_ = 0;
  bool down_ = false;
  bool forbidden_ = false;
  bool owned_ = false;
  std::set<std::string> theirs_;  ///< nodes that somebody else has cordoned
  Overlaps::Recent recent_;
  inline static std::size_t begun_ = 0;
  inline static std::size_t failed_ = 0;
  inline static std::size_t asked_ = 0;
};

TEST_P(DrainSchedules, EndInTheDesiredStateAndNoPodIsEvictedWithoutReason) {
  run(static_cast<std::uint64_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrainSchedules, testing::Range(0, schedules()));

}  // namespace
}  // namespace ferry::agent
