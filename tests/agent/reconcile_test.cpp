// SPDX-License-Identifier: Apache-2.0
#include "agent/reconcile.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/agent/snapshots.h"

namespace ferry::agent {
namespace {

using std::chrono::seconds;
using test::answer;
using test::gpu;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr const char* kValidator = "nvidia.com/gpu.deploy.sandbox-validator";
constexpr const char* kPlugin = "nvidia.com/gpu.deploy.sandbox-device-plugin";
constexpr const char* kDcgm = "nvidia.com/gpu.deploy.dcgm";
constexpr const char* kDriver = "nvidia.com/gpu.deploy.driver";

NodeSnapshot snapshot_of(Labels labels) {
  NodeSnapshot snapshot;
  snapshot.node = test::node_with(std::move(labels));
  snapshot.configs = test::usual_configs();
  snapshot.others = {.pods = std::vector<PodOnNode>(), .daemon_sets = std::set<std::string>()};
  return snapshot;
}
DesiredState desired_state_for(const NodeSnapshot& snapshot) {
  return resolve_desired_state(snapshot.node, snapshot.configs, snapshot.defaults);
}

// The whole of a change beside the operator, look by look.
TEST(Reconcile, PausesAsksAndResumesInThatOrder) {
  NodeSnapshot snapshot =
      snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}, {kPlugin, "false"}});
  const DesiredState desired_state = desired_state_for(snapshot);
  ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(kValidator, "paused-for-gpu-ferry"),
                          Pair(api::kVgpuStateLabel, "pending")));
  EXPECT_EQ(step.desired_file.has_value(), false) << "before the labels are changed";
  EXPECT_EQ(step.waits_for, "the operands' labels to be paused");

  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  snapshot.others.pods = {
      PodOnNode{.name = "nvidia-sandbox-validator-abc", .daemon_set = "nvidia-sandbox-validator"}};
  step = reconcile(snapshot);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_EQ(step.waits_for, "pod nvidia-sandbox-validator-abc to end");

  snapshot.others.pods = std::vector<PodOnNode>();
  step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.value_or(api::DesiredFile{}), test::written(desired_state, 1));
  EXPECT_EQ(step.waits_for, "");

  snapshot.host = answer(desired_state, api::NodePhase::applying);
  step = reconcile(snapshot);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "applying")));
  EXPECT_EQ(step.desired_file.has_value(), false) << "it is written";
  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);

  snapshot.host = answer(desired_state, api::NodePhase::ready, {gpu(policy::Mode::vgpu, policy::Mode::vgpu)});
  step = reconcile(snapshot);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "ready"), Pair(kValidator, "true"),
                                       Pair(api::kVgpuStateLabel, "success")));
  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  step = reconcile(snapshot);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.annotations, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
}

// "success" of what was asked for before is not that of this, for however short a time this takes.
TEST(Reconcile, SaysThatAVgpuConfigurationIsPendingBeforeAnybodyTakesItUp) {
  NodeSnapshot snapshot =
      snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {api::kVgpuStateLabel, "success"}});
  snapshot.host = answer(desired_state_for(snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}})),
                         api::NodePhase::ready);
  ReconcileResult step = reconcile(snapshot);
  EXPECT_TRUE(step.desired_file.has_value()) << "nobody is to be paused";
  EXPECT_EQ(step.labels.at(api::kVgpuStateLabel), "pending");
  snapshot.rollout = Rollout();
  step = reconcile(snapshot);
  EXPECT_FALSE(step.desired_file.has_value()) << "it waits for its turn";
  EXPECT_EQ(step.labels.at(api::kVgpuStateLabel), "pending");
}

// The label is gone, or another says more, before anybody has taken that configuration up.
TEST(Reconcile, SaysNoMoreThatAVgpuConfigurationIsPendingThatNobodyAsksFor) {
  for (const Labels& labels : {Labels{}, Labels{{api::kPolicyLabel, "typo"}}}) {
    Labels all = labels;
    all[api::kVgpuStateLabel] = "pending";
    NodeSnapshot snapshot = snapshot_of(all);
    EXPECT_EQ(reconcile(snapshot).labels.at(api::kVgpuStateLabel), std::nullopt);
    snapshot.host = answer(desired_state_for(snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}})),
                           api::NodePhase::applying);
    EXPECT_FALSE(reconcile(snapshot).labels.contains(api::kVgpuStateLabel)) << "it is at work";
    snapshot.host = {};
    snapshot.host.written =
        test::written(desired_state_for(snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}})));
    EXPECT_FALSE(reconcile(snapshot).labels.contains(api::kVgpuStateLabel)) << "it may be at any moment";
    snapshot.host = {};
    snapshot.node.labels[api::kVgpuStateLabel] = "failed";
    EXPECT_FALSE(reconcile(snapshot).labels.contains(api::kVgpuStateLabel))
        << "what became of the last one stands";
  }
}

// NVIDIA's manager goes by a default of its own.
TEST(Reconcile, LeavesWhatNvidiasVgpuDeviceManagerSaysIsPending) {
  NodeSnapshot snapshot =
      snapshot_of({{"nvidia.com/gpu.deploy.vgpu-device-manager", "true"}, {api::kVgpuStateLabel, "pending"}});
  snapshot.others.daemon_sets = {"nvidia-vgpu-device-manager"};
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::nothing);
  EXPECT_FALSE(step.labels.contains(api::kVgpuStateLabel));
}

// A GPU that is taken from driver nvidia is open in all of these; who brings the driver has none open.
TEST(Reconcile, PausesWhatHasTheDriversGpusOpen) {
  NodeSnapshot snapshot =
      snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}, {kDcgm, "true"}, {kDriver, "true"}});
  snapshot.host.status = api::HostStatus();
  snapshot.host.status->accelerators = {gpu(policy::Mode::host, std::nullopt)};
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(kDcgm, "paused-for-gpu-ferry")));
  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  snapshot.others.pods = {PodOnNode{.name = "nvidia-dcgm-abc", .daemon_set = "nvidia-dcgm"}};
  EXPECT_EQ(reconcile(snapshot).waits_for, "pod nvidia-dcgm-abc to end");
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready,
                         {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  EXPECT_EQ(reconcile(snapshot).labels.at(kDcgm), "true");
}

// They come back when a change is refused for somebody else's sake, and have the GPUs open when that one
// goes.
TEST(Reconcile, PausesThoseAgainThatAloneAreInTheWay) {
  NodeSnapshot snapshot = snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}, {kDcgm, "true"}});
  snapshot.others.pods = {PodOnNode{.name = "d", .daemon_set = "nvidia-dcgm", .uid = "u-dcgm"},
                          PodOnNode{.name = "job", .daemon_set = "", .uid = "u-job"}};
  const auto held_by = [](std::vector<std::string> pods) {
    api::AcceleratorStatus out = gpu(policy::Mode::host, policy::Mode::passthrough, api::GpuState::blocked);
    out.only_in_use = true;
    for (std::string& uid : pods)
      out.users.push_back({.kind = "process", .name = "p", .pod_uid = std::move(uid)});
    return out;
  };
  const auto pauses = [&] { return reconcile(snapshot).labels.contains(kDcgm); };
  snapshot.host =
      answer(desired_state_for(snapshot), api::NodePhase::blocked, {held_by({"u-dcgm", "u-job"})});
  EXPECT_FALSE(pauses()) << "the job is, too";
  ASSERT_TRUE(snapshot.host.status);
  snapshot.host.status->accelerators = {held_by({"u-dcgm", ""})};
  EXPECT_FALSE(pauses()) << "a process of the host's is, too";
  snapshot.host.status->accelerators = {held_by({"u-job"}), held_by({"u-dcgm"})};
  EXPECT_TRUE(pauses()) << "of one GPU";
  snapshot.node.labels[kDcgm] = "paused-for-gpu-ferry";
  EXPECT_FALSE(pauses()) << "it is so until hostd has gone on";
  snapshot.host.silent = kPausePatience + seconds(1);
  EXPECT_EQ(reconcile(snapshot).labels.at(kDcgm), "true") << "it does not go";
  snapshot.host.silent = seconds(0);
  snapshot.host.hostd_speaks = false;
  EXPECT_EQ(reconcile(snapshot).labels.at(kDcgm), "true") << "nobody would go on";
}

TEST(Reconcile, WaitsForAPodOnlySoLong) {
  NodeSnapshot snapshot =
      snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  snapshot.others.pods = {PodOnNode{.name = "stuck", .daemon_set = "nvidia-sandbox-validator"}};
  snapshot.paused = kPausePatience;
  EXPECT_EQ(reconcile(snapshot).desired_file.has_value(), false);
  snapshot.paused += seconds(1);
  EXPECT_EQ(reconcile(snapshot).desired_file.has_value(), true);
}

// Who may not see the pods cannot tell when they have gone.
TEST(Reconcile, WaitsAsLongForPodsThatItCannotSee) {
  NodeSnapshot snapshot =
      snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  snapshot.others.pods = std::nullopt;
  snapshot.paused = kPausePatience;
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_TRUE(step.awaits_operands);
  EXPECT_EQ(step.waits_for, "the paused operands' pods, which cannot be seen, to end");
  snapshot.paused += seconds(1);
  EXPECT_EQ(reconcile(snapshot).desired_file.has_value(), true);
  snapshot.paused = seconds(0);
  snapshot.node.labels.erase(kValidator);
  EXPECT_EQ(reconcile(snapshot).desired_file.has_value(), true) << "nobody was there to be paused";
}

// Somebody who sets the label back each time does not keep the node from what its other labels ask for.
TEST(Reconcile, WaitsForALabelOnlySoLong) {
  NodeSnapshot snapshot = snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  snapshot.paused = kPausePatience;
  EXPECT_EQ(reconcile(snapshot).desired_file.has_value(), false);
  EXPECT_TRUE(reconcile(snapshot).awaits_operands);
  snapshot.paused += seconds(1);
  EXPECT_EQ(reconcile(snapshot).desired_file.has_value(), true);
  EXPECT_FALSE(reconcile(snapshot).awaits_operands);
}

TEST(Reconcile, PausesNothingForATypo) {
  NodeSnapshot snapshot = snapshot_of({{policy::kVgpuConfigLabel, "typo"}, {kValidator, "true"}});
  const NodeSnapshot before = snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}});
  snapshot.host = answer(desired_state_for(before), api::NodePhase::ready);
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "failed"), Pair(api::kVgpuStateLabel, "failed")));
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_FALSE(step.remove_desired_file) << "the host keeps what it has, also after a reboot";
}

struct NoChange {
  const char* name;
  Labels labels;
  HostSide host;
  const char* state;
};

void PrintTo(const NoChange& row, std::ostream* out) {
  *out << row.name;
}

HostSide as_it_is(std::vector<api::AcceleratorStatus> gpus) {
  HostSide host;
  host.status = api::HostStatus{};
  if (host.status) host.status->accelerators = std::move(gpus);
  return host;
}
HostSide of_policy(const char* name) {
  return answer(desired_state_for(snapshot_of({{api::kPolicyLabel, name}})), api::NodePhase::ready);
}

class TakesOver : public testing::TestWithParam<NoChange> {};

// The desired state is written down, and nobody is paused for what changes no GPU.
TEST_P(TakesOver, WithoutAPause) {
  Labels labels = GetParam().labels;
  labels[kValidator] = "true";
  NodeSnapshot snapshot = snapshot_of(labels);
  snapshot.host = GetParam().host;
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.has_value(), true);
  EXPECT_EQ(step.labels.at(api::kStateLabel), GetParam().state);
  EXPECT_THAT(step.labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  snapshot.host.written = step.desired_file;
  EXPECT_THAT(reconcile(snapshot).labels, testing::Not(testing::Contains(testing::Key(kValidator))))
      << "nor until hostd has answered";
}

INSTANTIATE_TEST_SUITE_P(Changes, TakesOver,
                         testing::Values(NoChange{"OfGpusThatAreGivenAwayAlready",
                                                  {{api::kWorkloadLabel, "vm-passthrough"}},
                                                  as_it_is({gpu(policy::Mode::passthrough, std::nullopt)}),
                                                  "pending"},
                                         NoChange{"OfGpusThatAreTheHostsAlready",
                                                  {{api::kWorkloadLabel, "container"}},
                                                  as_it_is({gpu(policy::Mode::host, std::nullopt)}),
                                                  "pending"},
                                         NoChange{"OfAnotherName",
                                                  {{policy::kVgpuConfigLabel, "render-mix"}},
                                                  of_policy("quarters"),
                                                  "ready"}),
                         [](const auto& row) { return row.param.name; });

TEST(Reconcile, PausesForWhatMayChangeAGpu) {
  for (const auto& [labels, host] :
       {std::pair<Labels, HostSide>{
            {{api::kWorkloadLabel, "vm-passthrough"}},
            as_it_is({gpu(policy::Mode::passthrough, {}), gpu(policy::Mode::host, {})})},
        {{{api::kWorkloadLabel, "container"}}, as_it_is({gpu(policy::Mode::vgpu, {})})},
        {{{api::kPolicyLabel, "mixed"}}, as_it_is({gpu(policy::Mode::passthrough, {})})},
        {{{policy::kVgpuConfigLabel, "render-mix"}}, as_it_is({gpu(policy::Mode::vgpu, {})})},
        {{{policy::kVgpuConfigLabel, "render-mix"}}, of_policy("mixed")},
        {{{api::kWorkloadLabel, "vm-passthrough"}}, HostSide{}}}) {
    Labels all = labels;
    all[kValidator] = "true";
    NodeSnapshot snapshot = snapshot_of(all);
    snapshot.host = host;
    EXPECT_THAT(reconcile(snapshot).labels, testing::Contains(Pair(kValidator, "paused-for-gpu-ferry")))
        << labels.begin()->second;
  }
}

// A ConfigMap that changes elsewhere asks for nothing: hostd, the cluster and waiting pods do not notice.
TEST(Reconcile, IsCalmWhileAnotherPolicyIsEdited) {
  NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "quarters"}, {kValidator, "true"}});
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready,
                         {gpu(policy::Mode::vgpu, policy::Mode::vgpu)});
  snapshot.node.labels[api::kStateLabel] = "ready";
  snapshot.configs[1].text += "  another: [{devices: [0], mode: host}]\n";
  ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
  snapshot.configs[1].text.replace(snapshot.configs[1].text.find("quarters: [{devices: all"), 24,
                                   "quarters: [{devices: [0]");
  EXPECT_THAT(reconcile(snapshot).labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(kValidator, "paused-for-gpu-ferry")));
}

// By another name it is written, and until hostd has answered that what it made of the former counts.
TEST(Reconcile, IsCalmWhileTheSameIsAskedInOtherWords) {
  const HostSide before = of_policy("quarters");
  NodeSnapshot snapshot = snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  snapshot.host = before;
  snapshot.host.status->accelerators = {gpu(policy::Mode::vgpu, policy::Mode::vgpu)};
  ReconcileResult step = reconcile(snapshot);
  ASSERT_TRUE(step.desired_file.has_value());
  EXPECT_EQ(step.desired_file->generation, 8U);
  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  EXPECT_EQ(snapshot.node.labels.at(api::kStateLabel), "ready");

  snapshot.host.written = step.desired_file;
  snapshot.host.same_as = 7;
  step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
  snapshot.host.same_as = 6;  // not what hostd speaks of
  step = reconcile(snapshot);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(api::kVgpuStateLabel, "pending")))
      << "and nobody is paused: it is written";
}

TEST(Reconcile, PassesOnTheConfidentialModeOfTheLabel) {
  NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "quarters"}, {kValidator, "true"}});
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready,
                         {gpu(policy::Mode::vgpu, policy::Mode::vgpu)});
  snapshot.node.labels[api::kStateLabel] = "ready";
  snapshot.node.labels[api::kCcModeLabel] = "on";
  EXPECT_FALSE(reconcile(snapshot).desired_file) << "without the option";

  snapshot.sets_cc_mode = true;
  ReconcileResult step = reconcile(snapshot);
  ASSERT_TRUE(step.desired_file);
  EXPECT_EQ(step.desired_file->cc_mode, vfio::WantedMode::on);
  EXPECT_EQ(step.desired_file->generation, 8U);
  EXPECT_THAT(step.labels, IsEmpty()) << "no operand is paused, since no driver changes";
  snapshot.host.written = step.desired_file;
  snapshot.host.status->desired->generation = 8;
  EXPECT_FALSE(reconcile(snapshot).desired_file) << "it is written";

  snapshot.node.labels.erase(api::kCcModeLabel);
  step = reconcile(snapshot);
  ASSERT_TRUE(step.desired_file);
  EXPECT_EQ(step.desired_file->cc_mode, std::nullopt);
}

TEST(Reconcile, LeavesAConfidentialModeAloneThatItCannotSet) {
  const auto warning_for = [](const std::string& word, bool has_manager) {
    NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "quarters"}, {api::kCcModeLabel, word}});
    if (has_manager) snapshot.node.labels["nvidia.com/gpu.deploy.cc-manager"] = "true";
    snapshot.sets_cc_mode = true;
    const ReconcileResult step = reconcile(snapshot);
    EXPECT_FALSE(step.desired_state.cc_mode) << word;
    return step.desired_state.warnings.empty() ? std::string() : step.desired_state.warnings.back();
  };
  EXPECT_EQ(warning_for("", false), "") << "an empty label counts as none";
  EXPECT_EQ(
      warning_for("ppcie", false),
      "Ferry leaves label nvidia.com/cc.mode=ppcie alone: it concerns a whole board: set it on the host "
      "by `ferry cc set ppcie`");
  EXPECT_EQ(warning_for("On", false),
            "Ferry leaves label nvidia.com/cc.mode=On alone: the modes are on, off and devtools");
  EXPECT_EQ(warning_for("on", true),
            "Ferry leaves label nvidia.com/cc.mode=on alone: NVIDIA's CC manager sets the mode of this node");
}

TEST(Reconcile, SaysWhatItPassesOverAndWhatItCannotPause) {
  const std::string longest(43, 'v');
  NodeSnapshot snapshot = snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, longest}});
  snapshot.passed_over = {"key x is passed over"};
  const ReconcileResult step = reconcile(snapshot);
  ASSERT_EQ(step.events.size(), 2U);
  EXPECT_EQ(step.events[0].message, "key x is passed over");
  EXPECT_EQ(step.events[1].message, "label " + std::string(kValidator) +
                                        " cannot be paused: its value is too long for the mark behind it");
  snapshot.node.labels = {};
  for (const NodeEvent& event : reconcile(snapshot).events) EXPECT_NE(event.reason, "ConfigWarning");
}

// hostd goes on by itself when what it refused is let go.
TEST(Reconcile, PausesWhatComesLate) {
  NodeSnapshot snapshot = snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::blocked);
  EXPECT_THAT(reconcile(snapshot).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::applying);
  EXPECT_THAT(reconcile(snapshot).labels, testing::Contains(Pair(kValidator, "paused-for-gpu-ferry")));
}

TEST(Reconcile, ResumesWhatACrashLeft) {
  for (const Labels& labels : {Labels{{policy::kVgpuConfigLabel, "render-mix"}}, Labels{},
                               Labels{{api::kPolicyLabel, "typo"}}, Labels{{api::kOperandsLabel, "false"}}}) {
    Labels all = labels;
    all[kValidator] = "paused-for-gpu-ferry";
    NodeSnapshot snapshot = snapshot_of(all);
    snapshot.host = answer(desired_state_for(snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}})),
                           api::NodePhase::ready);
    EXPECT_THAT(reconcile(snapshot).labels, testing::Contains(Pair(kValidator, "true")));
  }
}

TEST(Reconcile, KeepsAPauseWhileTheHostChangesForWhateverReason) {
  NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "typo"}, {kValidator, "paused-for-gpu-ferry"}});
  snapshot.host = answer(desired_state_for(snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}})),
                         api::NodePhase::applying);
  EXPECT_THAT(reconcile(snapshot).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  snapshot.host.silent = kChangePatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot).labels, testing::Contains(Pair(kValidator, "true")));
}

// desired.json is there and hostd may begin at any moment, whatever the labels say by now.
TEST(Reconcile, KeepsAPauseForADesiredStateThatIsOnItsWay) {
  NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "typo"}, {kValidator, "paused-for-gpu-ferry"}});
  snapshot.host.written =
      test::written(desired_state_for(snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}})));
  EXPECT_THAT(reconcile(snapshot).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  snapshot.host.silent = kAnswerPatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot).labels, testing::Contains(Pair(kValidator, "true")));
}

TEST(Reconcile, LeavesNobodyPausedForAHostThatIsSilent) {
  NodeSnapshot snapshot =
      snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  snapshot.host.written = test::written(desired_state_for(snapshot));
  snapshot.host.silent = kAnswerPatience;
  EXPECT_THAT(reconcile(snapshot).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  snapshot.host.silent += seconds(1);
  EXPECT_THAT(reconcile(snapshot).labels, testing::Contains(Pair(kValidator, "true")));
}

TEST(Reconcile, IsOnStandbyWhereOthersServe) {
  NodeSnapshot snapshot = snapshot_of({{api::kWorkloadLabel, "vm-passthrough"},
                                       {"nvidia.com/gpu.deploy.vfio-manager", "true"},
                                       {kValidator, "paused-for-gpu-ferry"}});
  snapshot.others.daemon_sets = {"nvidia-vfio-manager"};
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready);
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::standby);
  EXPECT_TRUE(step.remove_desired_file) << "so that hostd writes nothing";
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "standby"), Pair(kValidator, "true")));
  EXPECT_THAT(step.annotations.at(api::kErrorAnnotation).value_or(""),
              testing::StartsWith("Ferry is on standby: "));
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].reason, "Standby");
  EXPECT_THAT(step.events[0].message, testing::HasSubstr("spec: {vfioManager: {enabled: false}}"));
  snapshot.others.daemon_sets = std::set<std::string>();
  EXPECT_EQ(reconcile(snapshot).desired_state.kind, DesiredState::Kind::policy) << "handed over";
}

// What is not known takes nothing from a node that Ferry serves, neither now nor after the next boot.
TEST(Reconcile, IsOnStandbyByLabelAloneAndKeepsWhatIsWritten) {
  NodeSnapshot snapshot =
      snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}, {"nvidia.com/gpu.deploy.vfio-manager", "true"}});
  snapshot.others = {};
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready);
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::standby);
  EXPECT_FALSE(step.remove_desired_file);
  EXPECT_EQ(step.desired_file.has_value(), false);
  snapshot.others.pods = {PodOnNode{.name = "p", .daemon_set = "nvidia-vfio-manager"}};
  EXPECT_TRUE(reconcile(snapshot).remove_desired_file);
}

// Nobody is kept away for what cannot be asked; it is tried all the same.
TEST(Reconcile, ReportsThatTheDesiredStateCannotBeWritten) {
  NodeSnapshot snapshot =
      snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}, {kValidator, "paused-for-gpu-ferry"}});
  snapshot.host.unwritable = "write /var/lib/ferry/desired.json: Read-only file system";
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "failed"), Pair(kValidator, "true")));
  EXPECT_EQ(step.annotations.at(api::kErrorAnnotation).value_or(""), snapshot.host.unwritable);
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].reason, "Failed");
  EXPECT_EQ(step.events[0].message, snapshot.host.unwritable);
  EXPECT_EQ(step.desired_file.has_value(), true);
}

TEST(Reconcile, NeedsItsLeaseAlsoWhereItCouldNotWrite) {
  NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "mixed"}});
  snapshot.host.unwritable = "no space left";
  snapshot.rollout = Rollout();
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_FALSE(step.rollout.may_begin);
}

TEST(Reconcile, NeedsItsLeaseWhereTheGpusAreNotKnown) {
  NodeSnapshot snapshot = snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}});
  snapshot.host =
      answer(desired_state_for(snapshot_of({{api::kWorkloadLabel, "container"}})), api::NodePhase::failed);
  snapshot.host.status->error = api::StatusError{.message = "the host cannot be scanned", .hint = ""};
  Rollout nobody_changes;
  nobody_changes.known = nobody_changes.searched = true;
  snapshot.rollout = nobody_changes;
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_EQ(step.lease.kind, RolloutStep::Kind::take);
}

TEST(Reconcile, IsNotOnStandbyWhereNothingIsAsked) {
  NodeSnapshot snapshot =
      snapshot_of({{"nvidia.com/gpu.deploy.vfio-manager", "true"}, {api::kVgpuStateLabel, "success"}});
  snapshot.others = {};
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::nothing);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "idle")));
  EXPECT_FALSE(step.remove_desired_file) << "none of ours is there";
}

TEST(Reconcile, WarnsOfAnAddressThatNoGpuOfTheNodeHas) {
  NodeSnapshot snapshot = snapshot_of({{api::kPolicyLabel, "two"}});
  snapshot.configs.push_back(test::config("two.yaml",
                                          "version: v2\n"
                                          "policies:\n"
                                          "  two:\n"
                                          "  - {address: '0000:02:00.0', mode: passthrough}\n"
                                          "  - {address: '0000:17:00.0', mode: passthrough}\n"));
  EXPECT_THAT(reconcile(snapshot).desired_state.warnings, IsEmpty()) << "hostd has not answered";
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready,
                         {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  const std::string warning =
      "policy two names 0000:17:00.0, and this node has no such GPU: correct the address if it is a mistake; "
      "`ferry status` on the node lists its GPUs";
  ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step.desired_state.warnings, ElementsAre(warning));
  EXPECT_EQ(step.report.condition, NodeCondition::ready);
  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  step = reconcile(snapshot);
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].reason, "ConfigWarning");
  EXPECT_EQ(step.events[0].message, warning);
  snapshot.memory.warnings = {warning};
  EXPECT_THAT(reconcile(snapshot).events, IsEmpty()) << "it is recorded once";
  snapshot.host.status->error = api::StatusError{.message = "the host cannot be scanned", .hint = ""};
  EXPECT_THAT(reconcile(snapshot).desired_state.warnings, IsEmpty()) << "its GPUs are not known";
}

// The kubelet is served whatever the labels ask for, so it needs the withdrawals then, too.
TEST(Reconcile, PutsThePluginOnStandbyAlsoWhereNothingIsAsked) {
  NodeSnapshot snapshot = snapshot_of({});
  snapshot.others.unserved = kUnservedPatience;
  EXPECT_EQ(reconcile(snapshot).standby, "");
  snapshot.others.pods = {PodOnNode{.name = "p", .daemon_set = "nvidia-kubevirt-gpu-dp-daemonset"}};
  EXPECT_EQ(reconcile(snapshot).standby.has_value(), false) << "it does not run yet";
  EXPECT_THAT(reconcile(snapshot).desired_state.warnings, IsEmpty());
  snapshot.others.pods->front().runs = true;
  ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::nothing);
  EXPECT_EQ(step.standby, "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  EXPECT_THAT(
      step.desired_state.warnings,
      ElementsAre("Ferry's device plugin advertises nothing here: NVIDIA's kubevirt-gpu-device-plugin "
                  "serves this node; remove it to hand the node over"));
  snapshot.node.labels[api::kWorkloadLabel] = "vm-passthrough";
  step = reconcile(snapshot);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::standby);
  EXPECT_EQ(step.standby, "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  EXPECT_THAT(step.desired_state.warnings, IsEmpty()) << "that Ferry stands back says it";
  snapshot.others.are_neighbours = true;
  step = reconcile(snapshot);
  EXPECT_EQ(step.standby.has_value(), false) << "another agent's to say";
  EXPECT_THAT(step.desired_state.warnings, IsEmpty());
}

TEST(Reconcile, TakesBackWhatNobodyAsksForAnyMore) {
  NodeSnapshot snapshot = snapshot_of({});
  snapshot.host = answer(desired_state_for(snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}})),
                         api::NodePhase::ready);
  EXPECT_TRUE(reconcile(snapshot).remove_desired_file);
}

TEST(Reconcile, CountsGenerationsAboveAllThatWereSeen) {
  NodeSnapshot snapshot = snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}});
  snapshot.host = as_it_is({});
  if (snapshot.host.status) snapshot.host.status->desired = api::DesiredMark{.generation = 41};
  EXPECT_EQ(reconcile(snapshot).desired_file.value_or(api::DesiredFile{}).generation, 42U);
  snapshot.host.written = api::DesiredFile{.generation = 50, .policy = "x", .source = "z"};
  EXPECT_EQ(reconcile(snapshot).desired_file.value_or(api::DesiredFile{}).generation, 51U);
  snapshot.host.written->generation = (1ULL << 53U) - 1;
  EXPECT_EQ(reconcile(snapshot).desired_file.value_or(api::DesiredFile{}).generation, 1U);
}

TEST(Reconcile, TakesTroubleOffTheNodeOnceItIsOver) {
  NodeSnapshot snapshot =
      snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}, {api::kVgpuStateLabel, "failed"}});
  snapshot.node.annotations[api::kErrorAnnotation] = "in use";
  snapshot.node.annotations["example.com/note"] = "stays";
  snapshot.host = answer(desired_state_for(snapshot), api::NodePhase::ready,
                         {test::gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step.annotations, ElementsAre(Pair(api::kErrorAnnotation, std::nullopt)));
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "ready"), Pair(api::kVgpuStateLabel, std::nullopt)));
}

// ---- the next reconcile without an event, and what it remembers

constexpr Moment kNow = Moment(std::chrono::hours(1));

std::string requeue_of(const ReconcileResult& result) {
  if (!result.requeue) return "none";
  const auto after = std::chrono::duration_cast<seconds>(result.requeue->after);
  return std::to_string(after.count()) + " s: " + std::string(result.requeue->reason);
}

TEST(Reconcile, NamesTheFirstDeadlineThatNoWatchReports) {
  NodeSnapshot snapshot = snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}});
  snapshot.now = kNow;
  snapshot.memory.host.changed_at = kNow;
  snapshot.host.written = test::written(desired_state_for(snapshot));
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "31 s: hostd is silent");
  snapshot.memory.host.down_since = kNow - kGonePatience + seconds(5);
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "6 s: the host status is too old");
  snapshot.memory.unserved_since = kNow - kUnservedPatience + seconds(2);
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "2 s: NVIDIA's device plugin has been gone for a while");
  snapshot.others.unserved = kUnservedPatience;
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "6 s: the host status is too old") << "Ferry's serves again";
  snapshot = snapshot_of({});
  snapshot.now = kNow;
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "none");
}

TEST(Reconcile, RemembersSinceWhenItWaitsForOperands) {
  NodeSnapshot snapshot = snapshot_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  snapshot.now = kNow;
  snapshot.memory.change = reconcile(snapshot).change_memory;
  EXPECT_EQ(snapshot.memory.change.waits_since, kNow);
  snapshot.now += kPausePatience;
  snapshot.paused = kPausePatience;
  EXPECT_EQ(reconcile(snapshot).change_memory.waits_since, kNow);
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "1 s: the change begins without operands");
  snapshot.paused += seconds(1);
  EXPECT_EQ(reconcile(snapshot).change_memory.waits_since, kNow) << "until it is written";
  snapshot.host.written = test::written(desired_state_for(snapshot));
  EXPECT_EQ(reconcile(snapshot).change_memory.waits_since, std::nullopt);
}

TEST(Reconcile, HoldsAPatchThatOthersHaveReverted) {
  NodeSnapshot snapshot = snapshot_of({{api::kWorkloadLabel, "vm-passthrough"}});
  snapshot.now = kNow;
  snapshot.memory.host.changed_at = kNow;
  const ReconcileResult first = reconcile(snapshot);
  EXPECT_TRUE(first.sends_patch);
  EXPECT_FALSE(first.record_events) << "the Node shows their cause later";
  snapshot.memory.patch.last = {first.labels, first.annotations, first.unschedulable};
  snapshot.memory.patch.again = kNow + seconds(5);
  EXPECT_FALSE(reconcile(snapshot).sends_patch);
  EXPECT_FALSE(reconcile(snapshot).empty());
  EXPECT_EQ(requeue_of(reconcile(snapshot)), "5 s: the patch that others reverted is sent again");
  snapshot.now += seconds(5);
  EXPECT_TRUE(reconcile(snapshot).sends_patch);
  snapshot.node.labels = with_changes(snapshot.node.labels, first.labels);
  EXPECT_FALSE(reconcile(snapshot).sends_patch);
  EXPECT_TRUE(reconcile(snapshot).empty());
  EXPECT_TRUE(reconcile(snapshot).record_events);
}

}  // namespace
}  // namespace ferry::agent
