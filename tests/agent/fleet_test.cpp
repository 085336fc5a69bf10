// SPDX-License-Identifier: Apache-2.0
// Agents of several nodes that take turns: whatever happens, never more of them change than may, nobody keeps
// a turn, and all become what they shall be.
#include "tests/agent/fleet.h"

#include <array>
#include <random>

#include <fmt/format.h>

#include "tests/agent/overlaps.h"
#include "tests/agent/schedules.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using test::Fleet;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

/// All are `divided` in its first edition, and nobody has a turn.
void settle_first(Fleet& fleet) {
  fleet.start();
  fleet.label_all("divided");
  fleet.pass(5min);
  ASSERT_EQ(fleet.in_state("ready"), fleet.machines.size());
  ASSERT_THAT(fleet.lease_holders(), IsEmpty());
  fleet.most_seen = 0;
}

TEST(ChangeLeases, KeepWhatHasFailedOnAnotherNode) {
  const std::string failed = std::string(kFailedPrefix) + "aa";
  const auto taken_back = [&](const std::string& result) {
    const nlohmann::json lease = {{"metadata", {{"annotations", {{failed, result}}}}}};
    return patch_to_report(lease, "n1", "aa", "").at("metadata").at("annotations").contains(failed);
  };
  EXPECT_TRUE(taken_back("n1: in vain"));
  EXPECT_FALSE(taken_back("n10: in vain"));
  EXPECT_FALSE(taken_back("n2: in vain"));
}

// A class rollout keeps its mark beside those of many GPU configurations.
TEST(ChangeLeases, DropTheFirstOfTooManyResults) {
  nlohmann::json annotations = {{std::string(kPassedPrefix) + "kata-1", "n2"}};
  for (std::size_t i = 0; i < kMostResults - 1; ++i)
    annotations[fmt::format("{}{:016x}", kPassedPrefix, i)] = "n2";
  const nlohmann::json lease = {{"metadata", {{"annotations", annotations}}}};
  const auto changes = patch_to_report(lease, "n1", "aa", "").at("metadata").at("annotations");
  EXPECT_EQ(changes.size(), 2U) << changes.dump();
  EXPECT_TRUE(changes.at(fmt::format("{}{:016x}", kPassedPrefix, 0)).is_null());
}

TEST(Fleet, ChangesOneNodeAtATime) {
  Fleet fleet(4, 1);
  fleet.start();
  fleet.label_all("divided");
  fleet.pass(15s);
  EXPECT_EQ(fleet.lease_holders().size(), 1U);
  fleet.pass(2min);
  EXPECT_EQ(fleet.in_state("ready"), 4U);
  EXPECT_EQ(fleet.most_seen, 1U);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  EXPECT_EQ(fleet.results().passed.size(), 1U);
}

TEST(Fleet, LetsOneGoAheadAndThenSoManyAsMay) {
  Fleet fleet(6, 3);
  settle_first(fleet);
  fleet.configure(2);
  fleet.clock.run_until([&] { return !fleet.lease_holders().empty(); }, 10s);
  std::size_t most_before = 0;
  while (fleet.results().passed.size() < 2) {
    most_before = fleet.most_seen;
    fleet.pass(1s);
  }
  EXPECT_EQ(most_before, 1U);
  fleet.pass(2min);
  EXPECT_EQ(fleet.most_seen, 3U);
  EXPECT_EQ(fleet.in_state("ready"), 6U);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
}

TEST(Fleet, StopsWhenOneHasFailedUntilAPersonSaysOtherwise) {
  Fleet fleet(4, 2);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) machine->hostd.fails = true;
  fleet.configure(2);
  fleet.pass(10min);
  EXPECT_EQ(fleet.in_state("failed"), 1U);
  EXPECT_EQ(fleet.in_state("pending"), 3U);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  const auto failed = fleet.results().failed;
  ASSERT_EQ(failed.size(), 1U);
  const std::string node = failed.begin()->second.substr(0, 2);
  for (const auto& machine : fleet.machines) {
    if (machine->name == node) continue;
    EXPECT_THAT(fleet.error(machine->name), HasSubstr("it has failed on " + node));
    EXPECT_THAT(fleet.reasons(machine->name), Contains("RolloutHeld"));
    machine->hostd.fails = false;
  }
  // As the message says it.
  fleet.server.edit(Fleet::lease_path(0),
                    {{"metadata", {{"annotations", {{kFailedPrefix + failed.begin()->first, nullptr}}}}}});
  fleet.pass(5min);
  EXPECT_EQ(fleet.in_state("ready"), 3U);
  EXPECT_EQ(fleet.in_state("failed"), 1U);
  EXPECT_EQ(fleet.error("n0").empty(), node != "n0");
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
}

TEST(Fleet, GoesOnWhenTheOneThatFailedIsMended) {
  Fleet fleet(3, 1);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) machine->hostd.fails = true;
  fleet.configure(2);
  fleet.pass(1min);
  ASSERT_EQ(fleet.in_state("failed"), 1U);
  for (const auto& machine : fleet.machines) {
    machine->hostd.fails = false;
    machine->hostd.desired_changed();
  }
  fleet.pass(3min);
  EXPECT_EQ(fleet.in_state("ready"), 3U);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
}

TEST(Fleet, AnotherConfigurationIsNotHeld) {
  Fleet fleet(3, 1);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) machine->hostd.fails = true;
  fleet.configure(2);
  fleet.pass(1min);
  for (const auto& machine : fleet.machines) machine->hostd.fails = false;
  fleet.configure(3);
  fleet.pass(3min);
  EXPECT_EQ(fleet.in_state("ready"), 3U);
  EXPECT_EQ(fleet.results().failed.size(), 1U) << "what has failed stays known";
}

TEST(Fleet, ARefusalIsNoReasonToStop) {
  Fleet fleet(3, 1);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) machine->hostd.user = true;
  fleet.configure(2);
  fleet.pass(3min);
  EXPECT_EQ(fleet.in_state("blocked"), 3U);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  EXPECT_THAT(fleet.results().failed, IsEmpty());
}

/// The first of two nodes waits for the device plugin, and its hostd ends.
Fleet::Machine& end_in_a_withdrawal(Fleet& fleet) {
  settle_first(fleet);
  fleet.configure(2);
  EXPECT_TRUE(fleet.clock.run_until([&] { return !fleet.lease_holders().empty(); }, 1min));
  Fleet::Machine& first = *fleet.machines.at(fleet.lease_holders().at(0) == "n0" ? 0 : 1);
  for (int i = 0; i < 10 && !first.hostd.under_way; ++i) fleet.pass(1s);
  first.hostd.stop();
  return first;
}

TEST(Fleet, AHostdThatEndsBeforeAChangeCondemnsNothing) {
  Fleet fleet(2, 1);
  Fleet::Machine& first = end_in_a_withdrawal(fleet);
  fleet.pass(1min);
  EXPECT_EQ(fleet.state(first.name), "applying");
  EXPECT_THAT(fleet.lease_holders(), ElementsAre(Pair(0, first.name)));
  first.hostd.start();
  fleet.pass(2min);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
  EXPECT_EQ(fleet.most_seen, 1U);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
  EXPECT_THAT(fleet.reasons(first.name), Not(Contains("Failed")));
}

TEST(Fleet, AKilledAgentGoesOnWithItsLease) {
  Fleet fleet(2, 1);
  fleet.start();
  fleet.label_all("divided");
  fleet.clock.run_until([&] { return !fleet.lease_holders().empty(); }, 20s);
  const std::string first = fleet.lease_holders().at(0);
  Fleet::Machine& machine = *fleet.machines.at(first == "n0" ? 0 : 1);
  machine.agent.reset();
  fleet.pass(1min);
  EXPECT_THAT(fleet.lease_holders(), ElementsAre(Pair(0, first)));
  fleet.start(machine);
  fleet.pass(1min);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
}

TEST(Fleet, AFailureAfterTheDeviceUserHasEndedStopsTheOthers) {
  Fleet fleet(3, 1);
  settle_first(fleet);
  Fleet::Machine& first = *fleet.machines.at(0);
  for (const auto& machine : fleet.machines) machine->hostd.user = true;
  fleet.configure(2);
  fleet.pass(3min);
  ASSERT_EQ(fleet.in_state("blocked"), 3U);
  // The VM ends, and it is tried without a turn.
  first.hostd.user = false;
  first.hostd.fails = true;
  first.hostd.desired_changed();
  fleet.pass(1min);
  EXPECT_EQ(first.hostd.tries_unasked, 1U);
  const auto failed = fleet.results().failed;
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_THAT(failed.begin()->second, HasSubstr("n0: "));
  // Taken back by a person it is not said again, by an agent that comes after it neither.
  fleet.server.edit(Fleet::lease_path(0),
                    {{"metadata", {{"annotations", {{kFailedPrefix + failed.begin()->first, nullptr}}}}}});
  fleet.pass(1min);
  first.agent.reset();
  fleet.start(first);
  first.hostd.desired_changed();
  fleet.pass(1min);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
}

TEST(Fleet, ANodeWithoutSuchGpusIsNoCanary) {
  Fleet fleet(3, 3);
  fleet.machines.at(0)->hostd.matches = false;
  fleet.start();
  fleet.label("n0", "divided");
  fleet.pass(1min);
  EXPECT_EQ(fleet.state("n0"), "ready");
  EXPECT_THAT(fleet.results().passed, IsEmpty());
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  for (const auto& machine : fleet.machines) machine->hostd.fails = true;
  fleet.label_all("divided");
  fleet.pass(3min);
  EXPECT_EQ(fleet.in_state("failed"), 1U) << "one goes ahead all the same";
}

TEST(Fleet, ADeadNodesLeaseIsTakenWhenItHasBeenSilentForLong) {
  Fleet fleet(3, 1);
  settle_first(fleet);
  fleet.configure(2);
  fleet.pass(1min);
  ASSERT_EQ(fleet.in_state("ready"), 3U);
  fleet.configure(3);
  // The second of them: what it changes to has proven itself.
  for (int i = 0; i < 60 && (fleet.results().passed.size() < 3 || fleet.lease_holders().empty()); ++i)
    fleet.pass(1s);
  const std::string dead = fleet.lease_holders().begin()->second;
  Fleet::Machine& machine = *fleet.machines.at(static_cast<std::size_t>(dead.at(1) - '0'));
  machine.agent.reset();
  machine.hostd.stop();
  fleet.pass(kLeaseLife - 30s);
  EXPECT_EQ(fleet.lease_holders().begin()->second, dead);
  fleet.pass(2min);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  for (const auto& other : fleet.machines) {
    EXPECT_TRUE(other->name == dead || fleet.state(other->name) == "ready");
  }
}

TEST(Fleet, ACanaryThatGoesSilentHoldsTheOthers) {
  Fleet fleet(2, 1);
  settle_first(fleet);
  fleet.configure(2);
  ASSERT_TRUE(fleet.clock.run_until([&] { return !fleet.lease_holders().empty(); }, 1min));
  const std::string dead = fleet.lease_holders().begin()->second;
  const std::string other = dead == "n0" ? "n1" : "n0";
  fleet.machines.at(dead == "n0" ? 0 : 1)->agent.reset();
  fleet.pass(kLeaseLife + 1min);
  EXPECT_EQ(fleet.state(other), "pending");
  EXPECT_THAT(fleet.error(other), HasSubstr(dead + ": the node has gone silent"));
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  fleet.start(*fleet.machines.at(dead == "n0" ? 0 : 1));
  fleet.pass(1min);
  EXPECT_EQ(fleet.state(dead), "pending") << "it had not begun";
  fleet.configure(3);
  fleet.pass(2min);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
}

/// The first of them has its turn, as those do to whom a wrong configuration would be the first.
Fleet::Machine& first_in_turn(Fleet& fleet) {
  fleet.configure(2);
  EXPECT_TRUE(fleet.clock.run_until([&] { return !fleet.lease_holders().empty(); }, 1min));
  return *fleet.machines.at(fleet.lease_holders().begin()->second == "n0" ? 0 : 1);
}

TEST(Fleet, AnAgentThatEndsInAChangeReportsItsResultFirst) {
  for (const bool fails : {false, true}) {
    Fleet fleet(2, 1);
    settle_first(fleet);
    for (const auto& machine : fleet.machines) {
      machine->hostd.takes = 20s;
      machine->hostd.fails_late = fails;
    }
    Fleet::Machine& first = first_in_turn(fleet);
    fleet.pass(4s);
    ASSERT_TRUE(first.hostd.under_way);
    EXPECT_GT(fleet.end(first), 10s);
    EXPECT_EQ(fleet.results().passed.size(), fails ? 1U : 2U);
    EXPECT_EQ(fleet.results().failed.size(), fails ? 1U : 0U);
    EXPECT_NE(fleet.lease_holders()[0], first.name);
  }
}

// Another would change beside it, by what nobody knows the end of.
TEST(Fleet, AnAgentThatEndsKeepsTheLeaseOfAChangeWhoseEndIsOpen) {
  Fleet fleet(2, 1);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) machine->hostd.takes = 3min;
  Fleet::Machine& first = first_in_turn(fleet);
  fleet.pass(4s);
  ASSERT_TRUE(first.hostd.under_way);
  EXPECT_LE(fleet.end(first), 60s);
  EXPECT_THAT(fleet.lease_holders(), ElementsAre(Pair(0, first.name)));
  fleet.start(first);
  fleet.pass(10min);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
  EXPECT_EQ(fleet.most_seen, 1U);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
}

// Its request is on the way: the turn is its own before it knows of it.
TEST(Fleet, AnAgentThatEndsFreesALeaseThatItHasJustTaken) {
  Fleet fleet(1, 1);
  fleet.start();
  fleet.label_all("divided");
  ASSERT_TRUE(fleet.clock.run_until([&] { return fleet.server.count("POST", "/leases") > 0; }, 20s));
  EXPECT_LE(fleet.end(*fleet.machines[0]), 2s);
  EXPECT_EQ(fleet.server.objects(rollout_lease_objects("gpus")).size(), 1U);
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
  EXPECT_EQ(fleet.machines[0]->hostd.is, "kept");
}

TEST(Fleet, AnAgentThatMayNotFreeItsLeaseEndsAllTheSame) {
  for (const int status : {403, 503}) {
    Fleet fleet(1, 1);
    fleet.machines[0]->hostd.takes = 20s;
    fleet.start();
    fleet.label_all("divided");
    ASSERT_TRUE(fleet.clock.run_until([&] { return !fleet.lease_holders().empty(); }, 20s));
    fleet.pass(4s);
    fleet.server.script = [status](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
      if (request.path.find("/leases/") == std::string::npos) return std::nullopt;
      return test::ApiFault::status_of(status, "No", "no");
    };
    const auto took = fleet.end(*fleet.machines[0]);
    EXPECT_TRUE(status == 403 ? took < 30s : took <= 60s) << status << ": " << took.count();
    EXPECT_THAT(fleet.lease_holders(), ElementsAre(Pair(0, "n0")));
  }
}

TEST(Fleet, ALongChangeKeepsItsLease) {
  Fleet fleet(2, 1);
  for (const auto& machine : fleet.machines) machine->hostd.takes = 25min;
  fleet.start();
  fleet.label_all("divided");
  fleet.pass(14min);
  EXPECT_EQ(fleet.lease_holders().size(), 1U);
  EXPECT_EQ(fleet.in_state("pending"), 1U);
  EXPECT_EQ(fleet.most_seen, 1U);
}

TEST(Fleet, AnOutageEndsNoChangeAndTheLeaseIsFreedAfterIt) {
  Fleet fleet(2, 1);
  fleet.start();
  fleet.label_all("divided");
  ASSERT_TRUE(
      fleet.clock.run_until([&] { return fleet.under_way() > 0 || !fleet.lease_holders().empty(); }, 20s));
  fleet.pass(4s);
  const std::string first = fleet.lease_holders().at(0);
  fleet.server.set_down(true);
  fleet.pass(30min);
  EXPECT_EQ(fleet.machines.at(first == "n0" ? 0 : 1)->hostd.is, "divided");
  EXPECT_THAT(fleet.lease_holders(), ElementsAre(Pair(0, first)));
  fleet.server.set_down(false);
  fleet.pass(5min);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
  EXPECT_EQ(fleet.most_seen, 1U);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
}

/// The answer of an API server that has not read the roles yet.
void forbid_leases(Fleet& fleet, bool reads_alone, std::chrono::seconds time) {
  std::size_t refused = 0;
  fleet.server.script = [&](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
    if (request.path.find("/leases") == std::string::npos) return std::nullopt;
    if (reads_alone && request.method != "GET") return std::nullopt;
    ++refused;
    return test::ApiFault::status_of(403, "Forbidden", "no");
  };
  fleet.server.cut_streams();
  fleet.pass(time);
  EXPECT_GT(refused, 0U);
  fleet.server.script = nullptr;
}

TEST(Fleet, AnOpenChangeKeepsItsLeaseWhileTheLeasesAreForbidden) {
  Fleet fleet(2, 1);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) machine->hostd.takes = 5min;
  const Fleet::Machine& first = first_in_turn(fleet);
  fleet.pass(4s);
  ASSERT_TRUE(first.hostd.under_way);
  forbid_leases(fleet, false, 2s);
  EXPECT_THAT(fleet.lease_holders(), ElementsAre(Pair(0, first.name)));
  fleet.pass(15min);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
  EXPECT_EQ(fleet.most_seen, 1U);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
}

TEST(Fleet, ANodeRenewsItsOwnLeaseWhileItCannotReadThem) {
  Fleet fleet(3, 2);
  settle_first(fleet);
  fleet.configure(2);
  while (fleet.results().passed.size() < 2) fleet.pass(1s);
  for (const auto& machine : fleet.machines) machine->hostd.takes = 5min;
  for (int i = 0; i < 10 && fleet.under_way() < 2; ++i) fleet.pass(1s);
  ASSERT_EQ(fleet.under_way(), 2U);
  const auto holders = fleet.lease_holders();
  const auto writes = [&] { return fleet.server.count("PATCH", Fleet::lease_path(1)); };
  const auto before = writes();
  ASSERT_EQ(holders.size(), 2U);
  forbid_leases(fleet, true, 201s);
  EXPECT_EQ(fleet.lease_holders(), holders);
  EXPECT_EQ(writes(), before + 1) << "it is renewed";
  fleet.pass(5min);
  EXPECT_EQ(fleet.in_state("ready"), 3U);
  EXPECT_THAT(fleet.results().failed, IsEmpty());
  EXPECT_THAT(fleet.lease_holders(), IsEmpty());
}

TEST(Fleet, ARoleThatLacksLeasesHoldsTheChangeAndSaysSo) {
  Fleet fleet(1, 1);
  fleet.server.script = [](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
    if (request.path.find("/leases") == std::string::npos) return std::nullopt;
    return test::ApiFault::status_of(403, "Forbidden", "no");
  };
  fleet.start();
  fleet.label("n0", "divided");
  fleet.pass(1min);
  EXPECT_EQ(fleet.state("n0"), "pending");
  EXPECT_THAT(fleet.error("n0"), HasSubstr("list Lease"));
  EXPECT_EQ(fleet.machines[0]->hostd.is, "kept");
  fleet.server.script = nullptr;
  fleet.pass(5min);
  EXPECT_EQ(fleet.state("n0"), "ready");
  EXPECT_EQ(fleet.error("n0"), "");
}

TEST(Fleet, AChangeFromBeforeABootNeedsNoLease) {
  Fleet fleet(2, 1);
  settle_first(fleet);
  for (const auto& machine : fleet.machines) {
    machine->agent.reset();
    machine->hostd.stop();
    machine->hostd.is = "kept";  // as vGPUs are gone after a boot
  }
  const auto before = fleet.server.count("PATCH", "/leases");
  fleet.start();
  for (const auto& machine : fleet.machines) machine->hostd.start();
  fleet.pass(20s);
  EXPECT_EQ(fleet.in_state("ready"), 2U);
  EXPECT_EQ(fleet.server.count("PATCH", "/leases"), before);
  fleet.pass(1min);
  EXPECT_EQ(fleet.server.watches(), 4U * 2U) << "at rest nobody watches the Leases";
}

int schedules() {
  return test::schedules() / 10;
}

class FleetSchedules : public testing::TestWithParam<int> {
 protected:
  enum Event {
    node_labelled,
    configuration_edited,
    agent_killed,
    agent_ended,
    hostd_restarted,
    user,
    failing,
    streams_cut,
    compacted,
    outage
  };
  static constexpr std::array<const char*, 10> kEventNames = {
      "node labelled",     "configuration edited", "agent killed",      "agent ended",
      "hostd restarted",   "user came or went",    "failing or mended", "streams cut",
      "history compacted", "API server down or up"};
  using Overlaps = test::Overlaps<kEventNames.size()>;

  void run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    draw_ = [&random](int most) { return std::uniform_int_distribution<int>(0, most - 1)(random); };
    const auto most = 1 + static_cast<std::size_t>(draw_(3));
    Fleet fleet(4, most, seed);
    fleet.start();
    fleet.label_all("divided");
    fleet.pass(std::chrono::seconds(draw_(60)));
    auto& chances = fleet.server.chances;
    if (draw_(2) == 0) {
      chances.lost_before = chances.lost_after = chances.server_fault = chances.other_writer = 0.1;
      chances.late = chances.cut = chances.ended = chances.again = chances.compacted = 0.1;
      chances.too_many_requests = chances.unauthorized = 0.05;
    }
    for (int event = 0; event < 16; ++event) {
      happen(fleet, static_cast<Event>(draw_(static_cast<int>(kEventNames.size()))));
      fleet.pass(std::chrono::seconds(draw_(3) == 0 ? draw_(40) : draw_(4)));
      ASSERT_LE(fleet.most_seen, most) << "more nodes than may were changing";
      expect_true_results(fleet);
    }
    settle(fleet, most);
  }

  void happen(Fleet& fleet, Event event) {
    overlaps().count(recent_, event, fleet.clock.now());
    Fleet::Machine& machine = *fleet.machines.at(static_cast<std::size_t>(draw_(4)));
    static constexpr std::array kPolicies = {"given", "kept", "divided", "divided", "typo"};
    switch (event) {
      case node_labelled:
        return fleet.label(machine.name, kPolicies.at(static_cast<std::size_t>(draw_(5))));
      case configuration_edited:
        return fleet.configure(1 + draw_(4));
      case agent_killed:
        machine.agent.reset();
        return fleet.start(machine);
      case agent_ended:
        fleet.end(machine);
        return fleet.start(machine);
      case hostd_restarted:
        machine.hostd.stop();
        fleet.pass(std::chrono::seconds(draw_(4)));
        return machine.hostd.start();
      case user:
        machine.hostd.user = !machine.hostd.user;
        return machine.hostd.desired_changed();
      case failing:
        machine.hostd.fails = !machine.hostd.fails;
        return machine.hostd.desired_changed();
      case streams_cut:
        return fleet.server.cut_streams();
      case compacted:
        return fleet.server.compact();
      case outage:
        down_ = !down_;
        return fleet.server.set_down(down_);
    }
  }

  /// Nobody is said to have failed who has only ended, or was killed.
  static void expect_true_results(const Fleet& fleet) {
    for (const auto& [configuration, result] : fleet.results().failed) {
      const bool of_silence = result.ends_with("gone silent in the middle of it");
      if (of_silence || result.find("says nothing") != std::string::npos) continue;
      const auto node = std::ranges::find(fleet.machines, result.substr(0, 2),
                                          [](const auto& machine) { return machine->name; });
      ASSERT_NE(node, fleet.machines.end()) << result;
      EXPECT_TRUE((*node)->hostd.has_failed) << result;
    }
  }

  /// All goes well again, and each node becomes ready.
  static void settle(Fleet& fleet, std::size_t most) {
    fleet.server.chances = {};
    fleet.server.set_down(false);
    for (const auto& machine : fleet.machines) {
      machine->hostd.user = machine->hostd.fails = false;
      machine->hostd.desired_changed();
    }
    fleet.label_all("divided");
    fleet.configure(9);
    fleet.pass(15min);
    for (const auto& machine : fleet.machines) {
      EXPECT_EQ(fleet.state(machine->name), "ready") << machine->name;
      EXPECT_EQ(fleet.error(machine->name), "") << machine->name;
      EXPECT_EQ(machine->hostd.is, "divided") << machine->name;
    }
    EXPECT_LE(fleet.most_seen, most);
    EXPECT_THAT(fleet.lease_holders(), IsEmpty()) << "a turn was kept";
    EXPECT_EQ(fleet.server.watches(), 4U * 4U) << "at rest nobody watches the Leases";
  }

  static Overlaps& overlaps() {
    static Overlaps all;
    return all;
  }
  static void TearDownTestSuite() { overlaps().show(kEventNames, test::share_of(schedules()) >= 100); }

 private:
  std::function<int(int)> draw_;
  bool down_ = false;
  Overlaps::Recent recent_;
};

TEST_P(FleetSchedules, EndInTheDesiredStateAndNeverTooManyAtOnce) {
  run(static_cast<std::uint64_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, FleetSchedules, testing::Range(0, schedules()));

}  // namespace
}  // namespace ferry::agent
