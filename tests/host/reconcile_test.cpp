// SPDX-License-Identifier: Apache-2.0
// The decisions of hostd as tables: no host, no files, no clock.
#include "host/reconcile.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "host/usage/advertised_use_probe.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Seconds = std::chrono::seconds;

constexpr vfio::PciAddress kGpu{.domain = 0, .bus = 5, .device = 0, .function = 0};
constexpr vfio::PciAddress kOther{.domain = 0, .bus = 6, .device = 0, .function = 0};
constexpr const char* kGpuId = "0000:05:00.0";
constexpr Moment kNow = Moment() + 1h;

Error error_of(Errc code) {
  return {.code = make_error_code(code), .message = "it is so", .hint = "do this"};
}

vfio::DeviceUser process(std::optional<int> pid) {
  return {.kind = vfio::DeviceUser::Kind::process, .name = "worker", .pid = pid, .what = "/dev/nvidia0"};
}
vfio::DeviceUser pod(std::string name) {
  return {.kind = vfio::DeviceUser::Kind::pod, .name = std::move(name), .what = "nvidia.com/T4"};
}

GpuCondition blocked_by(const vfio::DeviceUser& user) {
  GpuCondition out;
  out.state = api::GpuState::blocked;
  out.reasons = {kGpu.text() + " is in use: " + user.text()};
  out.users = {user};
  return out;
}
GpuCondition condition_with(api::GpuState state) {
  GpuCondition out;
  out.state = state;
  out.reasons = {"a reason"};
  return out;
}

// -- the beginning of a round --

TEST(BeginRound, DecidesIfAnAttemptFollows) {
  using Kind = BeginResult::Kind;
  struct Row {
    const char* name;
    std::function<void(BeginSnapshot&)> change;  ///< of a round in the middle of a back-off
    Kind kind;
    bool is_news;
    unsigned failures;
  };
  const std::vector<Row> rows = {
      {"nothing has changed", [](BeginSnapshot&) {}, Kind::backs_off, false, 3},
      {"the back-off is over", [](BeginSnapshot& now) { now.now = kNow + 10s; }, Kind::goes_on, false, 3},
      {"there was no failure", [](BeginSnapshot& now) { now.memory.back_off_until.reset(); }, Kind::goes_on,
       false, 3},
      {"another desired state", [](BeginSnapshot& now) { now.summary = "b"; }, Kind::goes_on, true, 0},
      {"the first round", [](BeginSnapshot& now) { now.memory.summary.reset(); }, Kind::goes_on, true, 0},
      {"a process has ended", [](BeginSnapshot& now) { now.process_ended = true; }, Kind::goes_on, false, 3},
      {"a pod has ended", [](BeginSnapshot& now) { now.allocated = std::set<std::string>{"y"}; },
       Kind::goes_on, false, 3},
      {"a pod has begun",
       [](BeginSnapshot& now) {
         now.allocated = std::set<std::string>{"x", "y"};
       },
       Kind::backs_off, false, 3},
      {"the plugin's file is unreadable", [](BeginSnapshot& now) { now.allocated.reset(); }, Kind::backs_off,
       false, 3},
      {"another policy file is being written",
       [](BeginSnapshot& now) {
         now.summary = "b";
         now.may_be_incomplete = true;
       },
       Kind::rereads, false, 3},
      {"the same policy file was written again", [](BeginSnapshot& now) { now.may_be_incomplete = true; },
       Kind::backs_off, false, 3},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    BeginSnapshot snapshot;
    snapshot.summary = "a";
    snapshot.allocated = std::set<std::string>{"x"};
    snapshot.now = kNow;
    snapshot.memory.summary = "a";
    snapshot.memory.failures = 3;
    snapshot.memory.back_off_until = kNow + 10s;
    snapshot.memory.allocated = {"x"};
    snapshot.memory.last.phase = api::NodePhase::failed;
    row.change(snapshot);
    const BeginResult result = begin_round(snapshot);
    EXPECT_EQ(result.kind, row.kind);
    EXPECT_EQ(result.is_news, row.is_news);
    EXPECT_EQ(result.memory.failures, row.failures);
    EXPECT_EQ(result.memory.back_off_until.has_value(), row.kind != Kind::goes_on);
    if (row.kind == Kind::goes_on) continue;
    EXPECT_EQ(result.round.phase, api::NodePhase::failed) << "as the last round";
    EXPECT_EQ(result.round.again, row.kind == Kind::backs_off ? kNow + 10s : kNow + 1s);
    EXPECT_EQ(result.memory.summary, "a") << "the desired state is the old one";
  }
}

TEST(BeginRound, ReadsAFileAgainThatMayBeIncomplete) {
  BeginSnapshot snapshot;
  snapshot.summary = "a";
  snapshot.may_be_incomplete = true;
  snapshot.now = kNow;
  const BeginResult result = begin_round(snapshot);
  EXPECT_EQ(result.round.again, kNow + 1s);
  EXPECT_TRUE(result.round.unfinished);
}

TEST(BeginRound, RemembersAPodThatBeginsDuringTheBackOff) {
  BeginSnapshot snapshot;
  snapshot.allocated = std::set<std::string>{"x"};
  snapshot.memory.summary = "";
  snapshot.memory.back_off_until = kNow + 10s;
  snapshot.now = kNow;
  BeginResult result = begin_round(snapshot);
  EXPECT_EQ(result.kind, BeginResult::Kind::backs_off);
  snapshot.memory = std::move(result.memory);
  snapshot.allocated = std::set<std::string>();
  EXPECT_EQ(begin_round(snapshot).kind, BeginResult::Kind::goes_on);
}

// -- a change --

/// Two GPUs are on vfio, and the first one goes back to the host. The plugin lists none of them.
RoundSnapshot planned_change() {
  RoundSnapshot out;
  out.stage = Stage::planned;
  out.desired = api::DesiredMark{.generation = 7, .policy = "a", .source = "a test"};
  for (const vfio::PciAddress& address : {kGpu, kOther}) {
    mdev::VgpuGpu gpu;
    gpu.function.address = address;
    gpu.function.driver = "vfio-pci";
    gpu.function.iommu_group = address.bus;
    out.node.inventory.functions.emplace(address, gpu.function);
    out.node.inventory.groups[address.bus] = {address};
    out.node.vgpus.gpus.push_back(std::move(gpu));
    out.modes[address] = address == kGpu ? policy::Mode::host : policy::Mode::passthrough;
  }
  vfio::Rebind rebind;
  rebind.devices = {kGpu};
  rebind.members = {{.address = kGpu,
                     .role = vfio::MemberRole::accelerator,
                     .driver_before = "vfio-pci",
                     .driver_after = "nvidia"}};
  rebind.steps = {{.kind = vfio::Step::Kind::unbind, .address = kGpu, .value = "vfio-pci"}};
  out.plan.unbound.plan.rebinds = {std::move(rebind)};
  out.conditions = conditions_of(out.plan);
  out.now = kNow;
  return out;
}

/// The same after status.json of generation 5 had the withdrawals.
RoundSnapshot unavailable_change() {
  RoundSnapshot out = planned_change();
  out.memory.status.published = reconcile(out).status;
  out.memory.status.generation = 5;
  out.memory.status.unavailable_since = 5;
  out.stage = Stage::published;
  out.plugin.runs = true;
  return out;
}

TEST(HostdReconcile, WithdrawsADeviceBeforeAnythingElse) {
  const ReconcileResult result = reconcile(planned_change());
  EXPECT_EQ(result.action, Action::observe_plugin);
  ASSERT_TRUE(result.status);
  EXPECT_EQ(result.status->phase, api::NodePhase::applying);
  EXPECT_EQ(result.status->desired_generation(), 7U);
  ASSERT_EQ(result.status->unavailable.size(), 1U);
  EXPECT_EQ(result.status->unavailable[0].id, kGpuId);
  ASSERT_EQ(result.status->accelerators.size(), 2U);
  EXPECT_EQ(result.status->accelerators[0].state, api::GpuState::pending);
  EXPECT_EQ(result.status->accelerators[1].state, api::GpuState::ready);
}

TEST(HostdReconcile, PublishesNoWithdrawalThatThePluginHasAnswered) {
  RoundSnapshot snapshot = unavailable_change();
  snapshot.stage = Stage::planned;
  snapshot.plugin.state_generation = 5;
  EXPECT_FALSE(reconcile(snapshot).status);
  snapshot.plugin.state_generation = 4;
  EXPECT_TRUE(reconcile(snapshot).status);
}

TEST(HostdReconcile, AppliesAnEmptyPlanOnlyForLeftovers) {
  RoundSnapshot snapshot = planned_change();
  snapshot.plan = {};
  snapshot.conditions.clear();
  EXPECT_EQ(reconcile(snapshot).action, Action::scan_result);
  snapshot.leftovers = true;
  EXPECT_EQ(reconcile(snapshot).action, Action::apply) << "a killed run left a stopped service";
  EXPECT_FALSE(reconcile(snapshot).status);
}

TEST(HostdReconcile, WaitsForThePluginUntilItsDeadline) {
  struct Row {
    const char* name;
    bool runs;
    std::optional<std::uint64_t> answered;
    std::optional<Moment> asked_at;
    Action action;
  };
  const std::vector<Row> rows = {
      {"it was asked just now", true, std::nullopt, std::nullopt, Action::end},
      {"it has answered an earlier status", true, 4, kNow - 29s, Action::end},
      {"its time is over", true, 4, kNow - 30s, Action::apply},
      {"its file is unreadable, and its time is over", true, std::nullopt, kNow - 30s, Action::apply},
      {"it has answered", true, 5, kNow - 1s, Action::find_pods},
      {"there is no plugin", false, std::nullopt, std::nullopt, Action::apply},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    RoundSnapshot snapshot = unavailable_change();
    snapshot.plugin.runs = row.runs;
    snapshot.plugin.state_generation = row.answered;
    snapshot.memory.attempt.asked_at = row.asked_at;
    const ReconcileResult result = reconcile(snapshot);
    EXPECT_EQ(result.action, row.action);
    EXPECT_EQ(result.status.has_value(), row.action == Action::apply);
    if (row.action != Action::end) {
      EXPECT_THAT(result.asked, ElementsAre(kGpuId));
      continue;
    }
    EXPECT_EQ(result.round.phase, api::NodePhase::applying);
    EXPECT_TRUE(result.round.unfinished);
    const Moment asked_at = row.asked_at.value_or(kNow);
    EXPECT_EQ(result.memory.asked_at, asked_at);
    EXPECT_EQ(result.round.again, asked_at + 30s);
  }
}

TEST(HostdReconcile, RefusesADeviceThatAPodHas) {
  RoundSnapshot snapshot = unavailable_change();
  snapshot.stage = Stage::checked;
  EXPECT_EQ(reconcile(snapshot).action, Action::apply) << "the plugin lists no device any more";
  snapshot.pods[kGpu] = {pod(kSomePod)};
  const ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.action, Action::roll_back) << "no change is left";
  const GpuCondition& condition = result.conditions.at(kGpu);
  EXPECT_EQ(condition.state, api::GpuState::blocked);
  EXPECT_THAT(condition.reasons, ElementsAre(HasSubstr("0000:05:00.0 is in use: pod (by the kubelet)")));
  EXPECT_EQ(condition.hint, "delete the pod first");
}

TEST(HostdReconcile, AppliesTheRestOfAChange) {
  RoundSnapshot snapshot = unavailable_change();
  snapshot.stage = Stage::checked;
  snapshot.conditions[kOther] = condition_with(api::GpuState::pending);
  snapshot.pods[kGpu] = {pod(kSomePod)};
  const ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.action, Action::apply);
  EXPECT_EQ(result.conditions.at(kGpu).state, api::GpuState::blocked);
  ASSERT_TRUE(result.status);
  EXPECT_EQ(result.status->accelerators.at(0).state, api::GpuState::pending) << "as in the plan";
}

// -- the attempt --

TEST(HostdReconcile, JudgesAnAttempt) {
  struct Row {
    const char* name;
    /// Changes an attempt that has succeeded. With an error the attempt could not begin.
    std::function<void(RoundSnapshot&, NodeOutcome&)> change;
    Action action;
    bool in_vain;
    const char* error;  ///< a part of its message; empty: there is none
  };
  const auto result_of_first = [](vfio::RebindResult::Status status) {
    vfio::RebindResult result;
    result.status = status;
    result.devices = {kGpu};
    result.refusal.reasons = {"it is in use"};
    return result;
  };
  const std::vector<Row> rows = {
      {"it has succeeded", [](RoundSnapshot&, NodeOutcome&) {}, Action::plan_again, false, ""},
      {"a second plan writes nothing", [](RoundSnapshot& now, NodeOutcome&) { now.still_writes = false; },
       Action::scan_result, false, ""},
      {"a second plan still writes", [](RoundSnapshot& now, NodeOutcome&) { now.still_writes = true; },
       Action::scan_result, true, "every step succeeded, but the host is not in the desired state"},
      {"it could not begin",
       [](RoundSnapshot& now, NodeOutcome&) { now.error = error_of(Errc::unsupported); }, Action::scan_result,
       true, "it is so"},
      {"a stage could not begin",
       [](RoundSnapshot&, NodeOutcome& outcome) { outcome.error = error_of(Errc::failed); },
       Action::scan_result, true, "it is so"},
      {"a service does not start again",
       [](RoundSnapshot&, NodeOutcome& outcome) { outcome.bound.errors = {error_of(Errc::failed)}; },
       Action::scan_result, true, "it is so"},
      {"a GPU has failed",
       [&](RoundSnapshot&, NodeOutcome& outcome) {
         outcome.unbound.results = {result_of_first(vfio::RebindResult::Status::failed)};
       },
       Action::scan_result, true, ""},
      {"a GPU came into use",
       [&](RoundSnapshot&, NodeOutcome& outcome) {
         outcome.unbound.results = {result_of_first(vfio::RebindResult::Status::refused)};
       },
       Action::scan_result, true, ""},
      {"a GPU is in use as before",
       [&](RoundSnapshot& now, NodeOutcome& outcome) {
         now.conditions[kGpu] = blocked_by(process(412));
         outcome.unbound.results = {result_of_first(vfio::RebindResult::Status::refused)};
       },
       Action::scan_result, false, ""},
      {"it only resumed services", [](RoundSnapshot& now, NodeOutcome&) { now.plan = {}; },
       Action::scan_result, false, ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    RoundSnapshot snapshot = unavailable_change();
    snapshot.stage = Stage::attempted;
    NodeOutcome outcome;
    row.change(snapshot, outcome);
    if (!snapshot.error) snapshot.outcome = std::move(outcome);
    const ReconcileResult result = reconcile(snapshot);
    EXPECT_EQ(result.action, row.action);
    EXPECT_EQ(result.in_vain, row.in_vain);
    EXPECT_THAT(result.error.value_or(Error()).message, HasSubstr(row.error));
    EXPECT_EQ(result.error.has_value(), !std::string_view(row.error).empty());
  }
}

TEST(HostdReconcile, KeepsTheFirstReasonOfAGpuThatStaysBlocked) {
  RoundSnapshot snapshot = unavailable_change();
  snapshot.stage = Stage::attempted;
  snapshot.conditions[kGpu] = blocked_by(process(412));
  vfio::RebindResult refused;
  refused.status = vfio::RebindResult::Status::refused;
  refused.devices = {kGpu};
  refused.refusal.reasons = {"the plugin lists it"};
  NodeOutcome outcome;
  outcome.unbound.results = {refused};
  snapshot.outcome = std::move(outcome);
  EXPECT_THAT(reconcile(snapshot).conditions.at(kGpu).reasons, ElementsAre(HasSubstr("worker (pid 412)")));
}

// -- the end of a round --

RoundSnapshot finished() {
  RoundSnapshot out = planned_change();
  out.stage = Stage::finished;
  out.plan = {};
  out.conditions.clear();
  out.ends_are_reported = true;
  out.memory.attempt.failures = 3;
  return out;
}

TEST(HostdReconcile, ReportsTheResultAndTheTimeOfTheNextRound) {
  struct Row {
    const char* name;
    std::function<void(RoundSnapshot&)> change;  ///< of a node that is ready, after three failures
    api::NodePhase phase;
    ExitStatus status;
    std::optional<Seconds> again;
    unsigned failures;
  };
  const std::vector<Row> rows = {
      {"all is as desired", [](RoundSnapshot&) {}, api::NodePhase::ready, ExitStatus::done, std::nullopt, 0},
      {"a process uses a GPU", [](RoundSnapshot& now) { now.conditions[kGpu] = blocked_by(process(412)); },
       api::NodePhase::blocked, ExitStatus::refused, 300s, 0},
      {"its end will not be reported",
       [](RoundSnapshot& now) {
         now.conditions[kGpu] = blocked_by(process(412));
         now.ends_are_reported = false;
       },
       api::NodePhase::blocked, ExitStatus::refused, 10s, 4},
      {"a pod uses it, and the plugin does not list the device",
       [](RoundSnapshot& now) { now.conditions[kGpu] = blocked_by(pod("default/a")); },
       api::NodePhase::blocked, ExitStatus::refused, 10s, 4},
      {"a disk is attached to it",
       [](RoundSnapshot& now) {
         vfio::DeviceUser disk = process(std::nullopt);
         disk.kind = vfio::DeviceUser::Kind::attached;
         now.conditions[kGpu] = blocked_by(disk);
       },
       api::NodePhase::blocked, ExitStatus::refused, 80s, 4},
      {"a pod uses it, and another GPU does not work",
       [](RoundSnapshot& now) {
         now.conditions[kGpu] = blocked_by(pod("default/a"));
         now.conditions[kOther] = condition_with(api::GpuState::blocked);
       },
       api::NodePhase::blocked, ExitStatus::refused, 10s, 4},
      {"a pod uses it, and a disk is attached to another GPU",
       [](RoundSnapshot& now) {
         vfio::DeviceUser disk = process(std::nullopt);
         disk.kind = vfio::DeviceUser::Kind::attached;
         now.conditions[kGpu] = blocked_by(pod("default/a"));
         now.conditions[kOther] = blocked_by(disk);
       },
       api::NodePhase::blocked, ExitStatus::refused, 80s, 4},
      {"it is blocked for another reason",
       [](RoundSnapshot& now) { now.conditions[kGpu] = condition_with(api::GpuState::blocked); },
       api::NodePhase::blocked, ExitStatus::refused, 80s, 4},
      {"the attempt was in vain",
       [](RoundSnapshot& now) {
         now.conditions[kGpu] = blocked_by(process(412));
         now.in_vain = true;
       },
       api::NodePhase::blocked, ExitStatus::refused, 80s, 4},
      {"a GPU has failed",
       [](RoundSnapshot& now) { now.conditions[kGpu] = condition_with(api::GpuState::failed); },
       api::NodePhase::failed, ExitStatus::failed, 80s, 4},
      {"the attempt has failed", [](RoundSnapshot& now) { now.error = error_of(Errc::invalid_config); },
       api::NodePhase::failed, ExitStatus::usage, 80s, 4},
      {"the longest back-off",
       [](RoundSnapshot& now) {
         now.memory.attempt.failures = 9;
         now.error = error_of(Errc::failed);
       },
       api::NodePhase::failed, ExitStatus::failed, 300s, 10},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    RoundSnapshot snapshot = finished();
    row.change(snapshot);
    const ReconcileResult result = reconcile(snapshot);
    EXPECT_EQ(result.action, Action::end);
    EXPECT_EQ(result.round.phase, row.phase);
    EXPECT_EQ(result.round.status, row.status);
    EXPECT_EQ(result.round.again, row.again ? std::optional(kNow + *row.again) : std::nullopt);
    EXPECT_EQ(result.memory.failures, row.failures);
    ASSERT_TRUE(result.status);
    EXPECT_EQ(result.status->phase, row.phase);
    EXPECT_EQ(result.status->error.has_value(), snapshot.error.has_value());
  }
}

TEST(HostdReconcile, HasTheEndsOfDeviceUsersWatched) {
  RoundSnapshot snapshot = finished();
  snapshot.ends_are_reported.reset();
  EXPECT_EQ(reconcile(snapshot).action, Action::end) << "no GPU is blocked";
  snapshot.conditions[kGpu] = blocked_by(process(412));
  const ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.action, Action::watch_ends);
  EXPECT_THAT(result.round.processes, ElementsAre(412));
  EXPECT_EQ(result.memory.failures, 3U) << "the round is not over";
  snapshot.in_vain = true;
  EXPECT_EQ(reconcile(snapshot).action, Action::end) << "the back-off ignores them";
}

TEST(HostdReconcile, KeepsTheDeviceOfAPodUnavailable) {
  RoundSnapshot snapshot = finished();
  snapshot.conditions[kGpu] = blocked_by(pod(kSomePod));
  snapshot.plugin.listed.devices = {
      {.resource = "nvidia.com/T4", .id = kGpuId, .iommu_group = 5, .allocated = true}};
  EXPECT_THAT(reconcile(snapshot).status.value_or(api::HostStatus()).unavailable, IsEmpty())
      << "no plugin runs";
  snapshot.plugin.runs = true;
  const ReconcileResult result = reconcile(snapshot);
  ASSERT_EQ(result.status.value_or(api::HostStatus()).unavailable.size(), 1U);
  EXPECT_EQ(result.round.again, kNow + 300s) << "the plugin reports the end of the pod";
}

TEST(HostdReconcile, AdvisesToLookAfterAPluginThatDoesNotAnswer) {
  RoundSnapshot snapshot = finished();
  snapshot.conditions[kGpu] = blocked_by(pod(kAnyPod));
  EXPECT_THAT(reconcile(snapshot).conditions.at(kGpu).hint, HasSubstr("`ferry plugin`"));
}

// -- GPUs for DRA --

/// DRA is to get the first GPU, and the plugin is asked to withdraw it.
RoundSnapshot on_the_way() {
  RoundSnapshot out = finished();
  out.allocations.conditions[kGpu] = condition_with(api::GpuState::pending);
  out.allocations.unavailable = {{.id = kGpuId, .reason = "for claims"}};
  return out;
}

TEST(HostdReconcile, LooksSoonWhileThePluginWithdrawsAGpuForDra) {
  const ReconcileResult result = reconcile(on_the_way());
  EXPECT_EQ(result.action, Action::end);
  EXPECT_EQ(result.round.phase, api::NodePhase::applying);
  EXPECT_TRUE(result.round.unfinished);
  EXPECT_EQ(result.round.again, kNow + kPluginPollPause);
  const api::HostStatus status = result.status.value_or(api::HostStatus());
  EXPECT_EQ(status.accelerators.at(0).state, api::GpuState::pending);
  ASSERT_EQ(status.unavailable.size(), 1U);
  EXPECT_EQ(status.unavailable[0].reason, "for claims");
}

TEST(HostdReconcile, KeepsItsBackOffWhileThePluginWithdrawsAGpuForDra) {
  RoundSnapshot snapshot = on_the_way();
  snapshot.error = error_of(Errc::failed);
  snapshot.in_vain = true;
  const ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.round.phase, api::NodePhase::failed);
  EXPECT_EQ(result.round.again, kNow + 80s);
}

TEST(HostdReconcile, KeepsTheGpusOfDraUnavailableInAllStages) {
  RoundSnapshot snapshot = planned_change();
  snapshot.allocations.dra = {kOther};
  snapshot.allocations.unavailable = {{.id = "0000:06:00.0", .reason = "for claims"}};
  for (const Stage stage : {Stage::idle, Stage::failed, Stage::planned, Stage::finished}) {
    snapshot.stage = stage;
    snapshot.obstacle = {.error = error_of(Errc::refused), .ends_unavailability = true};
    const api::HostStatus status = reconcile(snapshot).status.value_or(api::HostStatus());
    EXPECT_THAT(ids_of(status.unavailable), testing::Contains("0000:06:00.0")) << static_cast<int>(stage);
    EXPECT_EQ(status.accelerators.at(1).allocation, api::Allocation::dra);
  }
}

TEST(HostdReconcile, KeepsSharedSwitchesUnavailableInAllStages) {
  const vfio::PciAddress shared{.domain = 0, .bus = 7, .device = 0, .function = 0};
  RoundSnapshot snapshot = planned_change();
  snapshot.node.findings[shared] = {
      {.rule = vfio::RuleId::fabric_switch, .about = shared, .text = "the manager has it"}};
  snapshot.node.findings[kOther] = snapshot.node.findings[shared];  // a GPU of its unit
  snapshot.ends_are_reported = false;
  for (const Stage stage : {Stage::idle, Stage::failed, Stage::planned, Stage::finished}) {
    snapshot.stage = stage;
    snapshot.obstacle = {.error = error_of(Errc::refused), .ends_unavailability = true};
    const api::HostStatus status = reconcile(snapshot).status.value_or(api::HostStatus());
    EXPECT_THAT(ids_of(status.unavailable), testing::Contains("0000:07:00.0")) << static_cast<int>(stage);
    EXPECT_THAT(ids_of(status.unavailable), testing::Not(testing::Contains("0000:06:00.0")));
  }
}

TEST(HostdReconcile, BlocksTheNodeForAGpuThatAClaimHas) {
  RoundSnapshot snapshot = finished();
  snapshot.allocations.dra = {kGpu};
  snapshot.allocations.conditions[kGpu] = condition_with(api::GpuState::blocked);
  snapshot.ends_are_reported = false;
  const ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.round.phase, api::NodePhase::blocked);
  EXPECT_TRUE(result.round.again) << "no event tells that the claim ends";
  const api::HostStatus status = result.status.value_or(api::HostStatus());
  EXPECT_EQ(status.accelerators.at(0).allocation, api::Allocation::dra);
  EXPECT_EQ(status.accelerators.at(0).reason, "a reason");
}

// -- errors --

TEST(HostdReconcile, ReportsAnErrorThatKeepsAChangeFromBeginning) {
  struct Row {
    const char* name;
    Obstacle obstacle;
    api::NodePhase phase;
    ExitStatus status;
    std::size_t unavailable;
  };
  const std::vector<Row> rows = {
      {"desired.json is faulty",
       {.error = error_of(Errc::invalid_config)},
       api::NodePhase::failed,
       ExitStatus::usage,
       1},
      {"the policy asks for the impossible",
       {.error = error_of(Errc::refused), .ends_unavailability = true},
       api::NodePhase::blocked,
       ExitStatus::refused,
       0},
      {"another process has the lock",
       {.error = error_of(Errc::failed), .of_the_lock = true},
       api::NodePhase::applying,
       ExitStatus::failed,
       1},
      {"the lock cannot be opened",
       {.error = error_of(Errc::unsupported), .of_the_lock = true},
       api::NodePhase::failed,
       ExitStatus::failed,
       1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    RoundSnapshot snapshot = finished();
    snapshot.stage = Stage::failed;
    snapshot.unavailable = {{.id = kGpuId, .reason = "a pod has it"}};
    snapshot.obstacle = row.obstacle;
    snapshot.memory.attempt.asked_at = kNow - 5s;
    const ReconcileResult result = reconcile(snapshot);
    EXPECT_EQ(result.action, Action::end);
    EXPECT_EQ(result.round.phase, row.phase);
    EXPECT_EQ(result.round.status, row.status);
    EXPECT_EQ(result.round.again, kNow + 80s);
    EXPECT_EQ(result.memory.failures, 4U);
    EXPECT_EQ(result.memory.asked_at.has_value(), !row.obstacle.of_the_lock);
    ASSERT_TRUE(result.status);
    EXPECT_EQ(result.status->unavailable.size(), row.unavailable);
    EXPECT_EQ(result.status->error.value_or(api::StatusError()).message, "it is so");
  }
}

TEST(HostdReconcile, ReportsTheAcceleratorsAsBeforeIfTheHostCannotBeScanned) {
  RoundSnapshot snapshot;
  snapshot.stage = Stage::failed;
  snapshot.is_scanned = false;
  snapshot.obstacle = {.error = error_of(Errc::malformed_host)};
  EXPECT_THAT(reconcile(snapshot).status.value_or(api::HostStatus()).accelerators, IsEmpty());
  snapshot.memory.status.published = reconcile(planned_change()).status;
  EXPECT_THAT(reconcile(snapshot).status.value_or(api::HostStatus()).accelerators, testing::SizeIs(2));
}

TEST(HostdReconcile, EndsARowOfFailuresWithoutADesiredState) {
  RoundSnapshot snapshot = finished();
  snapshot.stage = Stage::idle;
  snapshot.desired.reset();
  snapshot.modes.clear();
  const ReconcileResult result = reconcile(snapshot);
  EXPECT_EQ(result.action, Action::end);
  EXPECT_EQ(result.round.phase, api::NodePhase::idle);
  EXPECT_FALSE(result.round.again);
  EXPECT_EQ(result.memory.failures, 0U);
  EXPECT_EQ(result.status.value_or(api::HostStatus()).accelerators.at(0).state, api::GpuState::unmanaged);
}

}  // namespace
}  // namespace ferry::host
