// SPDX-License-Identifier: Apache-2.0
#include "agent/rollout/rollout.h"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "policy/policy_yaml.h"

namespace ferry::agent {
namespace {

using testing::HasSubstr;
using Kind = RolloutStep::Kind;

RolloutLease lease(std::size_t index, std::string holder, std::string configuration, bool silent = false) {
  return {.index = index,
          .holder = std::move(holder),
          .configuration = std::move(configuration),
          .silent = silent};
}

Rollout rollout_of(std::size_t most, std::vector<RolloutLease> leases = {}) {
  Rollout out;
  out.most = most;
  out.space = "gpus";
  out.known = out.searched = true;
  out.leases = std::move(leases);
  out.renewed = true;
  return out;
}

NodeChange begins(std::string configuration) {
  NodeChange out;
  out.node = "me";
  out.begin = std::move(configuration);
  return out;
}

NodeChange has_written(std::string configuration, ChangeOutcome outcome) {
  NodeChange out;
  out.node = "me";
  out.written = std::move(configuration);
  out.outcome = outcome;
  out.why = "0000:02:00.0: no";
  return out;
}

struct RolloutCase {
  const char* name;
  Rollout rollout;
  NodeChange change;
  Kind kind;
  std::size_t lease;
  bool may_begin;
  bool watches_leases;
};
void PrintTo(const RolloutCase& one, std::ostream* out) {
  *out << one.name;
}

Rollout with(Rollout rollout, const std::function<void(Rollout&)>& more) {
  more(rollout);
  return rollout;
}
Rollout passed(Rollout rollout) {
  rollout.results.passed.insert("new");
  return rollout;
}
Rollout failed(Rollout rollout, const std::string& node = "gpu-7") {
  rollout.results.failed["new"] = node + ": 0000:02:00.0: no";
  return rollout;
}
NodeChange by_label(NodeChange change) {
  change.by_label = true;
  return change;
}
NodeChange and_begins(NodeChange change, std::string configuration) {
  change.begin = std::move(configuration);
  return change;
}

NodeChange as_news(NodeChange change) {
  change.is_news = true;
  return change;
}

class RolloutStepTest : public testing::TestWithParam<RolloutCase> {};

TEST_P(RolloutStepTest, SaysWhatIsToBeDone) {
  const RolloutCase& one = GetParam();
  const RolloutStep step = rollout_step(one.rollout, one.change);
  EXPECT_EQ(step.kind, one.kind);
  if (one.kind != Kind::nothing && one.kind != Kind::report) {
    EXPECT_EQ(step.index, one.lease);
  }
  EXPECT_EQ(step.may_begin, one.may_begin);
  EXPECT_EQ(step.watches_leases, one.watches_leases);
  EXPECT_EQ(step.waits_for.empty(), step.may_begin);
}

const Rollout kFree = rollout_of(3);
const Rollout kUnknown = with(kFree, [](Rollout& rollout) { rollout.known = false; });
const Rollout kUnsearched = with(kUnknown, [](Rollout& rollout) { rollout.searched = false; });
const Rollout kMine = rollout_of(3, {lease(0, "me", "new")});
const Rollout kMyThird = rollout_of(3, {lease(2, "me", "new")});
const Rollout kStale = with(kMine, [](Rollout& rollout) { rollout.renewed = false; });
const Rollout kMineUnknown = with(kMine, [](Rollout& rollout) { rollout.known = false; });
constexpr auto kOpen = ChangeOutcome::open;
constexpr auto kDone = ChangeOutcome::done;
constexpr auto kRefused = ChangeOutcome::blocked;
constexpr auto kFailed = ChangeOutcome::failed;

INSTANTIATE_TEST_SUITE_P(
    Rules, RolloutStepTest,
    testing::Values(
        // A node with nothing to begin reads the Leases once after a start, and not again.
        RolloutCase{"AtRest", kUnknown, has_written("old", kDone), Kind::nothing, 0, true, false},
        RolloutCase{"AtTheStart", kUnsearched, has_written("old", kDone), Kind::nothing, 0, true, true},
        RolloutCase{"AtRestAndKnown", kFree, has_written("old", kDone), Kind::nothing, 0, true, false},
        RolloutCase{"BegunBeforeABoot", kFree, has_written("new", kOpen), Kind::nothing, 0, true, false},
        RolloutCase{"NotKnownYet", kUnknown, begins("new"), Kind::nothing, 0, false, true},
        // A lease is kept until its result is written, however long the Leases cannot be read.
        RolloutCase{"OnItsWayAndNotKnown", kMineUnknown, has_written("new", kOpen), Kind::nothing, 0, true,
                    true},
        RolloutCase{"DoneAndNotKnown", kMineUnknown, has_written("new", kDone), Kind::nothing, 0, true, true},
        // A configuration that is not proven needs lease 0.
        RolloutCase{"Canary", kFree, begins("new"), Kind::take, 0, false, true},
        RolloutCase{"BehindTheCanary", rollout_of(3, {lease(0, "gpu-1", "new")}), begins("new"),
                    Kind::nothing, 0, false, true},
        RolloutCase{"BehindAnothersCanary", rollout_of(3, {lease(0, "gpu-1", "other")}), begins("new"),
                    Kind::nothing, 0, false, true},
        RolloutCase{"CanaryBesideOthers", rollout_of(3, {lease(2, "gpu-1", "old")}), begins("new"),
                    Kind::take, 0, false, true},
        RolloutCase{"AfterTheCanary", passed(rollout_of(3, {lease(0, "gpu-1", "other")})), begins("new"),
                    Kind::take, 2, false, true},
        RolloutCase{
            "LastFreeOne",
            passed(rollout_of(3, {lease(1, "gpu-1", "new"), lease(2, "gpu-2", "new"), lease(0, "", "")})),
            begins("new"), Kind::take, 0, false, true},
        RolloutCase{"NoneFree", passed(rollout_of(1, {lease(0, "gpu-1", "new")})), begins("new"),
                    Kind::nothing, 0, false, true},
        RolloutCase{"LeaseOfAnotherNumber",
                    passed(rollout_of(1, {lease(0, "gpu-1", "new"), lease(4, "", "")})), begins("new"),
                    Kind::nothing, 0, false, true},
        RolloutCase{"LeaseOfASilentNode", passed(rollout_of(1, {lease(0, "gpu-1", "new", true)})),
                    begins("new"), Kind::take, 0, false, true},
        RolloutCase{"SilentCanary", rollout_of(1, {lease(0, "gpu-1", "new", true)}), begins("new"),
                    Kind::close, 0, false, true},
        RolloutCase{"SilentCanaryOfAnother", rollout_of(1, {lease(0, "gpu-1", "other", true)}), begins("new"),
                    Kind::take, 0, false, true},
        // With a lease.
        RolloutCase{"Begins", kMine, begins("new"), Kind::nothing, 0, true, true},
        RolloutCase{"NotSaidLately", kStale, begins("new"), Kind::take, 0, false, true},
        RolloutCase{"OnItsWay", kMine, has_written("new", kOpen), Kind::nothing, 0, true, true},
        RolloutCase{"OnItsWayNotSaidLately", kStale, has_written("new", kOpen), Kind::take, 0, true, true},
        RolloutCase{"UnprovenWithAHigherLease", kMyThird, begins("new"), Kind::give_back, 2, false, true},
        RolloutCase{"ProvenWithAHigherLease", passed(kMyThird), begins("new"), Kind::nothing, 2, true, true},
        RolloutCase{"LeaseBeyondTheLimit", passed(rollout_of(1, {lease(2, "me", "new")})), begins("new"),
                    Kind::give_back, 2, false, true},
        RolloutCase{"AskedForNoMore", kMine, has_written("old", kDone), Kind::give_back, 0, true, true},
        RolloutCase{"AnotherDesiredStateBeforeItBegan", kMine, begins("newer"), Kind::give_back, 0, false,
                    true},
        RolloutCase{"AnotherDesiredStateOnTheWay", kMine, and_begins(has_written("new", kOpen), "newer"),
                    Kind::nothing, 0, false, true},
        RolloutCase{"Refused", kMine, has_written("new", kRefused), Kind::give_back, 0, true, true},
        RolloutCase{"Done", kMine, has_written("new", kDone), Kind::give_back, 0, true, true},
        RolloutCase{"Failed", kMine, has_written("new", kFailed), Kind::give_back, 0, true, true},
        RolloutCase{"DoneWithAHigherLease", passed(kMyThird), has_written("new", kDone), Kind::give_back, 2,
                    true, true},
        RolloutCase{"FailedWithAHigherLease", passed(kMyThird), has_written("new", kFailed), Kind::report, 0,
                    true, true},
        RolloutCase{"FailedAndSaid", failed(passed(kMyThird)), has_written("new", kFailed), Kind::give_back,
                    2, true, true},
        // Failures.
        RolloutCase{"FailedElsewhere", failed(kFree), begins("new"), Kind::nothing, 0, false, true},
        RolloutCase{"FailedElsewhereAfterItsCanary", failed(passed(kFree)), begins("new"), Kind::nothing, 0,
                    false, true},
        RolloutCase{"LabelledThoughItFailed", failed(passed(kFree)), by_label(begins("new")), Kind::take, 2,
                    false, true},
        RolloutCase{"LabelledThoughItWorksNowhere", failed(kFree), by_label(begins("new")), Kind::nothing, 0,
                    false, true},
        RolloutCase{"FailedWhileWeHaveALease", failed(kMine), begins("new"), Kind::give_back, 0, false, true},
        RolloutCase{"StillFailed", failed(kFree, "me"), has_written("new", kFailed), Kind::nothing, 0, true,
                    true},
        RolloutCase{"FailedWithoutALease", passed(kFree), as_news(has_written("new", kFailed)), Kind::report,
                    0, true, true},
        RolloutCase{"FailedWithoutALeaseAndReported", passed(kFree), has_written("new", kFailed),
                    Kind::nothing, 0, true, true},
        RolloutCase{"FailedWithoutALeaseAsAnotherHas", failed(kFree), as_news(has_written("new", kFailed)),
                    Kind::nothing, 0, true, true},
        RolloutCase{"OnTheWayToBeMended", failed(kFree, "me"), has_written("new", kOpen), Kind::nothing, 0,
                    true, true},
        RolloutCase{"Mended", failed(kFree, "me"), has_written("new", kDone), Kind::report, 0, true, true},
        RolloutCase{"AnothersFailure", failed(kFree, "me2"), has_written("new", kDone), Kind::nothing, 0,
                    true, false}),
    [](const auto& one) { return one.param.name; });

// RolloutLeases renews the lease that the step names.
TEST(RolloutStep, NamesItsOwnLeaseAlsoWhileTheOthersAreNotKnown) {
  const auto hidden = with(kMyThird, [](Rollout& rollout) { rollout.known = false; });
  for (const NodeChange& change : {has_written("new", kOpen), begins("new")}) {
    EXPECT_EQ(rollout_step(hidden, change).index, 2U);
    EXPECT_EQ(rollout_step(hidden, change).configuration, "new");
  }
}

TEST(RolloutResult, OfWhatHasEnded) {
  EXPECT_EQ(rollout_step(kMine, has_written("new", kDone)).result, "");
  EXPECT_EQ(rollout_step(kMine, has_written("new", kFailed)).result, "me: 0000:02:00.0: no");
  EXPECT_EQ(rollout_step(kMine, has_written("new", kRefused)).result, std::nullopt) << "it was not tried";
  EXPECT_EQ(rollout_step(kMine, has_written("old", kDone)).result, std::nullopt) << "of another one";
  EXPECT_EQ(rollout_step(passed(kMine), has_written("new", kDone)).result, std::nullopt);
  const auto silent = rollout_step(rollout_of(1, {lease(0, "gpu-1", "new", true)}), begins("new"));
  EXPECT_THAT(silent.result.value_or(""), HasSubstr("gpu-1: the node has gone silent"));
}

TEST(RolloutResult, OfAFailureWithoutALease) {
  EXPECT_EQ(rollout_step(kFree, as_news(has_written("new", kFailed))).result, "me: 0000:02:00.0: no");
  EXPECT_EQ(rollout_step(kFree, as_news(has_written("new", kDone))).result, std::nullopt);
}

TEST(RolloutResult, IsNoneWhereTheConfigurationSaysNothing) {
  NodeChange nothing_here = has_written("new", kDone);
  nothing_here.has_any = false;
  const auto step = rollout_step(kMine, nothing_here);
  EXPECT_EQ(step.kind, Kind::give_back);
  EXPECT_EQ(step.result, std::nullopt);
}

TEST(RolloutMessage, WhatOnlyAPersonEnds) {
  const auto held = rollout_step(failed(kFree), begins("new"));
  EXPECT_THAT(held.held, HasSubstr("failed on gpu-7: 0000:02:00.0: no"));
  EXPECT_THAT(held.held,
              HasSubstr("kubectl annotate lease -n gpus ferry-rollout-0 failed.gpu-ferry.io/new-"));
  const auto hidden = with(kUnknown, [](Rollout& rollout) { rollout.trouble = "forbidden"; });
  EXPECT_THAT(rollout_step(hidden, begins("new")).held, HasSubstr("forbidden"));
  EXPECT_EQ(rollout_step(hidden, has_written("old", kDone)).held, "");
  EXPECT_EQ(rollout_step(kUnknown, begins("new")).held, "");
  EXPECT_EQ(rollout_step(rollout_of(1, {lease(0, "gpu-1", "new")}), begins("new")).held, "");
}

TEST(RolloutMessage, WhoIsWaitedFor) {
  const auto busy = passed(rollout_of(2, {lease(0, "gpu-1", "new"), lease(1, "gpu-2", "new")}));
  EXPECT_EQ(rollout_step(busy, begins("new")).waits_for, "one of gpu-1, gpu-2 to be done");
  EXPECT_EQ(rollout_step(rollout_of(2, {lease(0, "gpu-1", "new")}), begins("new")).waits_for,
            "gpu-1 to be done, which goes ahead of others");
}

TEST(ConfigurationId, IsOfWhatAPolicySays) {
  const auto id_of = [](const char* text, const char* name) {
    const auto file = policy::read_policies({.file = "policies.yaml", .text = text});
    const auto policy = policy::select_policy(file.value_or(policy::PolicyFile{}), name);
    return configuration_id(policy.value_or(policy::Policy{}));
  };
  const char* const text =
      "version: v2\npolicies:\n"
      "  given: [{devices: all, mode: passthrough}]\n"
      "  same: [{devices: all, mode: passthrough}]\n"
      "  kept: [{devices: all, mode: host}]\n";
  EXPECT_EQ(id_of(text, "given").size(), 16U);
  EXPECT_EQ(id_of(text, "given"), id_of(text, "same"));
  EXPECT_NE(id_of(text, "given"), id_of(text, "kept"));
  EXPECT_EQ(id_of(text, "kept"), id_of("version: v2\npolicies: {a: [{devices: all, mode: host}]}\n", "a"));
}

}  // namespace
}  // namespace ferry::agent
