// SPDX-License-Identifier: Apache-2.0
// Kata's runtimes in the agent's loop: an API server in memory, with what stands for hostd and for
// ferry-fetch on each node; hours pass in milliseconds.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "api/labels.h"
#include "tests/agent/fleet.h"
#include "tests/agent/kata_standin.h"
#include "tests/agent/schedules.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using test::FetcherStandin;
using test::Fleet;
using test::KataHostdStandin;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kMap = "/api/v1/namespaces/gpus/configmaps/kata";

std::string class_text(const std::string& name, const std::string& url, const std::string& more = "") {
  return "- name: " + name + "\n  artifacts: {url: \"" + url + "\"}\n" + more;
}

class KataLoop : public testing::Test {
 protected:
  struct Kata {
    Kata(Fleet& fleet, Fleet::Machine& machine)
        : hostd(fleet.clock, machine.host,
                [&machine] {
                  if (machine.agent) machine.agent->host_changed();
                }),
          fetcher(fleet.clock) {
      fetcher.got = [this](const std::string& url) { hostd.artifacts.insert(url); };
    }
    KataHostdStandin hostd;
    FetcherStandin fetcher;
  };

  void make(std::size_t nodes, std::size_t most = 1) {
    fleet = std::make_unique<Fleet>(nodes, most);
    for (const auto& machine : fleet->machines)
      kata.emplace(machine->name, std::make_unique<Kata>(*fleet, *machine));
    for (auto& [name, one] : kata) {
      one->hostd.began = [this] {
        std::size_t at_once = 0;
        for (const auto& other : kata) at_once += other.second->hostd.changing() ? 1 : 0;
        most_at_once = std::max(most_at_once, at_once);
      };
      one->hostd.went = [this, name = name](const std::string& handler) {
        EXPECT_EQ(label(name, handler), "") << "it went before its label";
      };
    }
    fleet->adjust = [this](Fleet::Machine& machine, AgentSettings& settings) {
      settings.kata_classes = "kata";
      settings.kata_space = "gpus";
      settings.fetcher = &kata.at(machine.name)->fetcher;
    };
    fleet->each_second = [this](Fleet::Machine& machine) { kata.at(machine.name)->hostd.look(); };
  }
  void TearDown() override {
    // Before what they were given.
    for (const auto& machine : fleet->machines) machine->agent.reset();
  }
  void configure(const std::string& text) {
    fleet->server.put({{"apiVersion", "v1"},
                       {"kind", "ConfigMap"},
                       {"metadata", {{"name", "kata"}, {"namespace", "gpus"}}},
                       {"data", {{"classes.yaml", text}}}});
  }
  void classes(const std::string& list) { configure("version: v2\nruntimeClasses:\n" + list); }

  std::string label(const std::string& node, const std::string& handler) const {
    return fleet->text_of(node, "labels", (api::kKataPrefix + handler).c_str());
  }
  std::string error(const std::string& node = "n0") const {
    return fleet->text_of(node, "annotations", api::kKataErrorAnnotation);
  }
  std::optional<kata::DesiredClasses> written(const std::string& node = "n0") const {
    for (const auto& machine : fleet->machines)
      if (machine->name == node)
        return kata::read_desired_classes(machine->host).value_or(std::optional<kata::DesiredClasses>());
    return std::nullopt;
  }
  Kata& of(const std::string& node = "n0") { return *kata.at(node); }

  std::unique_ptr<Fleet> fleet;
  std::map<std::string, std::unique_ptr<Kata>> kata;
  std::size_t most_at_once = 0;
};

TEST_F(KataLoop, PullsInstallsWithItsLeaseAndLabels) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1", "  aliases: [kata-b]\n"));
  fleet->start();
  fleet->pass(3s);
  ASSERT_TRUE(written());
  EXPECT_THAT(written()->classes, ElementsAre("kata-a"));
  EXPECT_EQ(written()->source, "ConfigMap gpus/kata");
  EXPECT_TRUE(of().fetcher.under_way);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty()) << "a pull needs no turn";
  EXPECT_FALSE(written()->permitted);
  fleet->pass(12s);
  EXPECT_TRUE(of().hostd.changing());
  EXPECT_EQ(fleet->lease_holders().at(0), "n0");
  EXPECT_TRUE(written()->permitted);
  fleet->pass(30s);
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  EXPECT_EQ(label("n0", "kata-b"), "ready");
  EXPECT_FALSE(written()->permitted);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
  EXPECT_EQ(of().fetcher.asked.size(), 1U);
  EXPECT_EQ(of().fetcher.asked.front().url, "registry.example/a:1");
  EXPECT_FALSE(of().fetcher.asked.front().makes_link) << "hostd makes it";
  EXPECT_EQ(error(), "");
  EXPECT_THAT(fleet->reasons("n0"), Contains("RuntimeReady"));
  EXPECT_THAT(fleet->results().passed, testing::SizeIs(1));
  EXPECT_EQ(fleet->state("n0"), "idle") << "the GPUs' state is about GPUs";
  const auto asked = fleet->server.seen().size();
  fleet->pass(10min);
  EXPECT_LT(fleet->server.seen().size() - asked, 12U);
}

// What was permitted and not used would be done without a turn.
TEST_F(KataLoop, AnAgentThatEndsTakesThePermissionBackBeforeItFreesItsLease) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(15s);
  ASSERT_TRUE(of().hostd.changing());
  fleet->end(*fleet->machines[0]);
  EXPECT_FALSE(of().hostd.changing());
  EXPECT_FALSE(written()->permitted);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
  EXPECT_THAT(fleet->results().passed, testing::SizeIs(1));
}

// Nobody may come after it, and nothing has begun: the others would wait for its silence to be a failure.
TEST_F(KataLoop, AnAgentThatEndsDuringAPullFreesItsLease) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(60s);
  ASSERT_EQ(label("n0", "kata-a"), "ready");
  of().fetcher.takes = 5min;
  classes(class_text("kata-a", "registry.example/a:2"));
  fleet->pass(10s);
  ASSERT_TRUE(of().fetcher.under_way);
  ASSERT_TRUE(written()->permitted);
  Fleet::Machine& machine = *fleet->machines[0];
  bool left = false;
  machine.agent->leave([&left] { left = true; });
  EXPECT_FALSE(of().fetcher.under_way) << "what is in use would be another out of turn";
  fleet->pass(2s);
  EXPECT_TRUE(left);
  EXPECT_FALSE(written()->permitted);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
  machine.agent.reset();
  fleet->pass(20min);
  EXPECT_THAT(fleet->results().failed, IsEmpty());
  fleet->start(machine);
  fleet->pass(10min);
  EXPECT_EQ(of().hostd.installed.at("kata-a"), "registry.example/a:2");
}

// hostd may begin at any moment: what comes of it is the cluster's to know.
TEST_F(KataLoop, AnAgentThatEndsWaitsForTheAnswerToAPermission) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  const auto permitted = [this] { return written() && written()->permitted; };
  int unanswered = 0;
  fleet->each_second = [&](Fleet::Machine&) {
    constexpr int kSlow = 10;
    if (!permitted() || ++unanswered > kSlow) of().hostd.look();
  };
  fleet->start();
  for (int i = 0; i < 30 && !permitted(); ++i) fleet->pass(1s);
  ASSERT_TRUE(permitted());
  ASSERT_FALSE(of().hostd.changing());
  EXPECT_GT(fleet->end(*fleet->machines[0]), 10s);
  EXPECT_FALSE(permitted());
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
  EXPECT_THAT(fleet->results().passed, testing::SizeIs(1));
}

TEST_F(KataLoop, WhatLeavesLosesItsLabelFirst) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1") + class_text("kata-b", "registry.example/b:1"));
  fleet->start();
  fleet->pass(60s);
  ASSERT_EQ(label("n0", "kata-b"), "ready");
  of().hostd.used = {"kata-b"};
  fleet->server.hold_back("nodes");
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->pass(60s);
  EXPECT_EQ(label("n0", "kata-b"), "");
  EXPECT_THAT(written()->unlabelled, ElementsAre("kata-b")) << "by the answer, not by the watch";
  EXPECT_TRUE(of().hostd.installed.contains("kata-b"));
  EXPECT_THAT(error(), HasSubstr("kata-b: blocked: a pod runs with it"));
  EXPECT_THAT(fleet->reasons("n0"), Contains("RuntimeBlocked"));
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
  fleet->server.hold_back("");
  of().hostd.used.clear();
  fleet->pass(60s);
  EXPECT_FALSE(of().hostd.installed.contains("kata-b"));
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  EXPECT_EQ(error(), "");

  // Back again: hostd gets the classes before the label is set.
  classes(class_text("kata-a", "registry.example/a:1") + class_text("kata-b", "registry.example/b:1"));
  fleet->pass(60s);
  EXPECT_EQ(label("n0", "kata-b"), "ready");
  EXPECT_THAT(written()->unlabelled, IsEmpty());
}

TEST_F(KataLoop, NothingGoesWhileTheServerHasNotSaidThatTheLabelIsGone) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(60s);
  configure("version: v2\nruntimeClasses: []\n");
  fleet->server.script = [](const kube::ApiRequest& request) -> std::optional<test::ApiFault> {
    if (request.method == "PATCH" && request.path.find("/nodes/") != std::string::npos)
      return test::ApiFault::status_of(503, "ServiceUnavailable");
    return std::nullopt;
  };
  fleet->pass(5min);
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  EXPECT_TRUE(of().hostd.installed.contains("kata-a"));
  EXPECT_THAT(written()->unlabelled, IsEmpty());
  fleet->server.script = nullptr;
  fleet->pass(5min);
  EXPECT_EQ(label("n0", "kata-a"), "");
  EXPECT_THAT(of().hostd.installed, IsEmpty());
}

TEST_F(KataLoop, APullThatFailsIsReportedAndTriedAgain) {
  make(1);
  of().fetcher.failures = 3;
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(20s);
  EXPECT_THAT(error(), AllOf(HasSubstr("kata-a"), HasSubstr("registry.example/a:1: nobody answers")));
  EXPECT_THAT(fleet->reasons("n0"), Contains("ArtifactPullFailed"));
  EXPECT_EQ(fleet->machines.front()->agent->pulls()->failed, 1U);
  fleet->pass(10min);
  EXPECT_EQ(of().fetcher.asked.size(), 4U);
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  EXPECT_EQ(error(), "");
  EXPECT_EQ(fleet->machines.front()->agent->pulls()->done, 1U);
}

TEST_F(KataLoop, AFailedPullOfAClassInUseIsTriedAgainAfterItsPauseAndKeepsItsError) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(60s);
  ASSERT_EQ(label("n0", "kata-a"), "ready");
  ASSERT_EQ(of().fetcher.asked.size(), 1U);
  of().fetcher.failures = 100;
  classes(class_text("kata-a", "registry.example/a:2"));
  fleet->pass(20s);
  for (int i = 0; i < 580; ++i) {
    ASSERT_THAT(error(), HasSubstr("registry.example/a:2: nobody answers"));
    fleet->pass(1s);
  }
  EXPECT_GE(of().fetcher.asked.size(), 4U);
  EXPECT_LE(of().fetcher.asked.size(), 12U);
  EXPECT_LT(written()->generation, 20U) << "each try needs a permission of its own";
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  of().fetcher.failures = 0;
  fleet->pass(20min);
  EXPECT_EQ(of().hostd.installed.at("kata-a"), "registry.example/a:2");
  EXPECT_EQ(error(), "");
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

TEST_F(KataLoop, AnotherFileIsPulledAtOnceAndWhatIsNoLongerAskedForIsStopped) {
  make(1);
  of().fetcher.failures = 1;
  classes(class_text("kata-a", "registry.example/typo:1"));
  fleet->start();
  fleet->pass(8s);
  EXPECT_THAT(error(), HasSubstr("typo"));
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->pass(3s);
  EXPECT_EQ(of().fetcher.asked.back().url, "registry.example/a:1");
  ASSERT_TRUE(of().fetcher.under_way);
  configure("version: v2\nruntimeClasses: []\n");
  fleet->pass(3s);
  EXPECT_FALSE(of().fetcher.under_way);
  EXPECT_EQ(of().fetcher.stopped, 1U);
}

TEST_F(KataLoop, AKilledAgentGoesOn) {
  make(1);
  of().hostd.takes = 60s;
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  for (int i = 0; i < 24; ++i) {
    fleet->pass(5s);
    fleet->machines.front()->agent.reset();
    EXPECT_FALSE(of().fetcher.under_way);
    fleet->pass(2s);
    fleet->start(*fleet->machines.front());
    if (of().fetcher.asked.size() > 1) of().fetcher.takes = 2s;
  }
  fleet->pass(3min);
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  EXPECT_FALSE(written()->permitted);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

TEST_F(KataLoop, OneNodeAtATimeAndNoneAfterAFailure) {
  make(4);
  of("n0").hostd.fails = of("n1").hostd.fails = of("n2").hostd.fails = of("n3").hostd.fails = true;
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(10min);
  std::size_t tried = 0;
  for (const auto& [name, one] : kata) {
    tried += one->hostd.changes;
    EXPECT_THAT(error(name), AllOf(HasSubstr("held back"), HasSubstr("it did not start"))) << name;
    EXPECT_THAT(fleet->reasons(name), Contains("RolloutHeld"));
    EXPECT_EQ(label(name, "kata-a"), "");
  }
  EXPECT_EQ(tried, 1U);
  EXPECT_EQ(most_at_once, 1U);
  ASSERT_THAT(fleet->results().failed, testing::SizeIs(1));
  // It is mended, and a person says so.
  for (const auto& [name, one] : kata) one->hostd.fails = false;
  const std::string mark = std::string(kFailedPrefix) + fleet->results().failed.begin()->first;
  fleet->server.edit(fleet->lease_path(0), {{"metadata", {{"annotations", {{mark, nullptr}}}}}});
  fleet->pass(10min);
  for (const auto& [name, one] : kata) {
    EXPECT_EQ(label(name, "kata-a"), "ready") << name;
    EXPECT_EQ(error(name), "") << name;
  }
  EXPECT_EQ(most_at_once, 1U);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

TEST_F(KataLoop, AKubeletThatDoesNotListTheHandlerIsAFailureAndNoOtherNodeBegins) {
  make(2);
  const auto lists = [&](const std::string& node, const char* handler) {
    fleet->server.edit("/api/v1/nodes/" + node,
                       {{"status", {{"runtimeHandlers", {{{"name", "runc"}}, {{"name", handler}}}}}}});
  };
  lists("n0", "other");
  lists("n1", "other");
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(90s);
  const std::string first = fleet->lease_holders().at(0);
  EXPECT_THAT(error(first), HasSubstr("kata-a: the kubelet does not list it yet"));
  fleet->pass(5min);
  EXPECT_THAT(error(first), HasSubstr("the kubelet does not list it (status.runtimeHandlers)"));
  EXPECT_THAT(fleet->reasons(first), Contains("RuntimeNotListed"));
  EXPECT_EQ(label(first, "kata-a"), "");
  EXPECT_FALSE(written(first)->permitted);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
  EXPECT_THAT(fleet->results().passed, IsEmpty());
  ASSERT_THAT(fleet->results().failed, testing::SizeIs(1));
  const std::string second = first == "n0" ? "n1" : "n0";
  EXPECT_EQ(of(second).hostd.changes, 0U);

  // Its kubelet is given the right socket: the node that failed is well after all, and the other follows.
  lists(first, "kata-a");
  fleet->pass(30s);
  EXPECT_EQ(label(first, "kata-a"), "ready");
  EXPECT_EQ(error(first), "");
  lists(second, "kata-a");
  fleet->pass(5min);
  EXPECT_EQ(label(second, "kata-a"), "ready");
  EXPECT_THAT(fleet->results().failed, IsEmpty());
}

TEST_F(KataLoop, AnotherVersionOfWhatIsInUseIsPulledWithALease) {
  make(2);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(5min);
  ASSERT_EQ(label("n1", "kata-a"), "ready");
  of("n0").fetcher.takes = of("n1").fetcher.takes = 60s;
  classes(class_text("kata-a", "registry.example/a:2"));
  for (int i = 0; i < 200; ++i) {
    fleet->pass(1s);
    EXPECT_FALSE(of("n0").fetcher.under_way && of("n1").fetcher.under_way);
    EXPECT_EQ(label("n0", "kata-a"), "ready");
  }
  fleet->pass(5min);
  EXPECT_EQ(of("n0").hostd.installed.at("kata-a"), "registry.example/a:2");
  EXPECT_EQ(of("n1").hostd.installed.at("kata-a"), "registry.example/a:2");
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

// Its pause is over long before its turn: a timer at that time would run without end.
TEST_F(KataLoop, AFailedPullOfAClassInUseWaitsForTheLeaseOfAnotherNode) {
  make(2);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(5min);
  ASSERT_EQ(label("n0", "kata-a") + label("n1", "kata-a"), "readyready");
  classes(class_text("kata-a", "registry.example/a:2"));
  const auto pulls = [this](const char* node) { return of(node).fetcher.under_way; };
  for (int i = 0; i < 60 && !pulls("n0") && !pulls("n1"); ++i) fleet->pass(1s);
  const bool is_n0 = pulls("n0");
  ASSERT_TRUE(is_n0 || pulls("n1"));
  Kata& first = of(is_n0 ? "n0" : "n1");
  Kata& second = of(is_n0 ? "n1" : "n0");
  first.fetcher.failures = 100;
  second.fetcher.takes = 10min;
  for (int i = 0; i < 120 && !second.fetcher.under_way; ++i) fleet->pass(1s);
  ASSERT_TRUE(second.fetcher.under_way);
  first.fetcher.failures = 0;
  const auto asked = first.fetcher.asked.size();
  fleet->pass(9min);
  EXPECT_TRUE(second.fetcher.under_way);
  EXPECT_EQ(first.fetcher.asked.size(), asked);
  EXPECT_THAT(error(is_n0 ? "n0" : "n1"), HasSubstr("nobody answers"));
  fleet->pass(20min);
  EXPECT_EQ(first.hostd.installed.at("kata-a"), "registry.example/a:2");
  EXPECT_EQ(second.hostd.installed.at("kata-a"), "registry.example/a:2");
}

TEST_F(KataLoop, WhatCannotBeReadOrIsGoneChangesNothing) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(60s);
  const auto before = written();
  configure("version: v2\nruntimeClases: []\n");
  fleet->pass(10s);
  EXPECT_THAT(error(), AllOf(HasSubstr("ConfigMap gpus/kata, classes.yaml:2"), HasSubstr("runtimeClasses")));
  EXPECT_THAT(fleet->reasons("n0"), Contains("InvalidRuntimeClasses"));
  configure("");
  fleet->pass(10s);
  EXPECT_THAT(error(), HasSubstr("no runtime classes in it"));
  fleet->server.erase(kMap);
  fleet->pass(10s);
  EXPECT_THAT(error(), HasSubstr("ConfigMap gpus/kata is not there"));
  EXPECT_EQ(kata::desired_classes_text(*written()), kata::desired_classes_text(*before));
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  configure("version: v2\nruntimeClasses: []\n");
  fleet->pass(60s);
  EXPECT_EQ(error(), "");
  EXPECT_THAT(of().hostd.installed, IsEmpty());
}

TEST_F(KataLoop, ClassesAreForTheNodesThatTheirSelectorNames) {
  make(2);
  fleet->server.edit("/api/v1/nodes/n1", {{"metadata", {{"labels", {{"example.com/gpu", "true"}}}}}});
  classes(class_text("kata-a", "registry.example/a:1") +
          class_text("kata-b", "registry.example/b:1", "  nodeSelector: {example.com/gpu: \"true\"}\n"));
  fleet->start();
  fleet->pass(5min);
  EXPECT_EQ(label("n0", "kata-a"), "ready");
  EXPECT_EQ(label("n0", "kata-b"), "");
  EXPECT_EQ(label("n1", "kata-b"), "ready");
  EXPECT_EQ(error("n0"), "");
  fleet->server.edit("/api/v1/nodes/n1", {{"metadata", {{"labels", {{"example.com/gpu", nullptr}}}}}});
  fleet->pass(2min);
  EXPECT_EQ(label("n1", "kata-b"), "");
  EXPECT_FALSE(of("n1").hostd.installed.contains("kata-b"));
}

TEST_F(KataLoop, GpusAndRuntimesShareTheLease) {
  make(2);
  for (const auto& machine : fleet->machines) machine->hostd.takes = 40s;
  of("n0").hostd.takes = of("n1").hostd.takes = 40s;
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->label_all("given");
  for (int i = 0; i < 600; ++i) {
    fleet->pass(1s);
    std::size_t at_once = fleet->under_way();
    for (const auto& [name, one] : kata) at_once += one->hostd.changing() ? 1 : 0;
    ASSERT_LE(at_once, 1U);
  }
  EXPECT_EQ(fleet->in_state("ready"), 2U);
  EXPECT_EQ(label("n0", "kata-a") + label("n1", "kata-a"), "readyready");
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

TEST_F(KataLoop, SaysThatHostdIsSilent) {
  make(1);
  of().hostd.runs = false;
  classes(class_text("kata-a", "registry.example/a:1"));
  fleet->start();
  fleet->pass(2min);
  EXPECT_THAT(error(), HasSubstr("has not taken up /var/lib/ferry/kata-classes.json"));
  of().hostd.runs = true;
  fleet->pass(60s);
  EXPECT_EQ(error(), "");
  EXPECT_EQ(label("n0", "kata-a"), "ready");
}

TEST_F(KataLoop, ALeaseIsNotKeptForAHostdThatDies) {
  make(1);
  classes(class_text("kata-a", "registry.example/a:1"));
  of().hostd.artifacts = {"registry.example/a:1"};
  of().hostd.takes = 1s;
  fleet->start();
  for (int i = 0; i < 30 && !(written() && written()->permitted); ++i) fleet->pass(1s);
  of().hostd.runs = false;
  fleet->pass(20min);
  EXPECT_FALSE(written()->permitted);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

int schedules() {
  return test::schedules() / 50;
}

/// Whatever happens in whatever order: no handler goes before its label, no more nodes change than may, and
/// in the end each has what is asked for.
class KataSchedules : public KataLoop, public testing::WithParamInterface<int> {
 protected:
  static constexpr int kEvents = 9;

  void happen(Fleet::Machine& machine) {
    Kata& one = of(machine.name);
    switch (draw(kEvents)) {
      case 0:
        edition_ = 1 + draw(3);
        return configure_some();
      case 1:
        return fleet->server.edit(
            "/api/v1/nodes/" + machine.name,
            {{"metadata", {{"labels", {{"example.com/gpu", draw(2) == 0 ? "true" : "false"}}}}}});
      case 2:
        machine.agent.reset();
        fleet->pass(std::chrono::seconds(draw(5)));
        return fleet->start(machine);
      case 3:
        one.hostd.runs = !one.hostd.runs;
        return;
      case 4:
        one.hostd.used = draw(2) == 0 ? std::set<std::string>{"kata-b"} : std::set<std::string>();
        return;
      case 5:
        one.fetcher.failures = static_cast<unsigned>(draw(3));
        return;
      case 6:
        return fleet->label(machine.name, draw(2) == 0 ? "given" : "kept");
      case 7:
        return fleet->server.cut_streams();
      default:
        return fleet->server.set_down(down_ = !down_);
    }
  }
  void configure_some() {
    classes(class_text("kata-a", "registry.example/a:" + std::to_string(edition_)) +
            class_text("kata-b", "registry.example/b:1", "  nodeSelector: {example.com/gpu: \"true\"}\n"));
  }
  int draw(int most) { return std::uniform_int_distribution<int>(0, most - 1)(random_); }

  std::mt19937_64 random_{static_cast<std::uint64_t>(GetParam())};
  int edition_ = 1;
  bool down_ = false;
};

TEST_P(KataSchedules, EndAsAskedForAndNothingGoesUnasked) {
  const auto most = static_cast<std::size_t>(1 + draw(2));
  make(3, most);
  configure_some();
  fleet->start();
  if (draw(2) == 0) {
    auto& chances = fleet->server.chances;
    chances.lost_before = chances.lost_after = chances.server_fault = chances.other_writer = 0.1;
    chances.late = chances.cut = chances.ended = chances.again = chances.compacted = 0.1;
  }
  for (int event = 0; event < 20; ++event) {
    happen(*fleet->machines.at(static_cast<std::size_t>(draw(3))));
    for (int second = draw(3) == 0 ? draw(40) : draw(4); second > 0; --second) {
      fleet->pass(1s);
      std::size_t at_once = fleet->under_way();
      for (const auto& [name, one] : kata) at_once += one->hostd.changing() ? 1 : 0;
      ASSERT_LE(at_once, most);
    }
  }
  fleet->server.chances = {};
  fleet->server.set_down(false);
  for (const auto& [name, one] : kata) {
    one->hostd.runs = true;
    one->hostd.used.clear();
    one->fetcher.failures = 0;
  }
  fleet->label_all("given");
  fleet->pass(40min);
  for (const auto& machine : fleet->machines) {
    const std::string& name = machine->name;
    const bool both = fleet->text_of(name, "labels", "example.com/gpu") == "true";
    EXPECT_EQ(label(name, "kata-a"), "ready") << name;
    EXPECT_EQ(label(name, "kata-b"), both ? "ready" : "") << name;
    EXPECT_EQ(of(name).hostd.installed.contains("kata-b"), both) << name;
    EXPECT_EQ(of(name).hostd.installed["kata-a"], "registry.example/a:" + std::to_string(edition_)) << name;
    EXPECT_EQ(error(name), "") << name;
    EXPECT_FALSE(written(name)->permitted) << name;
  }
  EXPECT_EQ(fleet->in_state("ready"), 3U);
  EXPECT_THAT(fleet->lease_holders(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, KataSchedules, testing::Range(0, schedules()));

}  // namespace
}  // namespace ferry::agent
