// SPDX-License-Identifier: Apache-2.0
#include "agent/kata/kata_step.h"

#include <gmock/gmock.h>

#include "agent/rollout/rollout.h"
#include "api/labels.h"
#include "tests/agent/snapshots.h"
#include "tests/support/must.h"

namespace ferry::agent {
namespace {

using test::config;
using test::must;
using test::node_with;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kTwo =
    "version: v2\nruntimeClasses:\n"
    "- {name: kata-a, artifacts: {url: \"registry.example/a:1\"}, aliases: [kata-b]}\n"
    "- {name: kata-c, artifacts: {url: \"registry.example/c:1\"}, nodeSelector: {example.com/gpu: "
    "\"true\"}}\n";

KataSource source(const std::string& text) {
  return {.name = "ConfigMap gpus/kata", .texts = {config("ConfigMap gpus/kata, config.yaml", text)}};
}

TEST(DesiredRuntimes, IsOfTheClassesWhoseSelectorFits) {
  const auto classes = [](const Labels& labels) {
    return must(desired_runtimes(source(kTwo), labels)).value().classes;
  };
  EXPECT_THAT(classes({}), ElementsAre("kata-a"));
  EXPECT_THAT(classes({{"example.com/gpu", "false"}}), ElementsAre("kata-a"));
  EXPECT_THAT(classes({{"example.com/gpu", "true"}}), ElementsAre("kata-a", "kata-c"));
}

TEST(DesiredRuntimes, EverythingGoesOnlyByAFileThatSaysSo) {
  const auto none = must(desired_runtimes(source("version: v2\nruntimeClasses: []\n"), {}));
  ASSERT_TRUE(none);
  EXPECT_THAT(none->classes, IsEmpty());
  struct {
    KataSource source;
    const char* trouble;
  } const kFaults[] = {
      {source(""), "no runtime classes in it"},
      {source("version: v2\n"), "no runtime classes in it"},
      {source("version: v2\nruntimeClasses:\n"), ""},
      {source("version: v2\nruntimeClasses: [{name: a}]\n"), "config.yaml:2"},
      {source("version: v2\nruntimeClass: []\n"), "runtimeClasses"},
      {{.name = "ConfigMap gpus/kata"}, "ConfigMap gpus/kata is not there"},
      {{.name = "x", .texts = {config("a", kTwo), config("b", kTwo)}}, "several keys"},
      {{.name = "x", .trouble = "it is forbidden"}, "it is forbidden"},
  };
  for (const auto& fault : kFaults) {
    const auto desired = desired_runtimes(fault.source, {});
    ASSERT_FALSE(desired) << fault.trouble;
    EXPECT_THAT(desired.error().text(), HasSubstr(fault.trouble));
    EXPECT_NE(desired.error().text(), "");
  }
  EXPECT_FALSE(must(desired_runtimes({.name = "x", .is_known = false}, {})));
}

/// A node on its way, with hostd's answer.
struct Scene {
  policy::NodeObject node = node_with({});
  HostSide host;
  KataSnapshot snapshot{.source = source(kTwo), .pulls = {}};
  bool may_begin = true;

  Scene() {
    host.kata_written = step().file;
    host.kata.generation = 1;
  }
  KataStep step() {
    const KataPlan plan = kata_plan(node, host, snapshot, nullptr);
    begin = plan.change.begin;
    outcome = plan.change.outcome;
    RolloutStep rollout_step;
    rollout_step.may_begin = may_begin;
    return kata_step(node, host, snapshot, plan, rollout_step);
  }
  void write() {
    if (const auto file = step().file) host.kata_written = file;
    host.kata.generation = host.kata_written->generation;
  }
  std::string begin;
  ChangeOutcome outcome = ChangeOutcome::none;
};

TEST(KataStep, WritesTheDesiredClassesOnce) {
  Scene scene;
  ASSERT_TRUE(scene.host.kata_written);
  EXPECT_EQ(scene.host.kata_written->generation, 1U);
  EXPECT_EQ(scene.host.kata_written->config.text, kTwo);
  EXPECT_FALSE(scene.step().file);
  scene.host.kata_written.reset();
  scene.host.kata.generation = 41;
  EXPECT_EQ(scene.step().file->generation, 42U) << "an answer to one that was lost is none to this";
}

TEST(KataStep, PermitsWithItsLeaseAloneAndForOneGeneration) {
  Scene scene;
  scene.host.kata.others = {{"kata-a", kata::HandlerState::pending}, {"kata-b", kata::HandlerState::pending}};
  scene.may_begin = false;
  EXPECT_FALSE(scene.step().file);
  EXPECT_TRUE(is_kata_configuration(scene.begin));
  scene.may_begin = true;
  const auto permitted = scene.step().file;
  ASSERT_TRUE(permitted && permitted->permitted);
  EXPECT_EQ(permitted->generation, 2U);
  scene.host.kata_written = permitted;
  EXPECT_FALSE(scene.step().file) << "hostd has not answered this one yet";
  EXPECT_EQ(scene.outcome, ChangeOutcome::open);
  scene.host.kata = {.ready = {}, .generation = 2, .applying = true};
  EXPECT_FALSE(scene.step().file);
  EXPECT_EQ(scene.outcome, ChangeOutcome::open);
  scene.host.kata = {.ready = {"kata-a", "kata-b"}, .generation = 2};
  const auto over = scene.step().file;
  ASSERT_TRUE(over);
  EXPECT_FALSE(over->permitted);
  EXPECT_EQ(scene.outcome, ChangeOutcome::done);
}

TEST(KataStep, AFailureIsOneAndARefusalIsNone) {
  for (const auto& [state, outcome] : {std::pair{kata::HandlerState::failed, ChangeOutcome::failed},
                                       {kata::HandlerState::blocked, ChangeOutcome::blocked},
                                       {kata::HandlerState::installing, ChangeOutcome::open},
                                       {kata::HandlerState::leaving, ChangeOutcome::blocked}}) {
    Scene scene;
    scene.host.kata_written->permitted = true;
    scene.host.kata.others = {{"kata-a", state, "why not"}};
    const KataStep step = scene.step();
    EXPECT_EQ(scene.outcome, outcome) << text(state);
    EXPECT_EQ(step.file.has_value(), outcome != ChangeOutcome::open) << text(state);
  }
}

TEST(KataStep, GoesOnWithWhatAKilledHostdHasBegun) {
  Scene scene;
  scene.host.kata.applying = true;
  scene.host.kata.others = {{"kata-a", kata::HandlerState::pending}};
  EXPECT_TRUE(scene.step().file->permitted);
  scene.host.kata.others = {{"kata-a", kata::HandlerState::installing}};
  EXPECT_FALSE(scene.step().file) << "it is at work already";
}

TEST(KataStep, SaysThatALabelIsGoneAndTakesThatBackFirst) {
  Scene scene;
  scene.host.kata.others = {{"kata-old", kata::HandlerState::leaving}};
  scene.node.labels = {{"gpu-ferry.io/kata.kata-old", "ready"}};
  EXPECT_FALSE(scene.step().file);
  scene.node.labels.clear();
  scene.write();
  EXPECT_THAT(scene.host.kata_written->unlabelled, ElementsAre("kata-old"));
  EXPECT_EQ(scene.host.kata_written->generation, 1U);
  scene.host.kata.others = {{"kata-old", kata::HandlerState::pending}};
  scene.may_begin = false;
  EXPECT_FALSE(scene.step().file) << "it stays so until it is gone";
  scene.host.kata.others.clear();
  scene.host.kata.ready = {"kata-old"};
  EXPECT_THAT(labelled_handlers(scene.node, scene.host), IsEmpty());
  scene.write();
  EXPECT_THAT(scene.host.kata_written->unlabelled, IsEmpty());
  EXPECT_THAT(labelled_handlers(scene.node, scene.host), ElementsAre("kata-old"));
}

TEST(KataStep, LabelsWhatTheKubeletListsToo) {
  Scene scene;
  scene.host.kata.ready = {"kata-a", "kata-b"};
  EXPECT_EQ(scene.step().trouble, "") << "this kubelet lists nothing";
  scene.node.runtime_handlers = {"runc", "kata-b"};
  EXPECT_THAT(labelled_handlers(scene.node, scene.host), ElementsAre("kata-b"));
  const KataStep step = scene.step();
  EXPECT_EQ(step.trouble, "kata-a: the kubelet does not list it yet (status.runtimeHandlers)");
  ASSERT_THAT(step.events, SizeIs(1)) << "it is as it should be for some seconds";
  EXPECT_EQ(step.events.front().reason, "RuntimeReady");
  scene.node.runtime_handlers.insert("kata-a");
  EXPECT_THAT(labelled_handlers(scene.node, scene.host), ElementsAre("kata-a", "kata-b"));
  EXPECT_EQ(scene.step().trouble, "");
}

TEST(KataStep, IsConfirmedByTheKubeletToo) {
  Scene scene;
  scene.host.kata_written->permitted = true;
  scene.host.kata.ready = {"kata-a", "kata-b"};
  scene.node.runtime_handlers = {"runc", "kata-b"};
  scene.host.kata_unlisted = kListPatience;
  KataStep step = scene.step();
  EXPECT_EQ(scene.outcome, ChangeOutcome::open) << "the turn is kept: it has yet to be proven";
  EXPECT_FALSE(step.file);
  EXPECT_TRUE(step.awaits_kubelet) << "nobody tells that nothing happens";

  scene.host.kata_unlisted += std::chrono::seconds(1);
  const KataPlan plan = kata_plan(scene.node, scene.host, scene.snapshot, nullptr);
  EXPECT_EQ(plan.change.outcome, ChangeOutcome::failed);
  EXPECT_THAT(plan.change.why, HasSubstr("kata-a: "));
  step = scene.step();
  ASSERT_TRUE(step.file);
  EXPECT_FALSE(step.file->permitted);
  ASSERT_THAT(step.events, SizeIs(2));
  EXPECT_EQ(step.events.front().reason, "RuntimeNotListed");
  EXPECT_THAT(step.events.front().message, HasSubstr("kata-a: "));
  EXPECT_THAT(step.events.front().message, HasSubstr("--container-runtime-endpoint"));
  EXPECT_THAT(labelled_handlers(scene.node, scene.host), ElementsAre("kata-b"));

  scene.node.runtime_handlers.insert("kata-a");
  scene.host.kata_unlisted = std::chrono::seconds(0);
  EXPECT_FALSE(scene.step().awaits_kubelet);
  EXPECT_EQ(scene.outcome, ChangeOutcome::done);
}

TEST(KataStep, IsNotDoneWithoutALeaseBeforeTheKubeletListsIt) {
  Scene scene;
  scene.host.kata.ready = {"kata-a"};
  scene.node.runtime_handlers = {"runc"};
  EXPECT_FALSE(scene.step().file);
  EXPECT_EQ(scene.outcome, ChangeOutcome::none);
}

constexpr const char* kModeLabel = "nvidia.com/cc.mode.state";
constexpr const char* kConfidential =
    "version: v2\nruntimeClasses:\n"
    "- {name: kata-a, artifacts: {url: \"registry.example/a:1\"}}\n"
    "- {name: kata-a-snp, artifacts: {url: \"registry.example/c:1\"}}\n";

TEST(KataStep, PassesTheModeOfTheGpusToConfidentialClasses) {
  Scene scene;
  scene.snapshot.source = source(kConfidential);
  scene.write();
  EXPECT_EQ(scene.host.kata_written->generation, 2U);
  EXPECT_FALSE(kata::confidential_mode_of(*scene.host.kata_written).known());
  scene.node.labels[kModeLabel] = "off";
  scene.write();
  EXPECT_EQ(scene.host.kata_written->confidential_mode, kata::ConfidentialMode::State::off);
  EXPECT_EQ(scene.host.kata_written->generation, 3U);
  scene.host.kata_written->permitted = true;
  scene.node.labels[kModeLabel] = "on";
  scene.write();
  EXPECT_EQ(scene.host.kata_written->generation, 4U);
  EXPECT_FALSE(scene.host.kata_written->permitted) << "something else is wanted, which needs its own turn";
}

TEST(KataStep, AModeThatAdmitsTheSameIsNoNewGeneration) {
  Scene scene;
  scene.snapshot.source = source(kConfidential);
  scene.write();
  for (const char* mode : {"on", "ppcie", "", "no mode"}) {
    scene.node.labels[kModeLabel] = mode;
    scene.write();
    EXPECT_EQ(scene.host.kata_written->generation, 2U) << mode;
    EXPECT_EQ(scene.host.kata_written->confidential_mode,
              kata::confidential_state(mode).value_or(kata::ConfidentialMode::State::unknown));
    EXPECT_FALSE(scene.step().file) << mode;
  }
  Scene plain;
  plain.node.labels[kModeLabel] = "off";
  EXPECT_FALSE(plain.step().file) << "no class asks for it";
}

TEST(KataStep, PullsWhatIsMissingAndWithItsLeaseWhatIsInUse) {
  Scene scene;
  scene.host.kata.others = {{"kata-a", kata::HandlerState::missing_artifact},
                            {"kata-b", kata::HandlerState::missing_artifact},
                            {"unknown", kata::HandlerState::missing_artifact}};
  ASSERT_THAT(scene.step().pulls, SizeIs(1));
  EXPECT_EQ(scene.step().pulls.front().kata.name, "kata-a");
  EXPECT_FALSE(scene.step().pulls.front().waits);
  EXPECT_EQ(scene.begin, "") << "no turn is needed for it";
  scene.host.kata.ready = {"kata-a"};
  scene.host.kata.others.erase(scene.host.kata.others.begin() + 1);
  scene.may_begin = false;
  ASSERT_THAT(scene.step().pulls, SizeIs(1));
  EXPECT_TRUE(scene.step().pulls.front().waits);
  EXPECT_NE(scene.begin, "");
  scene.may_begin = true;
  ASSERT_THAT(scene.step().pulls, SizeIs(1));
  EXPECT_FALSE(scene.step().pulls.front().waits);
  scene.write();
  scene.snapshot.pulls["kata-a"] = {.error = "nobody answers", .rests = true};
  EXPECT_FALSE(scene.step().file->permitted) << "the turn is not kept for a registry that is away";
}

TEST(KataStep, RecordsOnceWhatIsWrong) {
  Scene scene;
  scene.host.kata.others = {{"kata-a", kata::HandlerState::blocked, "a pod runs with it"}};
  KataStep step = scene.step();
  EXPECT_EQ(step.trouble, "kata-a: blocked: a pod runs with it");
  ASSERT_THAT(step.events, SizeIs(1));
  EXPECT_EQ(step.events.front().reason, "RuntimeBlocked");
  scene.node.annotations[api::kKataErrorAnnotation] = step.trouble;
  EXPECT_THAT(scene.step().events, IsEmpty());
  scene.host.kata.generation = 0;
  scene.host.kata_silent = kAnswerPatience + std::chrono::seconds(1);
  EXPECT_THAT(scene.step().trouble, HasSubstr("has not taken up /var/lib/ferry/kata-classes.json"));
}

NodeChange change(const std::string& begin) {
  NodeChange out;
  out.node = "n1";
  out.begin = begin;
  return out;
}

TEST(SharedLease, IsOfOneOfTheTwo) {
  const std::string id = kata_configuration_id(config("f", "x"));
  Rollout rollout;
  rollout.known = rollout.searched = rollout.renewed = true;
  SharedLease shared = share_lease(rollout, change("8f3a"), change(id));
  EXPECT_EQ(shared.lease.configuration, "8f3a");
  EXPECT_FALSE(shared.kata.may_begin);
  EXPECT_EQ(share_lease(rollout, change(""), change(id)).lease.configuration, id);

  rollout.leases = {{.index = 0, .holder = "n1", .configuration = id}};
  shared = share_lease(rollout, change("8f3a"), change(id));
  EXPECT_FALSE(shared.gpus.may_begin);
  EXPECT_TRUE(shared.kata.may_begin);
  EXPECT_EQ(shared.lease.kind, RolloutStep::Kind::nothing);
  EXPECT_TRUE(share_lease(rollout, change(""), change(id)).gpus.may_begin);

  // Held until a person does something: nobody waits for that.
  rollout.leases = {{.index = 0, .holder = "", .configuration = ""}};
  rollout.results.failed["8f3a"] = "n7: why";
  EXPECT_EQ(share_lease(rollout, change("8f3a"), change(id)).lease.configuration, id);
}

}  // namespace
}  // namespace ferry::agent
