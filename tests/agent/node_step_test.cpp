// SPDX-License-Identifier: Apache-2.0
#include "agent/node_step.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/agent/views.h"

namespace ferry {
namespace {

using std::chrono::seconds;
using test::answer;
using test::gpu;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr const char* kValidator = "nvidia.com/gpu.deploy.sandbox-validator";
constexpr const char* kPlugin = "nvidia.com/gpu.deploy.sandbox-device-plugin";

NodeView view_of(Labels labels) {
  NodeView view;
  view.node = test::node_with(std::move(labels));
  view.configs = test::usual_configs();
  view.others = {.pods = std::vector<PodOnNode>(), .daemon_sets = std::set<std::string>()};
  return view;
}
NodeWish wish_of(const NodeView& view) {
  return node_wish(view.node, view.configs, view.defaults);
}

// The whole of a change beside the operator, look by look.
TEST(NodeStep, PausesAsksAndResumesInThatOrder) {
  NodeView view = view_of({{kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}, {kPlugin, "false"}});
  const NodeWish wish = wish_of(view);
  NodeStep step = node_step(view);
  EXPECT_THAT(step.labels,
              ElementsAre(Pair(kStateLabel, "pending"), Pair(kValidator, "paused-for-gpu-ferry")));
  EXPECT_EQ(step.wish_file.has_value(), false) << "before the labels are changed";
  EXPECT_EQ(step.waits_for, "the operands' labels to be paused");

  view.node.labels = with_changes(view.node.labels, step.labels);
  view.others.pods = {
      PodOnNode{.name = "nvidia-sandbox-validator-abc", .daemon_set = "nvidia-sandbox-validator"}};
  step = node_step(view);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_EQ(step.wish_file.has_value(), false);
  EXPECT_EQ(step.waits_for, "pod nvidia-sandbox-validator-abc to end");

  view.others.pods = std::vector<PodOnNode>();
  step = node_step(view);
  EXPECT_EQ(step.wish_file.value_or(WrittenWish{}), test::written(wish, 1));
  EXPECT_EQ(step.waits_for, "");

  view.host = answer(wish, SeenPhase::changing);
  step = node_step(view);
  EXPECT_THAT(step.labels, ElementsAre(Pair(kStateLabel, "changing"), Pair(kVgpuStateLabel, "pending")));
  EXPECT_EQ(step.wish_file.has_value(), false) << "it is written";
  view.node.labels = with_changes(view.node.labels, step.labels);

  view.host = answer(wish, SeenPhase::as_wanted, {gpu(Mode::vgpu, Mode::vgpu)});
  step = node_step(view);
  EXPECT_THAT(step.labels, ElementsAre(Pair(kStateLabel, "as_wanted"), Pair(kValidator, "true"),
                                       Pair(kVgpuStateLabel, "success")));
  view.node.labels = with_changes(view.node.labels, step.labels);
  step = node_step(view);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.annotations, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
}

TEST(NodeStep, WaitsForAPodOnlySoLong) {
  NodeView view = view_of({{kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  view.others.pods = {PodOnNode{.name = "stuck", .daemon_set = "nvidia-sandbox-validator"}};
  view.paused = kPausePatience;
  EXPECT_EQ(node_step(view).wish_file.has_value(), false);
  view.paused += seconds(1);
  EXPECT_EQ(node_step(view).wish_file.has_value(), true);
}

TEST(NodeStep, PausesNothingForATypo) {
  NodeView view = view_of({{kVgpuConfigLabel, "typo"}, {kValidator, "true"}});
  const NodeView before = view_of({{kVgpuConfigLabel, "render-mix"}});
  view.host = answer(wish_of(before), SeenPhase::as_wanted);
  const NodeStep step = node_step(view);
  EXPECT_THAT(step.labels, ElementsAre(Pair(kStateLabel, "failed"), Pair(kVgpuStateLabel, "failed")));
  EXPECT_EQ(step.wish_file.has_value(), false);
  EXPECT_FALSE(step.remove_wish_file) << "the host keeps what it has, also after a reboot";
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

HostSide as_it_is(std::vector<SeenAccelerator> gpus) {
  HostSide host;
  host.seen = SeenHost{};
  if (host.seen) host.seen->accelerators = std::move(gpus);
  return host;
}
HostSide of_policy(const char* name) {
  return answer(wish_of(view_of({{kPolicyLabel, name}})), SeenPhase::as_wanted);
}

class TakesOver : public testing::TestWithParam<NoChange> {};

// The wish is written down, and nobody is paused for what changes no GPU.
TEST_P(TakesOver, WithoutAPause) {
  Labels labels = GetParam().labels;
  labels[kValidator] = "true";
  NodeView view = view_of(labels);
  view.host = GetParam().host;
  const NodeStep step = node_step(view);
  EXPECT_EQ(step.wish_file.has_value(), true);
  EXPECT_EQ(step.labels.at(kStateLabel), GetParam().state);
  EXPECT_THAT(step.labels, testing::Not(testing::Contains(testing::Key(kValidator))));
}

INSTANTIATE_TEST_SUITE_P(Changes, TakesOver,
                         testing::Values(NoChange{"OfGpusThatAreGivenAwayAlready",
                                                  {{kWorkloadLabel, "vm-passthrough"}},
                                                  as_it_is({gpu(Mode::passthrough, std::nullopt)}),
                                                  "pending"},
                                         NoChange{"OfGpusThatAreTheHostsAlready",
                                                  {{kWorkloadLabel, "container"}},
                                                  as_it_is({gpu(Mode::host, std::nullopt)}),
                                                  "pending"},
                                         NoChange{"OfAnotherName",
                                                  {{kVgpuConfigLabel, "render-mix"}},
                                                  of_policy("quarters"),
                                                  "as_wanted"}),
                         [](const auto& row) { return row.param.name; });

TEST(NodeStep, PausesForWhatMayChangeAGpu) {
  for (const auto& [labels, host] :
       {std::pair<Labels, HostSide>{{{kWorkloadLabel, "vm-passthrough"}},
                                    as_it_is({gpu(Mode::passthrough, {}), gpu(Mode::host, {})})},
        {{{kWorkloadLabel, "container"}}, as_it_is({gpu(Mode::vgpu, {})})},
        {{{kPolicyLabel, "mixed"}}, as_it_is({gpu(Mode::passthrough, {})})},
        {{{kVgpuConfigLabel, "render-mix"}}, as_it_is({gpu(Mode::vgpu, {})})},
        {{{kVgpuConfigLabel, "render-mix"}}, of_policy("mixed")},
        {{{kWorkloadLabel, "vm-passthrough"}}, HostSide{}}}) {
    Labels all = labels;
    all[kValidator] = "true";
    NodeView view = view_of(all);
    view.host = host;
    EXPECT_THAT(node_step(view).labels, testing::Contains(Pair(kValidator, "paused-for-gpu-ferry")))
        << labels.begin()->second;
  }
}

// A ConfigMap that changes elsewhere is told to hostd, and neither the cluster nor waiting pods notice.
TEST(NodeStep, IsCalmWhileTheSameIsAskedInOtherWords) {
  NodeView view = view_of({{kPolicyLabel, "quarters"}});
  view.host = answer(wish_of(view), SeenPhase::as_wanted, {gpu(Mode::vgpu, Mode::vgpu)});
  view.node.labels[kStateLabel] = "as_wanted";
  view.configs[1].text += "  another: [{devices: [0], mode: host}]\n";
  NodeStep step = node_step(view);
  EXPECT_EQ(step.wish_file.value_or(WrittenWish{}).generation, 8U);
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
  ASSERT_EQ(step.files.size(), 3U);
  EXPECT_EQ(step.files[1].content.has_value(), true) << "vgpu-devices-ready stays";
  view.configs[1].text.replace(view.configs[1].text.find("quarters: [{devices: all"), 24,
                               "quarters: [{devices: [0]");
  EXPECT_THAT(node_step(view).labels, ElementsAre(Pair(kStateLabel, "pending")));
}

// hostd goes on by itself when what it refused is let go.
TEST(NodeStep, PausesWhatComesLate) {
  NodeView view = view_of({{kVgpuConfigLabel, "render-mix"}, {kValidator, "true"}});
  view.host = answer(wish_of(view), SeenPhase::refused);
  EXPECT_THAT(node_step(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host = answer(wish_of(view), SeenPhase::withdrawing);
  EXPECT_THAT(node_step(view).labels, testing::Contains(Pair(kValidator, "paused-for-gpu-ferry")));
}

TEST(NodeStep, ResumesWhatACrashLeft) {
  for (const Labels& labels : {Labels{{kVgpuConfigLabel, "render-mix"}}, Labels{},
                               Labels{{kPolicyLabel, "typo"}}, Labels{{kOperandsLabel, "false"}}}) {
    Labels all = labels;
    all[kValidator] = "paused-for-gpu-ferry";
    NodeView view = view_of(all);
    view.host = answer(wish_of(view_of({{kVgpuConfigLabel, "render-mix"}})), SeenPhase::as_wanted);
    EXPECT_THAT(node_step(view).labels, testing::Contains(Pair(kValidator, "true")));
  }
}

TEST(NodeStep, KeepsAPauseWhileTheHostChangesForWhateverReason) {
  NodeView view = view_of({{kPolicyLabel, "typo"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host = answer(wish_of(view_of({{kVgpuConfigLabel, "render-mix"}})), SeenPhase::changing);
  EXPECT_THAT(node_step(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host.silent = kChangePatience + seconds(1);
  EXPECT_THAT(node_step(view).labels, testing::Contains(Pair(kValidator, "true")));
}

// wanted.json is there and hostd may begin at any moment, whatever the labels say by now.
TEST(NodeStep, KeepsAPauseForAWishThatIsOnItsWay) {
  NodeView view = view_of({{kPolicyLabel, "typo"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host.written = test::written(wish_of(view_of({{kVgpuConfigLabel, "render-mix"}})));
  EXPECT_THAT(node_step(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host.silent = kAnswerPatience + seconds(1);
  EXPECT_THAT(node_step(view).labels, testing::Contains(Pair(kValidator, "true")));
}

TEST(NodeStep, LeavesNobodyPausedForAHostThatIsSilent) {
  NodeView view = view_of({{kVgpuConfigLabel, "render-mix"}, {kValidator, "paused-for-gpu-ferry"}});
  view.host.written = test::written(wish_of(view));
  view.host.silent = kAnswerPatience;
  EXPECT_THAT(node_step(view).labels, testing::Not(testing::Contains(testing::Key(kValidator))));
  view.host.silent += seconds(1);
  EXPECT_THAT(node_step(view).labels, testing::Contains(Pair(kValidator, "true")));
}

TEST(NodeStep, StandsBackWhereOthersServe) {
  NodeView view = view_of({{kWorkloadLabel, "vm-passthrough"},
                           {"nvidia.com/gpu.deploy.vfio-manager", "true"},
                           {kValidator, "paused-for-gpu-ferry"}});
  view.others = {};
  view.host = answer(wish_of(view), SeenPhase::as_wanted);
  const NodeStep step = node_step(view);
  EXPECT_EQ(step.wish.kind, NodeWish::Kind::stand_back);
  EXPECT_TRUE(step.remove_wish_file) << "so that hostd writes nothing";
  EXPECT_EQ(step.wish_file.has_value(), false);
  EXPECT_THAT(step.files, IsEmpty());
  EXPECT_THAT(step.labels, ElementsAre(Pair(kStateLabel, "stood_back"), Pair(kValidator, "true")));
  EXPECT_THAT(step.annotations.at(kErrorAnnotation).value_or(""), testing::StartsWith("Ferry stands back: "));
  ASSERT_EQ(step.events.size(), 1U);
  EXPECT_EQ(step.events[0].reason, "StoodBack");
  EXPECT_THAT(step.events[0].message, testing::HasSubstr("spec: {vfioManager: {enabled: false}}"));
  view.others.daemon_sets = std::set<std::string>();
  EXPECT_EQ(node_step(view).wish.kind, NodeWish::Kind::policy) << "handed over";
}

TEST(NodeStep, HasNothingToStandBackFromWhereNothingIsAsked) {
  NodeView view = view_of({{"nvidia.com/gpu.deploy.vfio-manager", "true"}, {kVgpuStateLabel, "success"}});
  view.others = {};
  const NodeStep step = node_step(view);
  EXPECT_EQ(step.wish.kind, NodeWish::Kind::nothing);
  EXPECT_THAT(step.labels, ElementsAre(Pair(kStateLabel, "nothing_wanted")));
  EXPECT_FALSE(step.remove_wish_file) << "none of ours is there";
}

TEST(NodeStep, TakesBackWhatNobodyAsksForAnyMore) {
  NodeView view = view_of({});
  view.host = answer(wish_of(view_of({{kVgpuConfigLabel, "render-mix"}})), SeenPhase::as_wanted);
  EXPECT_TRUE(node_step(view).remove_wish_file);
}

TEST(NodeStep, CountsGenerationsAboveAllThatWereSeen) {
  NodeView view = view_of({{kWorkloadLabel, "vm-passthrough"}});
  view.host = as_it_is({});
  if (view.host.seen) view.host.seen->wanted = 41;
  EXPECT_EQ(node_step(view).wish_file.value_or(WrittenWish{}).generation, 42U);
  view.host.written = WrittenWish{.generation = 50, .policy = "x", .config = "y", .asked_by = "z"};
  EXPECT_EQ(node_step(view).wish_file.value_or(WrittenWish{}).generation, 51U);
}

TEST(NodeStep, TakesTroubleOffTheNodeOnceItIsOver) {
  NodeView view = view_of({{kWorkloadLabel, "vm-passthrough"}, {kVgpuStateLabel, "failed"}});
  view.node.annotations[kErrorAnnotation] = "in use";
  view.node.annotations["example.com/note"] = "stays";
  view.host = answer(wish_of(view), SeenPhase::as_wanted);
  const NodeStep step = node_step(view);
  EXPECT_THAT(step.annotations, ElementsAre(Pair(kErrorAnnotation, std::nullopt)));
  EXPECT_THAT(step.labels, ElementsAre(Pair(kStateLabel, "as_wanted"), Pair(kVgpuStateLabel, std::nullopt)));
}

}  // namespace
}  // namespace ferry
