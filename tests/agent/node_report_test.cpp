// SPDX-License-Identifier: Apache-2.0
#include "agent/node_report.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/agent/snapshots.h"

namespace ferry::agent {
namespace {

using std::chrono::seconds;
using test::answer;
using test::gpu;
using test::node_with;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

DesiredState desired_state_for(Labels labels) {
  return resolve_desired_state(node_with(std::move(labels)), test::usual_configs(), {});
}
DesiredState vgpu_desired() {
  return desired_state_for({{policy::kVgpuConfigLabel, "render-mix"}});
}
DesiredState passthrough_desired() {
  return desired_state_for({{api::kWorkloadLabel, "vm-passthrough"}});
}
DesiredState standby() {
  DesiredState desired_state = vgpu_desired();
  desired_state.kind = DesiredState::Kind::standby;
  desired_state.of_vgpu_config = false;
  desired_state.reason = "others serve this node";
  return desired_state;
}

HostSide refused(const DesiredState& desired_state) {
  api::AcceleratorStatus busy = gpu(policy::Mode::host, policy::Mode::passthrough, api::GpuState::blocked);
  busy.reason = "in use";
  busy.hint = "stop the VM";
  busy.users = {{.kind = "vm", .name = "guest-7", .pid = 4711}};
  return answer(desired_state, api::NodePhase::blocked,
                {gpu(policy::Mode::passthrough, policy::Mode::passthrough), busy});
}

// A label as "key=value", "key-" where it shall be gone, "" where it is not ours to say.
std::string change(const LabelChanges& changes, const char* key) {
  const auto found = changes.find(key);
  if (found == changes.end()) return {};
  return found->second ? *found->second : "-";
}

struct Answer {
  const char* name;
  DesiredState desired_state;
  HostSide host;
  const char* state;
  const char* vgpu_state;
};

void PrintTo(const Answer& row, std::ostream* out) {
  *out << row.name;
}

HostSide of_generation(const DesiredState& desired_state, std::uint64_t seen) {
  HostSide host = answer(desired_state, api::NodePhase::ready);
  if (host.status) host.status->desired->generation = seen;
  return host;
}
HostSide unanswered(const DesiredState& desired_state, seconds silent) {
  HostSide host;
  host.written = test::written(desired_state);
  host.silent = silent;
  return host;
}

class AnswerTable : public testing::TestWithParam<Answer> {};

TEST_P(AnswerTable, BecomesLabels) {
  const Answer& row = GetParam();
  const NodeReport report = node_report(row.desired_state, row.host);
  EXPECT_EQ(change(report.labels, api::kStateLabel), row.state);
  EXPECT_EQ(change(report.labels, api::kVgpuStateLabel), row.vgpu_state);
  EXPECT_EQ(change(report.annotations, api::kErrorAnnotation), report.trouble.empty() ? "-" : report.trouble);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, AnswerTable,
    testing::Values(
        Answer{"NotWrittenYet", vgpu_desired(), {}, "pending", "pending"},
        Answer{"NotTakenUp", vgpu_desired(), unanswered(vgpu_desired(), seconds(30)), "pending", "pending"},
        Answer{"NeverTakenUp", vgpu_desired(), unanswered(vgpu_desired(), seconds(31)), "pending", "pending"},
        Answer{"AnswerToAnEarlierOne", vgpu_desired(), of_generation(vgpu_desired(), 6), "pending",
               "pending"},
        Answer{"AnswerToAnotherDesiredState", vgpu_desired(),
               answer(passthrough_desired(), api::NodePhase::ready), "pending", "pending"},
        Answer{"Applying", vgpu_desired(), answer(vgpu_desired(), api::NodePhase::applying), "applying",
               "pending"},
        Answer{"AsWanted", vgpu_desired(), answer(vgpu_desired(), api::NodePhase::ready), "ready", "success"},
        Answer{"Refused", vgpu_desired(), refused(vgpu_desired()), "blocked", "failed"},
        Answer{"Failed", vgpu_desired(), answer(vgpu_desired(), api::NodePhase::failed), "failed", "failed"},
        Answer{"OfAMoment", vgpu_desired(), answer(vgpu_desired(), api::NodePhase::idle), "pending",
               "pending"},
        Answer{"Typo", desired_state_for({{policy::kVgpuConfigLabel, "typo"}}),
               answer(vgpu_desired(), api::NodePhase::ready), "failed", "failed"},
        Answer{"TypoOfAPolicy", desired_state_for({{api::kPolicyLabel, "typo"}}), {}, "failed", ""},
        Answer{"NotOfVgpus", passthrough_desired(),
               answer(passthrough_desired(), api::NodePhase::ready,
                      {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}),
               "ready", "-"},
        Answer{"OnANodeWithoutAGpu", passthrough_desired(),
               answer(passthrough_desired(), api::NodePhase::ready), "idle", "-"},
        Answer{"Nothing", desired_state_for({}), answer(vgpu_desired(), api::NodePhase::ready), "idle", ""},
        Answer{"Standby", standby(), answer(vgpu_desired(), api::NodePhase::ready), "standby", ""}),
    [](const auto& row) { return row.param.name; });

TEST(ChangeOutcome, OfAFailureIsKnownWhileHostdSpeaks) {
  HostSide host = answer(vgpu_desired(), api::NodePhase::failed);
  EXPECT_EQ(change_outcome(host), ChangeOutcome::failed);
  host.hostd_speaks = false;
  EXPECT_EQ(change_outcome(host), ChangeOutcome::open) << "hostd tries again when it starts";
  host.silent = kChangePatience + seconds(1);
  EXPECT_EQ(change_outcome(host), ChangeOutcome::failed) << "nobody waits for ever";
}

TEST(ChangeOutcome, OfWhatIsDoneOrInUseOutlivesHostd) {
  for (const auto& [phase, outcome] : {std::pair{api::NodePhase::ready, ChangeOutcome::done},
                                       std::pair{api::NodePhase::blocked, ChangeOutcome::blocked}}) {
    HostSide host = answer(vgpu_desired(), phase);
    host.hostd_speaks = false;
    EXPECT_EQ(change_outcome(host), outcome);
  }
}

TEST(NodeReport, NamesDeviceUserAndHint) {
  const NodeReport report = node_report(passthrough_desired(), refused(passthrough_desired()));
  EXPECT_EQ(report.trouble, "0000:02:00.0 (NVIDIA L40S): in use; users: vm guest-7 (pid 4711); stop the VM");
  HostSide host = answer(passthrough_desired(), api::NodePhase::failed,
                         {gpu(policy::Mode::host, {}, api::GpuState::failed)});
  if (host.status) {
    host.status->error = api::StatusError{"this host has no active IOMMU", "intel_iommu=on"};
    host.status->accelerators.front().model.clear();
  }
  EXPECT_EQ(node_report(passthrough_desired(), host).trouble,
            "this host has no active IOMMU; intel_iommu=on; 0000:02:00.0: failed");
}

TEST(NodeReport, NamesADeviceUserOnce) {
  HostSide host = refused(passthrough_desired());
  ASSERT_TRUE(host.status);
  api::AcceleratorStatus& card = host.status->accelerators.back();
  const std::string reason =
      "0000:02:00.0 is in use: VM guest-7 (pid 471) holds /dev/vfio/12; 0000:02:00.0 is in use: pod a/vm "
      "holds "
      "nvidia.com/L40S (allocated by the kubelet)";
  card.reason = reason;
  card.users = {{.kind = "virtual_machine", .name = "guest-7", .pid = 471}, {.kind = "pod", .name = "a/vm"}};
  const std::string whole = "0000:02:00.0 (NVIDIA L40S): " + reason;
  EXPECT_EQ(node_report(passthrough_desired(), host).trouble, whole + "; stop the VM");
  card.users.push_back({.kind = "process", .name = "guest-7", .pid = 47});
  card.users.push_back({.kind = "pod", .name = "a/v"});
  EXPECT_EQ(node_report(passthrough_desired(), host).trouble,
            whole + "; users: process guest-7 (pid 47), pod a/v; stop the VM");
}

// hostd runs, so nobody has to look whether it does.
TEST(NodeReport, SaysWhyHostdCannotReadTheDesiredState) {
  HostSide host = unanswered(vgpu_desired(), seconds(31));
  host.status = api::HostStatus{};
  host.status->phase = api::NodePhase::failed;
  host.status->error = api::StatusError{"/var/lib/ferry/desired.json: expected 1, found 2",
                                        "is hostd of the agent's version?"};
  const NodeReport report = node_report(vgpu_desired(), host);
  EXPECT_EQ(report.condition, NodeCondition::failed);
  EXPECT_EQ(report.trouble,
            "/var/lib/ferry/desired.json: expected 1, found 2; is hostd of the agent's version?");
  EXPECT_EQ(change(report.labels, api::kVgpuStateLabel), "failed");
  host.silent = seconds(30);
  EXPECT_EQ(node_report(vgpu_desired(), host).condition, NodeCondition::pending)
      << "it may be of the one before";
}

TEST(NodeReport, SaysThatWhatIsAskedForCannotBeWritten) {
  HostSide host = answer(passthrough_desired(), api::NodePhase::ready);
  host.unwritable = "no space";
  EXPECT_EQ(node_report(vgpu_desired(), host).trouble, "no space");
  EXPECT_EQ(node_report(vgpu_desired(), host).condition, NodeCondition::failed);
  EXPECT_EQ(node_report(standby(), host).trouble, "others serve this node; no space");
  EXPECT_EQ(node_report(desired_state_for({}), host).trouble, "no space");
}

TEST(NodeReport, SaysThatNobodyAnswers) {
  HostSide host = unanswered(vgpu_desired(), seconds(31));
  host.unreadable = "/run/ferry/status.json: no phase";
  EXPECT_EQ(
      node_report(vgpu_desired(), host).trouble,
      "ferry hostd has not taken up policy render-mix for more than 30 seconds; /run/ferry/status.json: "
      "no phase; does it run on this node?");
  host = answer(vgpu_desired(), api::NodePhase::applying);
  host.silent = seconds(900);
  EXPECT_THAT(node_report(vgpu_desired(), host).trouble, IsEmpty());
  host.silent = seconds(901);
  EXPECT_EQ(node_report(vgpu_desired(), host).trouble,
            "ferry hostd has said nothing for more than 15 minutes; does it run on this node?");
}

TEST(NodeReport, SaysNothingForAHostdThatIsGone) {
  for (const api::NodePhase phase : {api::NodePhase::ready, api::NodePhase::applying, api::NodePhase::blocked,
                                     api::NodePhase::failed, api::NodePhase::idle}) {
    HostSide host = answer(vgpu_desired(), phase);
    const NodeReport before = node_report(vgpu_desired(), host);
    host.hostd_down = seconds(600);
    EXPECT_EQ(node_report(vgpu_desired(), host).condition, before.condition);
    host.hostd_down = seconds(601);
    const NodeReport report = node_report(vgpu_desired(), host);
    EXPECT_EQ(change(report.labels, api::kStateLabel), "unknown");
    EXPECT_EQ(change(report.labels, api::kVgpuStateLabel), phase == api::NodePhase::ready ? "success" : "")
        << "what was done then stays so";
    EXPECT_EQ(report.trouble,
              "ferry hostd has not run on this node for more than 10 minutes, and the state of its GPUs is "
              "not known; `systemctl status ferry-hostd` on the node, or the log of its container, says why");
  }
}

TEST(NodeReport, OfWhatHostdHasNoPartInStandsWithoutIt) {
  HostSide host = answer(passthrough_desired(), api::NodePhase::ready);
  host.hostd_down = seconds(86400);
  EXPECT_EQ(node_report(standby(), host).condition, NodeCondition::standby);
  EXPECT_EQ(node_report(desired_state_for({}), host).condition, NodeCondition::idle);
  EXPECT_EQ(node_report(vgpu_desired(), host).condition, NodeCondition::pending)
      << "it has not taken that up";
  host.unwritable = "no space";
  EXPECT_EQ(node_report(passthrough_desired(), host).condition, NodeCondition::failed);
}

TEST(NodeReport, OfMissingGpusNamesNvidiaOnlyIfThePolicyNamesNoOther) {
  DesiredState desired_state = passthrough_desired();
  const auto trouble = [&desired_state] {
    return node_report(desired_state, answer(desired_state, api::NodePhase::ready)).trouble;
  };
  EXPECT_THAT(trouble(), HasSubstr("this node has no GPU of NVIDIA; see whether `lspci`"));
  policy::PolicyItem& item = desired_state.desired_policy.policy.items.at(0);
  item.selection.vendors = {0x1002};
  EXPECT_THAT(trouble(), HasSubstr("this node has none of the GPUs that it names; see whether `lspci`"));
  item.selection = {};
  item.selection.addresses.emplace_back();
  EXPECT_THAT(trouble(), HasSubstr("none of the GPUs that it names"));
  item.selection = {};
  item.gpus.filters.emplace_back().vendor = 0x8086;
  EXPECT_THAT(trouble(), HasSubstr("none of the GPUs that it names"));
}

TEST(NodeReport, WaitsForNobodyWhoHasNotBeenAsked) {
  HostSide host = answer(passthrough_desired(), api::NodePhase::ready,
                         {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  host.silent = seconds(86400);
  EXPECT_FALSE(is_silent(vgpu_desired(), host));
  EXPECT_THAT(node_report(passthrough_desired(), host).trouble, IsEmpty());
}

TEST(NodeReport, IsOneLineThatEnds) {
  EXPECT_EQ(one_line("a\nb\tc"), "a b c");
  EXPECT_EQ(one_line("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(one_line("abcdefghi", 8), "abcde…");
  EXPECT_EQ(one_line("abcd\xc3\xa4\xc3\xa4\xc3\xa4", 8), "abcd…") << "not within a character";
  HostSide host = refused(passthrough_desired());
  if (host.status) host.status->accelerators[1].reason = std::string(2000, 'x');
  EXPECT_THAT(node_report(passthrough_desired(), host).trouble, SizeIs(kMostReported));
}

TEST(NodeReport, HasLegalLabelValues) {
  for (int i = 0; i <= static_cast<int>(NodeCondition::standby); ++i)
    EXPECT_THAT(std::string(text(static_cast<NodeCondition>(i))),
                testing::MatchesRegex("[a-z][a-z_]{0,61}[a-z]"));
}

// ---- events

std::vector<std::string> events(const policy::NodeObject& node, const DesiredState& desired_state,
                                const HostSide& host, const std::set<std::string>& recorded_before = {}) {
  std::vector<std::string> out;
  for (const NodeEvent& event :
       node_events(node, desired_state, host, node_report(desired_state, host), recorded_before))
    out.push_back((event.warning ? "Warning " : "Normal ") + event.reason + ": " + event.message);
  return out;
}

policy::NodeObject shows(const char* state, const std::string& error = "") {
  policy::NodeObject node = node_with({{api::kStateLabel, state}});
  if (!error.empty()) node.annotations[api::kErrorAnnotation] = error;
  return node;
}

TEST(NodeEvents, AreOfTransitionsAlone) {
  const DesiredState desired_state = vgpu_desired();
  const std::string by = "policy render-mix (label nvidia.com/vgpu.config=render-mix)";
  EXPECT_THAT(events(shows("pending"), desired_state, answer(desired_state, api::NodePhase::applying)),
              ElementsAre("Normal Applying: the GPUs are being changed to " + by));
  EXPECT_THAT(events(shows("applying"), desired_state, answer(desired_state, api::NodePhase::applying)),
              IsEmpty());
  EXPECT_THAT(events(shows("applying"), desired_state, answer(desired_state, api::NodePhase::ready)),
              ElementsAre("Normal Ready: the GPUs match " + by));
  EXPECT_THAT(events(shows("ready"), desired_state, answer(desired_state, api::NodePhase::ready)), IsEmpty());
  EXPECT_THAT(
      events(shows("ready", "left over"), desired_state, answer(desired_state, api::NodePhase::ready)),
      SizeIs(1));
  EXPECT_THAT(events(shows("ready"), desired_state, {}), IsEmpty()) << "pending is no news";
  EXPECT_THAT(events(shows("ready"), desired_state_for({}), {}),
              ElementsAre("Normal Idle: the GPUs are left as they are: no label and no default selects "
                          "a policy for this node"));
  EXPECT_THAT(events(shows("ready"), standby(), {}), ElementsAre("Warning Standby: others serve this node"));
}

TEST(NodeEvents, OfARefusalNameEachAcceleratorOnce) {
  const DesiredState desired_state = passthrough_desired();
  HostSide host = refused(desired_state);
  const std::string busy = "0000:02:00.0 (NVIDIA L40S): in use; users: vm guest-7 (pid 4711); stop the VM";
  EXPECT_THAT(events(shows("applying"), desired_state, host), ElementsAre("Warning Blocked: " + busy));
  EXPECT_THAT(events(shows("blocked", busy), desired_state, host), IsEmpty());
  EXPECT_THAT(events(shows("blocked", "another"), desired_state, host), SizeIs(1));
  if (host.status) host.status->accelerators.resize(12, host.status->accelerators.back());
  const auto many = events(shows("applying"), desired_state, host);
  EXPECT_THAT(many, SizeIs(8));
  EXPECT_EQ(many.back(), "Warning Blocked: and 4 more; `ferry status` on the node shows all");
}

TEST(NodeEvents, SayWhyAHostFailsOrIsSilent) {
  const DesiredState desired_state = passthrough_desired();
  HostSide host = answer(desired_state, api::NodePhase::failed);
  if (host.status) host.status->error = api::StatusError{"no IOMMU", ""};
  EXPECT_THAT(events(shows("applying"), desired_state, host), ElementsAre("Warning Failed: no IOMMU"));
  EXPECT_THAT(
      events(shows("pending"), desired_state, unanswered(desired_state, seconds(31))),
      ElementsAre("Warning HostdUnavailable: ferry hostd has not taken up policy vm-passthrough for more "
                  "than 30 seconds; does it run on this node?"));
}

TEST(NodeEvents, OfADesiredStateThatCannotBeSayWhy) {
  const DesiredState desired_state = desired_state_for({{api::kPolicyLabel, "mixd"}});
  const auto recorded_once = events(shows("ready"), desired_state, {});
  EXPECT_THAT(recorded_once,
              ElementsAre("Warning InvalidConfig: label gpu-ferry.io/policy=mixd: no policy or "
                          "profile is called 'mixd'; did you mean 'mixed'?; there are: default, render-mix, "
                          "mixed, quarters"));
  EXPECT_THAT(events(shows("failed", node_report(desired_state, {}).trouble), desired_state, {}), IsEmpty());
}

TEST(NodeEvents, RecordAWarningOnce) {
  const DesiredState desired_state = desired_state_for({{api::kWorkloadLabel, "vm"}});
  ASSERT_THAT(desired_state.warnings, SizeIs(1));
  EXPECT_THAT(events(shows("idle"), desired_state, {}),
              ElementsAre("Warning ConfigWarning: " + desired_state.warnings.front()));
  EXPECT_THAT(events(shows("idle"), desired_state, {}, {desired_state.warnings.front()}), IsEmpty());
}

}  // namespace
}  // namespace ferry::agent
