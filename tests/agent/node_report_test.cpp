// SPDX-License-Identifier: Apache-2.0
#include "agent/node_report.h"

#include <ostream>

#include <gmock/gmock.h>

#include "agent/node_events.h"
#include "tests/agent/views.h"

namespace ferry::agent {
namespace {

using std::chrono::seconds;
using test::answer;
using test::gpu;
using test::node_with;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

NodeWish wish_of(Labels labels) {
  return node_wish(node_with(std::move(labels)), test::usual_configs(), {});
}
NodeWish vgpu_wish() {
  return wish_of({{policy::kVgpuConfigLabel, "render-mix"}});
}
NodeWish passthrough_wish() {
  return wish_of({{kWorkloadLabel, "vm-passthrough"}});
}
NodeWish stood_back() {
  NodeWish wish = vgpu_wish();
  wish.kind = NodeWish::Kind::stand_back;
  wish.of_vgpu_config = false;
  wish.reason = "others serve this node";
  return wish;
}

HostSide refused(const NodeWish& wish) {
  SeenAccelerator busy = gpu(policy::Mode::host, policy::Mode::passthrough, "refused");
  busy.reason = "in use";
  busy.hint = "stop the VM";
  busy.holders = {{.text = "vm guest-7 (pid 4711)"}};
  return answer(wish, SeenPhase::refused, {gpu(policy::Mode::passthrough, policy::Mode::passthrough), busy});
}

// A label as "key=value", "key-" where it shall be gone, "" where it is not ours to say.
std::string change(const LabelChanges& changes, const char* key) {
  const auto found = changes.find(key);
  if (found == changes.end()) return {};
  return found->second ? *found->second : "-";
}

struct Answer {
  const char* name;
  NodeWish wish;
  HostSide host;
  const char* state;
  const char* vgpu_state;
};

void PrintTo(const Answer& row, std::ostream* out) {
  *out << row.name;
}

HostSide of_generation(const NodeWish& wish, std::uint64_t seen) {
  HostSide host = answer(wish, SeenPhase::as_wanted);
  if (host.seen) host.seen->wanted = seen;
  return host;
}
HostSide unanswered(const NodeWish& wish, seconds silent) {
  HostSide host;
  host.written = test::written(wish);
  host.silent = silent;
  return host;
}

class AnswerTable : public testing::TestWithParam<Answer> {};

TEST_P(AnswerTable, BecomesLabels) {
  const Answer& row = GetParam();
  const NodeReport report = node_report(row.wish, row.host);
  EXPECT_EQ(change(report.labels, kStateLabel), row.state);
  EXPECT_EQ(change(report.labels, kVgpuStateLabel), row.vgpu_state);
  EXPECT_EQ(change(report.annotations, kErrorAnnotation), report.trouble.empty() ? "-" : report.trouble);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, AnswerTable,
    testing::Values(
        Answer{"NotWrittenYet", vgpu_wish(), {}, "pending", "pending"},
        Answer{"NotTakenUp", vgpu_wish(), unanswered(vgpu_wish(), seconds(30)), "pending", "pending"},
        Answer{"NeverTakenUp", vgpu_wish(), unanswered(vgpu_wish(), seconds(31)), "pending", "pending"},
        Answer{"AnswerToAnEarlierOne", vgpu_wish(), of_generation(vgpu_wish(), 6), "pending", "pending"},
        Answer{"AnswerToAnotherWish", vgpu_wish(), answer(passthrough_wish(), SeenPhase::as_wanted),
               "pending", "pending"},
        Answer{"Withdrawing", vgpu_wish(), answer(vgpu_wish(), SeenPhase::withdrawing), "withdrawing",
               "pending"},
        Answer{"Changing", vgpu_wish(), answer(vgpu_wish(), SeenPhase::changing), "changing", "pending"},
        Answer{"AsWanted", vgpu_wish(), answer(vgpu_wish(), SeenPhase::as_wanted), "as_wanted", "success"},
        Answer{"Refused", vgpu_wish(), refused(vgpu_wish()), "refused", "failed"},
        Answer{"Failed", vgpu_wish(), answer(vgpu_wish(), SeenPhase::failed), "failed", "failed"},
        Answer{"OfAMoment", vgpu_wish(), answer(vgpu_wish(), SeenPhase::nothing_wanted), "pending",
               "pending"},
        Answer{"Typo", wish_of({{policy::kVgpuConfigLabel, "typo"}}),
               answer(vgpu_wish(), SeenPhase::as_wanted), "failed", "failed"},
        Answer{"TypoOfAPolicy", wish_of({{kPolicyLabel, "typo"}}), {}, "failed", ""},
        Answer{"NotOfVgpus", passthrough_wish(),
               answer(passthrough_wish(), SeenPhase::as_wanted,
                      {gpu(policy::Mode::passthrough, policy::Mode::passthrough)}),
               "as_wanted", "-"},
        Answer{"OnANodeWithoutAGpu", passthrough_wish(), answer(passthrough_wish(), SeenPhase::as_wanted),
               "nothing_wanted", "-"},
        Answer{"Nothing", wish_of({}), answer(vgpu_wish(), SeenPhase::as_wanted), "nothing_wanted", ""},
        Answer{"StoodBack", stood_back(), answer(vgpu_wish(), SeenPhase::as_wanted), "stood_back", ""}),
    [](const auto& row) { return row.param.name; });

TEST(ChangeOutcome, OfAFailureIsKnownWhileHostdSpeaks) {
  HostSide host = answer(vgpu_wish(), SeenPhase::failed);
  EXPECT_EQ(change_outcome(host), ChangeOutcome::failed);
  host.hostd_speaks = false;
  EXPECT_EQ(change_outcome(host), ChangeOutcome::open) << "it may have spoken of its own end";
  host.silent = kChangePatience + seconds(1);
  EXPECT_EQ(change_outcome(host), ChangeOutcome::failed) << "nobody waits for ever";
}

// It writes that before its lock is let go: for a moment it both has said it and runs.
TEST(ChangeOutcome, OfAFormerHostdsEndIsNone) {
  HostSide host = answer(vgpu_wish(), SeenPhase::failed);
  ASSERT_TRUE(host.seen);
  host.seen->error = "hostd has ended before the node was as wanted";
  EXPECT_EQ(change_outcome(host), ChangeOutcome::open);
  EXPECT_FALSE(says_that_it_failed(host));
  host.silent = kChangePatience + seconds(1);
  EXPECT_EQ(change_outcome(host), ChangeOutcome::failed) << "nobody waits for ever";
}

TEST(ChangeOutcome, OfWhatIsDoneOrInUseOutlivesHostd) {
  for (const auto& [phase, outcome] : {std::pair{SeenPhase::as_wanted, ChangeOutcome::done},
                                       std::pair{SeenPhase::refused, ChangeOutcome::refused}}) {
    HostSide host = answer(vgpu_wish(), phase);
    host.hostd_speaks = false;
    EXPECT_EQ(change_outcome(host), outcome);
  }
}

TEST(NodeReport, NamesDeviceHolderAndHint) {
  const NodeReport report = node_report(passthrough_wish(), refused(passthrough_wish()));
  EXPECT_EQ(report.trouble, "0000:02:00.0 (NVIDIA L40S): in use; held by vm guest-7 (pid 4711); stop the VM");
  HostSide host = answer(passthrough_wish(), SeenPhase::failed, {gpu(policy::Mode::host, {}, "failed")});
  if (host.seen) {
    host.seen->error = "this host has no active IOMMU";
    host.seen->hint = "intel_iommu=on";
    host.seen->accelerators.front().model.clear();
  }
  EXPECT_EQ(node_report(passthrough_wish(), host).trouble,
            "this host has no active IOMMU; intel_iommu=on; 0000:02:00.0: failed");
}

TEST(NodeReport, NamesAHolderOnce) {
  HostSide host = refused(passthrough_wish());
  ASSERT_TRUE(host.seen);
  SeenAccelerator& card = host.seen->accelerators.back();
  const std::string reason =
      "0000:02:00.0 is in use: VM guest-7 (pid 471) holds /dev/vfio/12; 0000:02:00.0 is in use: pod a/vm "
      "holds "
      "nvidia.com/L40S (allocated by the kubelet)";
  card.reason = reason;
  card.holders = {{.text = "virtual machine guest-7 (pid 471)", .kind = "virtual_machine", .name = "guest-7"},
                  {.text = "pod a/vm", .kind = "pod", .name = "a/vm"}};
  const std::string whole = "0000:02:00.0 (NVIDIA L40S): " + reason;
  EXPECT_EQ(node_report(passthrough_wish(), host).trouble, whole + "; stop the VM");
  card.holders.push_back({.text = "process guest-7 (pid 47)", .kind = "process", .name = "guest-7"});
  card.holders.push_back({.text = "pod a/v", .kind = "pod", .name = "a/v"});
  EXPECT_EQ(node_report(passthrough_wish(), host).trouble,
            whole + "; held by process guest-7 (pid 47), pod a/v; stop the VM");
}

// hostd runs, so nobody has to look whether it does.
TEST(NodeReport, SaysWhyHostdCannotReadTheWish) {
  HostSide host = unanswered(vgpu_wish(), seconds(31));
  host.seen = SeenHost{};
  host.seen->phase = SeenPhase::failed;
  host.seen->error = "/var/lib/ferry/wanted.json: expected 1, found 2";
  host.seen->hint = "is hostd of the agent's version?";
  const NodeReport report = node_report(vgpu_wish(), host);
  EXPECT_EQ(report.condition, NodeCondition::failed);
  EXPECT_EQ(report.trouble,
            "/var/lib/ferry/wanted.json: expected 1, found 2; is hostd of the agent's version?");
  EXPECT_EQ(change(report.labels, kVgpuStateLabel), "failed");
  host.silent = seconds(30);
  EXPECT_EQ(node_report(vgpu_wish(), host).condition, NodeCondition::pending)
      << "it may be of the one before";
}

TEST(NodeReport, SaysThatWhatIsAskedForCannotBeWritten) {
  HostSide host = answer(passthrough_wish(), SeenPhase::as_wanted);
  host.unwritable = "no space";
  EXPECT_EQ(node_report(vgpu_wish(), host).trouble, "no space");
  EXPECT_EQ(node_report(vgpu_wish(), host).condition, NodeCondition::failed);
  EXPECT_EQ(node_report(stood_back(), host).trouble, "others serve this node; no space");
  EXPECT_EQ(node_report(wish_of({}), host).trouble, "no space");
}

TEST(NodeReport, SaysThatNobodyAnswers) {
  HostSide host = unanswered(vgpu_wish(), seconds(31));
  host.unreadable = "/run/ferry/state.json: no phase";
  EXPECT_EQ(node_report(vgpu_wish(), host).trouble,
            "ferry hostd has not taken up policy render-mix for more than 30 seconds; /run/ferry/state.json: "
            "no phase; does it run on this node?");
  host = answer(vgpu_wish(), SeenPhase::changing);
  host.silent = seconds(900);
  EXPECT_THAT(node_report(vgpu_wish(), host).trouble, IsEmpty());
  host.silent = seconds(901);
  EXPECT_EQ(node_report(vgpu_wish(), host).trouble,
            "ferry hostd has said nothing for more than 15 minutes; does it run on this node?");
}

TEST(NodeReport, SaysNothingForAHostdThatIsGone) {
  for (const SeenPhase phase : {SeenPhase::as_wanted, SeenPhase::withdrawing, SeenPhase::changing,
                                SeenPhase::refused, SeenPhase::failed, SeenPhase::nothing_wanted}) {
    HostSide host = answer(vgpu_wish(), phase);
    const NodeReport before = node_report(vgpu_wish(), host);
    host.hostd_down = seconds(600);
    EXPECT_EQ(node_report(vgpu_wish(), host).condition, before.condition);
    host.hostd_down = seconds(601);
    const NodeReport report = node_report(vgpu_wish(), host);
    EXPECT_EQ(change(report.labels, kStateLabel), "unknown");
    EXPECT_EQ(change(report.labels, kVgpuStateLabel), phase == SeenPhase::as_wanted ? "success" : "")
        << "what was done then stays so";
    EXPECT_EQ(
        report.trouble,
        "ferry hostd has not run on this node for more than 10 minutes, and nobody knows what its GPUs are "
        "now; `systemctl status ferry-hostd` on the node, or the log of its container, says why");
  }
}

TEST(NodeReport, OfWhatHostdHasNoPartInStandsWithoutIt) {
  HostSide host = answer(passthrough_wish(), SeenPhase::as_wanted);
  host.hostd_down = seconds(86400);
  EXPECT_EQ(node_report(stood_back(), host).condition, NodeCondition::stood_back);
  EXPECT_EQ(node_report(wish_of({}), host).condition, NodeCondition::nothing_wanted);
  EXPECT_EQ(node_report(vgpu_wish(), host).condition, NodeCondition::pending) << "it has not taken that up";
  host.unwritable = "no space";
  EXPECT_EQ(node_report(passthrough_wish(), host).condition, NodeCondition::failed);
}

TEST(NodeReport, WaitsForNobodyWhoHasNotBeenAsked) {
  HostSide host = answer(passthrough_wish(), SeenPhase::as_wanted,
                         {gpu(policy::Mode::passthrough, policy::Mode::passthrough)});
  host.silent = seconds(86400);
  EXPECT_FALSE(is_silent(vgpu_wish(), host));
  EXPECT_THAT(node_report(passthrough_wish(), host).trouble, IsEmpty());
}

TEST(NodeReport, IsOneLineThatEnds) {
  EXPECT_EQ(told("a\nb\tc"), "a b c");
  EXPECT_EQ(told("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(told("abcdefghi", 8), "abcde…");
  EXPECT_EQ(told("abcd\xc3\xa4\xc3\xa4\xc3\xa4", 8), "abcd…") << "not within a character";
  HostSide host = refused(passthrough_wish());
  if (host.seen) host.seen->accelerators[1].reason = std::string(2000, 'x');
  EXPECT_THAT(node_report(passthrough_wish(), host).trouble, SizeIs(kMostTold));
}

TEST(NodeReport, HasLegalLabelValues) {
  for (int i = 0; i <= static_cast<int>(NodeCondition::stood_back); ++i)
    EXPECT_THAT(std::string(text(static_cast<NodeCondition>(i))),
                testing::MatchesRegex("[a-z][a-z_]{0,61}[a-z]"));
}

// ---- events

std::vector<std::string> events(const policy::NodeObject& node, const NodeWish& wish, const HostSide& host,
                                const std::set<std::string>& told_before = {}) {
  std::vector<std::string> out;
  for (const NodeEvent& event : node_events(node, wish, host, node_report(wish, host), told_before))
    out.push_back((event.warning ? "Warning " : "Normal ") + event.reason + ": " + event.message);
  return out;
}

policy::NodeObject shows(const char* state, const std::string& error = "") {
  policy::NodeObject node = node_with({{kStateLabel, state}});
  if (!error.empty()) node.annotations[kErrorAnnotation] = error;
  return node;
}

TEST(NodeEvents, AreOfTransitionsAlone) {
  const NodeWish wish = vgpu_wish();
  const std::string by = "policy render-mix (label nvidia.com/vgpu.config=render-mix)";
  EXPECT_THAT(events(shows("pending"), wish, answer(wish, SeenPhase::changing)),
              ElementsAre("Normal HostChanging: the GPUs are being changed to " + by));
  EXPECT_THAT(events(shows("changing"), wish, answer(wish, SeenPhase::changing)), IsEmpty());
  EXPECT_THAT(events(shows("changing"), wish, answer(wish, SeenPhase::as_wanted)),
              ElementsAre("Normal HostAsWanted: the GPUs are as they shall be by " + by));
  EXPECT_THAT(events(shows("as_wanted"), wish, answer(wish, SeenPhase::as_wanted)), IsEmpty());
  EXPECT_THAT(events(shows("as_wanted", "left over"), wish, answer(wish, SeenPhase::as_wanted)), SizeIs(1));
  EXPECT_THAT(events(shows("as_wanted"), wish, {}), IsEmpty()) << "pending is no news";
  HostSide host = answer(wish, SeenPhase::withdrawing);
  if (host.seen) host.seen->withdraw = {"0000:02:00.0", "0000:03:00.0"};
  EXPECT_THAT(events(shows("pending"), wish, host),
              ElementsAre("Normal HostWithdrawing: to be no longer offered to the kubelet, for " + by +
                          ": 0000:02:00.0, 0000:03:00.0"));
  EXPECT_THAT(events(shows("as_wanted"), wish_of({}), {}),
              ElementsAre("Normal NothingWanted: the GPUs are left as they are: no label and no default says "
                          "what this node shall be"));
  EXPECT_THAT(events(shows("as_wanted"), stood_back(), {}),
              ElementsAre("Warning StoodBack: others serve this node"));
}

TEST(NodeEvents, OfARefusalNameEachAcceleratorOnce) {
  const NodeWish wish = passthrough_wish();
  HostSide host = refused(wish);
  const std::string busy = "0000:02:00.0 (NVIDIA L40S): in use; held by vm guest-7 (pid 4711); stop the VM";
  EXPECT_THAT(events(shows("changing"), wish, host), ElementsAre("Warning HostRefused: " + busy));
  EXPECT_THAT(events(shows("refused", busy), wish, host), IsEmpty());
  EXPECT_THAT(events(shows("refused", "another"), wish, host), SizeIs(1));
  if (host.seen) host.seen->accelerators.resize(12, host.seen->accelerators.back());
  const auto many = events(shows("changing"), wish, host);
  EXPECT_THAT(many, SizeIs(8));
  EXPECT_EQ(many.back(), "Warning HostRefused: and 4 more; `ferry status` on the node shows all");
}

TEST(NodeEvents, SayWhyAHostFailsOrIsSilent) {
  const NodeWish wish = passthrough_wish();
  HostSide host = answer(wish, SeenPhase::failed);
  if (host.seen) host.seen->error = "no IOMMU";
  EXPECT_THAT(events(shows("changing"), wish, host), ElementsAre("Warning HostFailed: no IOMMU"));
  EXPECT_THAT(events(shows("pending"), wish, unanswered(wish, seconds(31))),
              ElementsAre("Warning HostSilent: ferry hostd has not taken up policy vm-passthrough for more "
                          "than 30 seconds; does it run on this node?"));
}

TEST(NodeEvents, OfAWishThatCannotBeSayWhy) {
  const NodeWish wish = wish_of({{kPolicyLabel, "mixd"}});
  const auto told_once = events(shows("as_wanted"), wish, {});
  EXPECT_THAT(told_once, ElementsAre("Warning WishInvalid: label gpu-ferry.io/policy=mixd: no configuration "
                                     "holds 'mixd'; did you mean 'mixed'?; there are: default, render-mix, "
                                     "mixed, quarters"));
  EXPECT_THAT(events(shows("failed", node_report(wish, {}).trouble), wish, {}), IsEmpty());
}

TEST(NodeEvents, TellAWarningOnce) {
  const NodeWish wish = wish_of({{kWorkloadLabel, "vm"}});
  ASSERT_THAT(wish.warnings, SizeIs(1));
  EXPECT_THAT(events(shows("nothing_wanted"), wish, {}),
              ElementsAre("Warning WishWarning: " + wish.warnings.front()));
  EXPECT_THAT(events(shows("nothing_wanted"), wish, {}, {wish.warnings.front()}), IsEmpty());
}

}  // namespace
}  // namespace ferry::agent
