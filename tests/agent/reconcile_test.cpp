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

NodeSnapshot view_of(Labels labels) {
  NodeSnapshot view;
  view.node = test::node_with(std::move(labels));
  view.configs = test::usual_configs();
  view.others = {.pods = std::vector<PodOnNode>(), .daemon_sets = std::set<std::string>()};
  return view;
}
DesiredState desired_state_for(const NodeSnapshot& view) {
  return resolve_desired_state(view.node, view.configs, view.defaults);
}

// The whole of a change beside the operator, look by look.
TEST(Reconcile, PausesAsksAndResumesInThatOrder) {
  NodeSnapshot view =
      view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}, {kPlugin, "false"}});
  const DesiredState desired_state = desired_state_for(view);
  ReconcileResult step = reconcile(view);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(kValidator, "paused-for-gpu-ferry"),
                          Pair(api::kVgpuStateLabel, "pending")));
  EXPECT_EQ(step.desired_file.has_value(), false) << "before the labels are changed";
  EXPECT_EQ(step.waits_for, "the operands' labels to be paused");

  view.node.labels = with_changes(view.node.labels, step.labels);
  view.others.pods = {
      PodOnNode{.name = "nvidia-sandbox-validator-abc", .daemon_set = "nvidia-sandbox-validator"}};
  step = reconcile(view);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_EQ(step.waits_for, "pod nvidia-sandbox-validator-abc to end");

  view.others.pods = std::vector<PodOnNode>();
  step = reconcile(view);
  EXPECT_EQ(step.desired_file.value_or(api::DesiredFile{}), test::written(desired_state, 1));
  EXPECT_EQ(step.waits_for, "");

  view.host = answer(desired_state, api::NodePhase::applying);
  step = reconcile(view);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "applying")));
  EXPECT_EQ(step.desired_file.has_value(), false) << "it is written";
  view.node.labels = with_changes(view.node.labels, step.labels);

  view.host = answer(desired_state, api::NodePhase::ready, {gpu(policy::Mode::vgpu, policy::Mode::vgpu)});
  step = reconcile(view);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "ready"), Pair(kValidator, "true"),
                                       Pair(api::kVgpuStateLabel, "success")));
  view.node.labels = with_changes(view.node.labels, step.labels);
  step = reconcile(view);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.annotations, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
}

// "success" of what was asked for before is not that of this, for however short a time this takes.
TEST(Reconcile, SaysThatAVgpuConfigurationIsPendingBeforeAnybodyTakesItUp) {
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "render-mix"}, {api::kVgpuStateLabel, "success"}});
  view.host =
      answer(desired_state_for(view_of({{api::kWorkloadLabel, "vm-passthrough"}})), api::NodePhase::ready);
  ReconcileResult step = reconcile(view);
  EXPECT_TRUE(step.desired_file.has_value()) << "nobody is to be paused";
  EXPECT_EQ(step.labels.at(api::kVgpuStateLabel), "pending");
  view.rollout = Rollout();
  step = reconcile(view);
  EXPECT_FALSE(step.desired_file.has_value()) << "it waits for its turn";
  EXPECT_EQ(step.labels.at(api::kVgpuStateLabel), "pending");
}

// The label is gone, or another says more, before anybody has taken that configuration up.
TEST(Reconcile, SaysNoMoreThatAVgpuConfigurationIsPendingThatNobodyAsksFor) {
  for (const Labels& labels : {Labels{}, Labels{{api::kPolicyLabel, "typo"}}}) {
    Labels all = labels;
    all[api::kVgpuStateLabel] = "pending";
    NodeSnapshot view = view_of(all);
    EXPECT_EQ(reconcile(view).labels.at(api::kVgpuStateLabel), std::nullopt);
    view.host = answer(desired_state_for(view_of({{policy::kVgpuConfigLabel, "render-mix"}})),
                       api::NodePhase::applying);
    EXPECT_FALSE(reconcile(view).labels.contains(api::kVgpuStateLabel)) << "it is at work";
    view.host = {};
    view.host.written = test::written(desired_state_for(view_of({{policy::kVgpuConfigLabel, "render-mix"}})));
    EXPECT_FALSE(reconcile(view).labels.contains(api::kVgpuStateLabel)) << "it may be at any moment";
    view.host = {};
    view.node.labels[api::kVgpuStateLabel] = "failed";
    EXPECT_FALSE(reconcile(view).labels.contains(api::kVgpuStateLabel))
        << "what became of the last one stands";
  }
}

// NVIDIA's manager goes by a default of its own.
TEST(Reconcile, LeavesWhatNvidiasVgpuDeviceManagerSaysIsPending) {
  NodeSnapshot view =
      view_of({{"nvidia.com/gpu.deploy.vgpu-device-manager", "true"}, {api::kVgpuStateLabel, "pending"}});
  view.others.daemon_sets = {"nvidia-vgpu-device-manager"};
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::nothing);
  EXPECT_FALSE(step.labels.contains(api::kVgpuStateLabel));
}

// A GPU that is taken from driver nvidia is open in all of these; who brings the driver has none open.
TEST(Reconcile, PausesWhatHasTheDriversGpusOpen) {
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"}, {kDcgm, "true"}, {kDriver, "true"}});
  view.host.status = api::HostStatus();
  view.host.status->accelerators = {gpu(policy::Mode::host, std::nullopt)};
  const ReconcileResult step = reconcile(view);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(kDcgm, "paused-for-gpu-ferry")));
  view.node.labels = with_changes(view.node.labels, step.labels);
  view.others.pods = {PodOnNode{.name = "nvidia-dcgm-abc", .daemon_set = "nvidia-dcgm"}};
  EXPECT_EQ(reconcile(view).waits_for, "pod nvidia-dcgm-abc to end");
  view.host = answer(desired_state_for(view), api::NodePhase::ready,
                     {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  EXPECT_EQ(reconcile(view).labels.at(kDcgm), "true");
}

// They come back when a change is refused for somebody else's sake, and have the GPUs open when that one
// goes.
TEST(Reconcile, PausesThoseAgainThatAloneAreInTheWay) {
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"}, {kDcgm, "true"}});
  view.others.pods = {PodOnNode{.name = "d", .daemon_set = "nvidia-dcgm", .uid = "u-dcgm"},
                      PodOnNode{.name = "job", .daemon_set = "", .uid = "u-job"}};
  const auto held_by = [](std::vector<std::string> pods) {
    api::AcceleratorStatus out = gpu(policy::Mode::host, policy::Mode::passthrough, api::GpuState::blocked);
    out.only_in_use = true;
    for (std::string& uid : pods)
      out.users.push_back({.kind = "process", .name = "p", .pod_uid = std::move(uid)});
    return out;
  };
  const auto pauses = [&] { return reconcile(view).labels.contains(kDcgm); };
  view.host = answer(desired_state_for(view), api::NodePhase::blocked, {held_by({"u-dcgm", "u-job"})});
  EXPECT_FALSE(pauses()) << "the job is, too";
  ASSERT_TRUE(view.host.status);
  view.host.status->accelerators = {held_by({"u-dcgm", ""})};
  EXPECT_FALSE(pauses()) << "a process of the host's is, too";
  view.host.status->accelerators = {held_by({"u-job"}), held_by({"u-dcgm"})};
  EXPECT_TRUE(pauses()) << "of one GPU";
  view.node.labels[kDcgm] = "paused-for-gpu-ferry";
  EXPECT_FALSE(pauses()) << "it is so until hostd has gone on";
  view.host.silent = kPausePatience + seconds(1);
  EXPECT_EQ(reconcile(view).labels.at(kDcgm), "true") << "it does not go";
  view.host.silent = seconds(0);
  view.host.hostd_speaks = false;
  EXPECT_EQ(reconcile(view).labels.at(kDcgm), "true") << "nobody would go on";
}

TEST(Reconcile, WaitsForAPodOnlySoLong) {
  NodeSnapshot view =
      view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  view.others.pods = {PodOnNode{.name = "stuck", .daemon_set = "nvidia-sandbox-validator"}};
  view.paused = kPausePatience;
  EXPECT_EQ(reconcile(view).desired_file.has_value(), false);
  view.paused += seconds(1);
  EXPECT_EQ(reconcile(view).desired_file.has_value(), true);
}

// Who may not see the pods cannot tell when they have gone.
TEST(Reconcile, WaitsAsLongForPodsThatItCannotSee) {
  NodeSnapshot view =
      view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  view.others.pods = std::nullopt;
  view.paused = kPausePatience;
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_TRUE(step.awaits_operands);
  EXPECT_EQ(step.waits_for, "the paused operands' pods, which cannot be seen, to end");
  view.paused += seconds(1);
  EXPECT_EQ(reconcile(view).desired_file.has_value(), true);
  view.paused = seconds(0);
  view.node.labels.erase(kValidator);
  EXPECT_EQ(reconcile(view).desired_file.has_value(), true) << "nobody was there to be paused";
}

// Somebody who sets the label back each time does not keep the node from what its other labels ask for.
TEST(Reconcile, WaitsForALabelOnlySoLong) {
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  view.paused = kPausePatience;
  EXPECT_EQ(reconcile(view).desired_file.has_value(), false);
  EXPECT_TRUE(reconcile(view).awaits_operands);
  view.paused += seconds(1);
  EXPECT_EQ(reconcile(view).desired_file.has_value(), true);
  EXPECT_FALSE(reconcile(view).awaits_operands);
}

TEST(Reconcile, PausesNothingForATypo) {
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "typo"}, {kValidator, "true"}});
  const NodeSnapshot before = view_of({{policy::kVgpuConfigLabel, "render-mix"}});
  view.host = answer(desired_state_for(before), api::NodePhase::ready);
  const ReconcileResult step = reconcile(view);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "failed"), Pair(api::kVgpuStateLabel, "failed")));
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_FALSE(step.remove_desired_file) << "the host keeps what it has, also after a reboot";
  EXPECT_THAT(step.files, IsEmpty());
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
  return answer(desired_state_for(view_of({{api::kPolicyLabel, name}})), api::NodePhase::ready);
}

class TakesOver : public testing::TestWithParam<NoChange> {};

// The desired state is written down, and nobody is paused for what changes no GPU.
TEST_P(TakesOver, WithoutAPause) {
  Labels labels = GetParam().labels;
  labels[kValidator] = "true";
  NodeSnapshot view = view_of(labels);
  view.host = GetParam().host;
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_file.has_value(), true);
  EXPECT_EQ(step.labels.at(api::kStateLabel), GetParam().state);
  EXPECT_THAT(step.labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.node.labels = with_changes(view.node.labels, step.labels);
  view.host.written = step.desired_file;
  EXPECT_THAT(reconcile(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))))
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
    NodeSnapshot view = view_of(all);
    view.host = host;
    EXPECT_THAT(reconcile(view).labels, testing::Contains(Pair(kValidator, "paused-for-gpu-ferry")))
        << labels.begin()->second;
  }
}

// A ConfigMap that changes elsewhere asks for nothing: hostd, the cluster and waiting pods do not notice.
TEST(Reconcile, IsCalmWhileAnotherPolicyIsEdited) {
  NodeSnapshot view = view_of({{api::kPolicyLabel, "quarters"}, {kValidator, "true"}});
  view.host =
      answer(desired_state_for(view), api::NodePhase::ready, {gpu(policy::Mode::vgpu, policy::Mode::vgpu)});
  view.node.labels[api::kStateLabel] = "ready";
  view.configs[1].text += "  another: [{devices: [0], mode: host}]\n";
  ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
  ASSERT_EQ(step.files.size(), 3U);
  EXPECT_EQ(step.files[1].content.has_value(), true) << "vgpu-devices-ready stays";
  view.configs[1].text.replace(view.configs[1].text.find("quarters: [{devices: all"), 24,
                               "quarters: [{devices: [0]");
  EXPECT_THAT(reconcile(view).labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(kValidator, "paused-for-gpu-ferry")));
}

// By another name it is written, and until hostd has answered that what it made of the former counts.
TEST(Reconcile, IsCalmWhileTheSameIsAskedInOtherWords) {
  const HostSide before = of_policy("quarters");
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  view.host = before;
  view.host.status->accelerators = {gpu(policy::Mode::vgpu, policy::Mode::vgpu)};
  ReconcileResult step = reconcile(view);
  ASSERT_TRUE(step.desired_file.has_value());
  EXPECT_EQ(step.desired_file->generation, 8U);
  view.node.labels = with_changes(view.node.labels, step.labels);
  EXPECT_EQ(view.node.labels.at(api::kStateLabel), "ready");

  view.host.written = step.desired_file;
  view.host.same_as = 7;
  step = reconcile(view);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
  ASSERT_EQ(step.files.size(), 3U);
  EXPECT_EQ(step.files[1].content.has_value(), true) << "vgpu-devices-ready stays";
  view.host.same_as = 6;  // not what hostd speaks of
  step = reconcile(view);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(api::kStateLabel, "pending"), Pair(api::kVgpuStateLabel, "pending")))
      << "and nobody is paused: it is written";
}

TEST(Reconcile, SaysWhatItPassesOverAndWhatItCannotPause) {
  const std::string longest(43, 'v');
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, longest}});
  view.passed_over = {"key x is passed over"};
  const ReconcileResult step = reconcile(view);
  ASSERT_EQ(step.events.size(), 2U);
  EXPECT_EQ(step.events[0].message, "key x is passed over");
  EXPECT_EQ(step.events[1].message, "label " + std::string(kValidator) +
                                        " cannot be paused: its value is too long for the mark behind it");
  view.node.labels = {};
  for (const NodeEvent& event : reconcile(view).events) EXPECT_NE(event.reason, "ConfigWarning");
}

// hostd goes on by itself when what it refused is let go.
TEST(Reconcile, PausesWhatComesLate) {
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  view.host = answer(desired_state_for(view), api::NodePhase::blocked);
  EXPECT_THAT(reconcile(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host = answer(desired_state_for(view), api::NodePhase::applying);
  EXPECT_THAT(reconcile(view).labels, testing::Contains(Pair(kValidator, "paused-for-gpu-ferry")));
}

TEST(Reconcile, ResumesWhatACrashLeft) {
  for (const Labels& labels : {Labels{{policy::kVgpuConfigLabel, "render-mix"}}, Labels{},
                               Labels{{api::kPolicyLabel, "typo"}}, Labels{{api::kOperandsLabel, "false"}}}) {
    Labels all = labels;
    all[kValidator] = "paused-for-gpu-ferry";
    NodeSnapshot view = view_of(all);
    view.host =
        answer(desired_state_for(view_of({{policy::kVgpuConfigLabel, "render-mix"}})), api::NodePhase::ready);
    EXPECT_THAT(reconcile(view).labels, testing::Contains(Pair(kValidator, "true")));
  }
}

TEST(Reconcile, KeepsAPauseWhileTheHostChangesForWhateverReason) {
  NodeSnapshot view = view_of({{api::kPolicyLabel, "typo"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host = answer(desired_state_for(view_of({{policy::kVgpuConfigLabel, "render-mix"}})),
                     api::NodePhase::applying);
  EXPECT_THAT(reconcile(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host.silent = kChangePatience + seconds(1);
  EXPECT_THAT(reconcile(view).labels, testing::Contains(Pair(kValidator, "true")));
}

// desired.json is there and hostd may begin at any moment, whatever the labels say by now.
TEST(Reconcile, KeepsAPauseForADesiredStateThatIsOnItsWay) {
  NodeSnapshot view = view_of({{api::kPolicyLabel, "typo"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host.written = test::written(desired_state_for(view_of({{policy::kVgpuConfigLabel, "render-mix"}})));
  EXPECT_THAT(reconcile(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host.silent = kAnswerPatience + seconds(1);
  EXPECT_THAT(reconcile(view).labels, testing::Contains(Pair(kValidator, "true")));
}

TEST(Reconcile, LeavesNobodyPausedForAHostThatIsSilent) {
  NodeSnapshot view =
      view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host.written = test::written(desired_state_for(view));
  view.host.silent = kAnswerPatience;
  EXPECT_THAT(reconcile(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host.silent += seconds(1);
  EXPECT_THAT(reconcile(view).labels, testing::Contains(Pair(kValidator, "true")));
}

TEST(Reconcile, IsOnStandbyWhereOthersServe) {
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"},
                               {"nvidia.com/gpu.deploy.vfio-manager", "true"},
                               {kValidator, "paused-for-gpu-ferry"}});
  view.others.daemon_sets = {"nvidia-vfio-manager"};
  view.host = answer(desired_state_for(view), api::NodePhase::ready);
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::standby);
  EXPECT_TRUE(step.remove_desired_file) << "so that hostd writes nothing";
  EXPECT_EQ(step.desired_file.has_value(), false);
  ASSERT_EQ(step.files.size(), 2U);
  for (const ValidationFile& file : step.files) EXPECT_EQ(file.content.has_value(), false) << file.name;
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "standby"), Pair(kValidator, "true")));
  EXPECT_THAT(step.annotations.at(api::kErrorAnnotation).value_or(""),
              testing::StartsWith("Ferry is on standby: "));
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].reason, "Standby");
  EXPECT_THAT(step.events[0].message, testing::HasSubstr("spec: {vfioManager: {enabled: false}}"));
  view.others.daemon_sets = std::set<std::string>();
  EXPECT_EQ(reconcile(view).desired_state.kind, DesiredState::Kind::policy) << "handed over";
}

// What is not known takes nothing from a node that Ferry serves, neither now nor after the next boot.
TEST(Reconcile, IsOnStandbyByLabelAloneAndKeepsWhatIsWritten) {
  NodeSnapshot view =
      view_of({{api::kWorkloadLabel, "vm-passthrough"}, {"nvidia.com/gpu.deploy.vfio-manager", "true"}});
  view.others = {};
  view.host = answer(desired_state_for(view), api::NodePhase::ready);
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::standby);
  EXPECT_FALSE(step.remove_desired_file);
  EXPECT_EQ(step.desired_file.has_value(), false);
  view.others.pods = {PodOnNode{.name = "p", .daemon_set = "nvidia-vfio-manager"}};
  EXPECT_TRUE(reconcile(view).remove_desired_file);
}

// Nobody is kept away for what cannot be asked; it is tried all the same.
TEST(Reconcile, ReportsThatTheDesiredStateCannotBeWritten) {
  NodeSnapshot view =
      view_of({{api::kWorkloadLabel, "vm-passthrough"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host.unwritable = "write /var/lib/ferry/desired.json: Read-only file system";
  const ReconcileResult step = reconcile(view);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "failed"), Pair(kValidator, "true")));
  EXPECT_EQ(step.annotations.at(api::kErrorAnnotation).value_or(""), view.host.unwritable);
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].reason, "Failed");
  EXPECT_EQ(step.events[0].message, view.host.unwritable);
  EXPECT_EQ(step.desired_file.has_value(), true);
}

TEST(Reconcile, NeedsItsLeaseAlsoWhereItCouldNotWrite) {
  NodeSnapshot view = view_of({{api::kPolicyLabel, "mixed"}});
  view.host.unwritable = "no space left";
  view.rollout = Rollout();
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_file.has_value(), false);
  EXPECT_FALSE(step.rollout.may_begin);
}

TEST(Reconcile, IsNotOnStandbyWhereNothingIsAsked) {
  NodeSnapshot view =
      view_of({{"nvidia.com/gpu.deploy.vfio-manager", "true"}, {api::kVgpuStateLabel, "success"}});
  view.others = {};
  const ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::nothing);
  EXPECT_THAT(step.labels, ElementsAre(Pair(api::kStateLabel, "idle")));
  EXPECT_FALSE(step.remove_desired_file) << "none of ours is there";
}

// The kubelet is served whatever the labels ask for, so it needs the withdrawals then, too.
TEST(Reconcile, PutsThePluginOnStandbyAlsoWhereNothingIsAsked) {
  NodeSnapshot view = view_of({});
  view.others.unserved = kUnservedPatience;
  EXPECT_EQ(reconcile(view).standby, "");
  view.others.pods = {PodOnNode{.name = "p", .daemon_set = "nvidia-kubevirt-gpu-dp-daemonset"}};
  EXPECT_EQ(reconcile(view).standby.has_value(), false) << "it does not run yet";
  EXPECT_THAT(reconcile(view).desired_state.warnings, IsEmpty());
  view.others.pods->front().runs = true;
  ReconcileResult step = reconcile(view);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::nothing);
  EXPECT_EQ(step.standby, "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  EXPECT_THAT(
      step.desired_state.warnings,
      ElementsAre("Ferry's device plugin advertises nothing here: NVIDIA's kubevirt-gpu-device-plugin "
                  "serves this node; remove it to hand the node over"));
  view.node.labels[api::kWorkloadLabel] = "vm-passthrough";
  step = reconcile(view);
  EXPECT_EQ(step.desired_state.kind, DesiredState::Kind::standby);
  EXPECT_EQ(step.standby, "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  EXPECT_THAT(step.desired_state.warnings, IsEmpty()) << "that Ferry stands back says it";
  view.others.are_neighbours = true;
  step = reconcile(view);
  EXPECT_EQ(step.standby.has_value(), false) << "another agent's to say";
  EXPECT_THAT(step.desired_state.warnings, IsEmpty());
}

TEST(Reconcile, TakesBackWhatNobodyAsksForAnyMore) {
  NodeSnapshot view = view_of({});
  view.host =
      answer(desired_state_for(view_of({{policy::kVgpuConfigLabel, "render-mix"}})), api::NodePhase::ready);
  EXPECT_TRUE(reconcile(view).remove_desired_file);
}

TEST(Reconcile, CountsGenerationsAboveAllThatWereSeen) {
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"}});
  view.host = as_it_is({});
  if (view.host.status) view.host.status->desired = api::DesiredMark{.generation = 41};
  EXPECT_EQ(reconcile(view).desired_file.value_or(api::DesiredFile{}).generation, 42U);
  view.host.written = api::DesiredFile{.generation = 50, .policy = "x", .source = "z"};
  EXPECT_EQ(reconcile(view).desired_file.value_or(api::DesiredFile{}).generation, 51U);
}

TEST(Reconcile, TakesTroubleOffTheNodeOnceItIsOver) {
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"}, {api::kVgpuStateLabel, "failed"}});
  view.node.annotations[api::kErrorAnnotation] = "in use";
  view.node.annotations["example.com/note"] = "stays";
  view.host = answer(desired_state_for(view), api::NodePhase::ready,
                     {test::gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  const ReconcileResult step = reconcile(view);
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
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"}});
  view.now = kNow;
  view.memory.host.changed_at = kNow;
  view.host.written = test::written(desired_state_for(view));
  EXPECT_EQ(requeue_of(reconcile(view)), "31 s: hostd is silent");
  view.memory.host.down_since = kNow - kGonePatience + seconds(5);
  EXPECT_EQ(requeue_of(reconcile(view)), "6 s: the host status is too old");
  view.memory.others.unserved_since = kNow - kUnservedPatience + seconds(2);
  EXPECT_EQ(requeue_of(reconcile(view)), "2 s: NVIDIA's device plugin has been gone for a while");
  view.others.unserved = kUnservedPatience;
  EXPECT_EQ(requeue_of(reconcile(view)), "6 s: the host status is too old") << "Ferry's serves again";
  view = view_of({});
  view.now = kNow;
  EXPECT_EQ(requeue_of(reconcile(view)), "none");
}

TEST(Reconcile, RemembersSinceWhenItWaitsForOperands) {
  NodeSnapshot view = view_of({{policy::kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  view.now = kNow;
  view.memory.change = reconcile(view).change;
  EXPECT_EQ(view.memory.change.waits_since, kNow);
  view.now += kPausePatience;
  view.paused = kPausePatience;
  EXPECT_EQ(reconcile(view).change.waits_since, kNow);
  EXPECT_EQ(requeue_of(reconcile(view)), "1 s: the change begins without operands");
  view.paused += seconds(1);
  EXPECT_EQ(reconcile(view).change.waits_since, kNow) << "until it is written";
  view.host.written = test::written(desired_state_for(view));
  EXPECT_EQ(reconcile(view).change.waits_since, std::nullopt);
}

TEST(Reconcile, HoldsAPatchThatOthersHaveReverted) {
  NodeSnapshot view = view_of({{api::kWorkloadLabel, "vm-passthrough"}});
  view.now = kNow;
  view.memory.host.changed_at = kNow;
  const ReconcileResult first = reconcile(view);
  EXPECT_EQ(first.patch, ReconcileResult::Patch::send);
  EXPECT_FALSE(first.record_events) << "the Node shows their cause later";
  view.memory.patch.last = {first.labels, first.annotations, first.unschedulable};
  view.memory.patch.again = kNow + seconds(5);
  EXPECT_EQ(reconcile(view).patch, ReconcileResult::Patch::held);
  EXPECT_EQ(requeue_of(reconcile(view)), "5 s: the patch that others reverted is sent again");
  view.now += seconds(5);
  EXPECT_EQ(reconcile(view).patch, ReconcileResult::Patch::send);
  view.node.labels = with_changes(view.node.labels, first.labels);
  EXPECT_EQ(reconcile(view).patch, ReconcileResult::Patch::none);
  EXPECT_TRUE(reconcile(view).record_events);
}

TEST(Reconcile, WritesTheFeatureFileWhenItIsNotSoOrOld) {
  NodeSnapshot view = view_of({});
  view.now = kNow;
  view.features = FeatureWay::file;
  view.host.hostd_down = kGonePatience + seconds(1);  // so there are no labels, and no file
  EXPECT_TRUE(reconcile(view).write_feature_file);
  view.memory.feature_file = {.labels = Labels(), .renewed_at = kNow + seconds(9)};
  EXPECT_FALSE(reconcile(view).write_feature_file);
  EXPECT_EQ(requeue_of(reconcile(view)), "9 s: the feature file is renewed");
  view.has_feature_file = true;
  EXPECT_TRUE(reconcile(view).write_feature_file);
  view.has_feature_file = false;
  view.now += seconds(9);
  EXPECT_TRUE(reconcile(view).write_feature_file);
  EXPECT_EQ(requeue_of(reconcile(view)), "43200 s: the feature file is renewed");
}

}  // namespace
}  // namespace ferry::agent
