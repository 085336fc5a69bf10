// SPDX-License-Identifier: Apache-2.0
#include "agent/drain/drain.h"

#include <ostream>

#include <gmock/gmock.h>

#include "agent/drain/drain_mark.h"
#include "agent/reconcile.h"
#include "tests/agent/snapshots.h"

namespace ferry::agent {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

constexpr std::uint64_t kGeneration = 7;  // of test::answer()
constexpr seconds kTimeout{600};
constexpr const char* kOurs = "true";
constexpr const char* kDcgm = "nvidia.com/gpu.deploy.dcgm";

std::chrono::system_clock::time_point at(int second) {
  return std::chrono::sys_days(std::chrono::year(2026) / 11 / 21) + seconds(second);
}
std::string running(int since = 0, std::uint64_t generation = kGeneration) {
  return drain_mark_text(
      {.generation = generation, .since = std::chrono::floor<seconds>(at(since)), .failed = {}});
}
std::string has_failed(const std::string& why) {
  return drain_mark_text({.generation = kGeneration, .since = {}, .failed = why});
}

PodOnNode pod(const char* name, const char* kept = "", bool ends = false) {
  return {.name = name, .space = "a", .uid = std::string("uid-") + name, .kept = kept, .ends = ends};
}
api::ReportedUser of_kubelet(const char* name) {
  return {.kind = "pod", .name = std::string("a/") + name};
}
api::ReportedUser vm_in(const char* name) {
  return {.kind = "virtual_machine", .name = "guest", .pid = 7, .pod_uid = std::string("uid-") + name};
}
const api::ReportedUser kByThePlugin = {.kind = "pod", .name = "(given)", .by_the_plugin = true};
const api::ReportedUser kAnyPod = {.kind = "pod", .name = "(any that asks for it)"};
const api::ReportedUser kProcess = {.kind = "process", .name = "python3", .pid = 9};

api::AcceleratorStatus held_by(std::vector<api::ReportedUser> users, bool only = true) {
  api::AcceleratorStatus out =
      test::gpu(policy::Mode::host, policy::Mode::passthrough, api::GpuState::blocked);
  out.reason = "in use";
  out.users = std::move(users);
  out.only_in_use = only;
  return out;
}

/// A node that has been refused what its label asks for.
NodeSnapshot refused(std::vector<api::AcceleratorStatus> gpus, std::vector<PodOnNode> pods) {
  NodeSnapshot snapshot;
  snapshot.node = test::node_with({{api::kWorkloadLabel, "vm-passthrough"}});
  snapshot.configs = test::usual_configs();
  snapshot.host = test::answer(resolve_desired_state(snapshot.node, snapshot.configs, snapshot.defaults),
                               api::NodePhase::blocked, std::move(gpus));
  DrainSnapshot drain;
  drain.timeout = kTimeout;
  drain.pods = std::move(pods);
  drain.now = at(0);
  snapshot.drain = std::move(drain);
  return snapshot;
}
/// And shows that its pods are being evicted.
NodeSnapshot begun(std::vector<api::AcceleratorStatus> gpus, std::vector<PodOnNode> pods) {
  NodeSnapshot snapshot = refused(std::move(gpus), std::move(pods));
  snapshot.node.labels[api::kStateLabel] = "draining";
  snapshot.node.annotations = {{api::kDrainAnnotation, running()}, {api::kCordonedAnnotation, kOurs}};
  if (snapshot.drain) snapshot.drain->cordoned = true;
  return snapshot;
}
DrainSnapshot& drain_of(NodeSnapshot& snapshot) {
  if (!snapshot.drain) snapshot.drain = DrainSnapshot();
  return *snapshot.drain;
}
std::string state_of(const NodeSnapshot& snapshot) {
  return with_changes(snapshot.node.labels, reconcile(snapshot).labels).at(api::kStateLabel);
}
auto undoes_all() {
  return testing::AllOf(Field(&ReconcileResult::unschedulable, std::optional(false)),
                        Field(&ReconcileResult::evict, IsEmpty()),
                        Field(&ReconcileResult::annotations,
                              testing::AllOf(Contains(Pair(api::kDrainAnnotation, std::nullopt)),
                                             Contains(Pair(api::kCordonedAnnotation, std::nullopt)))));
}
auto leaves_it() {
  return testing::AllOf(
      Field(&ReconcileResult::unschedulable, std::nullopt), Field(&ReconcileResult::evict, IsEmpty()),
      Field(&ReconcileResult::annotations, Not(Contains(testing::Key(api::kDrainAnnotation)))),
      Field(&ReconcileResult::annotations, Not(Contains(testing::Key(api::kCordonedAnnotation)))));
}

// An operand that came back would have the GPUs open, and nobody may evict a DaemonSet's pod.
TEST(Drain, KeepsOperandsAwayMeanwhile) {
  for (NodeSnapshot snapshot :
       {refused({held_by({vm_in("vm")})}, {pod("vm")}), begun({held_by({vm_in("vm")})}, {pod("vm")})}) {
    snapshot.node.labels[kDcgm] = "paused-for-gpu-ferry";
    EXPECT_FALSE(reconcile(snapshot).labels.contains(kDcgm));
    snapshot.node.labels[kDcgm] = "true";
    EXPECT_THAT(reconcile(snapshot).labels, Contains(Pair(kDcgm, "paused-for-gpu-ferry")));
  }
  NodeSnapshot late = begun({held_by({vm_in("vm")})}, {pod("vm")});
  late.node.labels[kDcgm] = "paused-for-gpu-ferry";
  drain_of(late).now = at(0) + kTimeout + seconds(1);
  EXPECT_THAT(reconcile(late).labels, Contains(Pair(kDcgm, "true")));
}

// An operand is resumed when a change is blocked, and opens the GPU beside the pod that blocked it.
TEST(Drain, PausesAnOperandBesideAPodThatItEvicts) {
  const std::vector<PodOnNode> pods = {pod("job"), pod("dcgm", "it is of DaemonSet a/nvidia-dcgm")};
  const auto with_dcgm = [](NodeSnapshot snapshot, const char* label) {
    snapshot.node.labels[kDcgm] = label;
    snapshot.others.pods = {PodOnNode{.name = "dcgm", .daemon_set = "nvidia-dcgm", .uid = "uid-dcgm"}};
    return snapshot;
  };
  const auto both = held_by({of_kubelet("job"), vm_in("dcgm")});
  NodeSnapshot snapshot = with_dcgm(refused({both}, pods), "true");
  snapshot.host.silent = kPausePatience + seconds(1);
  EXPECT_EQ(reconcile(snapshot).unschedulable, true) << "however long ago it was blocked";
  EXPECT_THAT(reconcile(snapshot).labels, Contains(Pair(kDcgm, "paused-for-gpu-ferry")));
  snapshot.others.pods->front().daemon_set.clear();
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "its DaemonSet is not trusted";
  EXPECT_THAT(reconcile(with_dcgm(refused({both}, pods), "false")), leaves_it()) << "it cannot be paused";
  EXPECT_THAT(reconcile(with_dcgm(refused({held_by({vm_in("dcgm")})}, pods), "true")), leaves_it());

  snapshot = with_dcgm(begun({both}, pods), "paused-for-gpu-ferry");
  EXPECT_THAT(reconcile(snapshot).evict, IsEmpty()) << "dcgm may yet stay";
  EXPECT_EQ(reconcile(snapshot).drain_left, kPausePatience + seconds(1));
  NodeSnapshot paused = with_dcgm(begun({both}, {pods.front()}), "paused-for-gpu-ferry");
  paused.others.pods->clear();
  paused.host.status->accelerators.front().users.pop_back();
  EXPECT_THAT(reconcile(paused).evict, ElementsAre(pod("job")));
  drain_of(snapshot).now = at(0) + kPausePatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "it does not end, so an eviction would be in vain";
  drain_of(snapshot).now = at(0) + kTimeout;
  EXPECT_THAT(reconcile(snapshot).report.trouble, HasSubstr("pod a/job, pod a/dcgm (an operand)"));
}

// A GPU that has its mode and does not work in it needs no change, and so keeps no drain from its end.
TEST(Drain, IsForGpusThatNeedAChange) {
  api::AcceleratorStatus ill = held_by({}, false);
  ill.mode = policy::Mode::passthrough;
  for (const char* reason : {"off the bus", "no driver", "a write is stuck"}) {
    ill.reason = reason;
    EXPECT_EQ(reconcile(refused({held_by({of_kubelet("p")}), ill}, {pod("p")})).unschedulable, true);
    EXPECT_THAT(reconcile(begun({held_by({of_kubelet("p")}), ill}, {pod("p")})).evict, ElementsAre(pod("p")));
    // A VM that runs on it stays: its end would mend nothing.
    ill.users = {vm_in("vm"), of_kubelet("vm")};
    const std::vector<PodOnNode> pods = {pod("p"), pod("vm")};
    EXPECT_THAT(reconcile(begun({held_by({of_kubelet("p")}), ill}, pods)).evict, ElementsAre(pod("p")));
    EXPECT_THAT(reconcile(refused({ill}, pods)), leaves_it());
    EXPECT_THAT(reconcile(begun({ill}, pods)), undoes_all()) << "the last change is made";
    ill.users = {};
    EXPECT_THAT(reconcile(begun({ill}, {})), undoes_all());
  }
  // Its vGPUs have other types than the policy asks for, and the GPU cannot have those.
  api::AcceleratorStatus divided = held_by({of_kubelet("vm")}, false);
  divided.mode = policy::Mode::vgpu;
  divided.desired = policy::Mode::vgpu;
  EXPECT_THAT(reconcile(refused({divided}, {pod("vm")})), leaves_it());
  api::AcceleratorStatus kept = held_by({}, false);
  kept.mode = policy::Mode::host;
  EXPECT_THAT(reconcile(refused({held_by({of_kubelet("p")}), kept}, {pod("p")})), leaves_it())
      << "the eviction would be in vain";
}

// --- Its beginning -----------------------------------------------------------------------------------------

TEST(Drain, CordonsFirstAndEvictsOnceTheNodeShowsIt) {
  NodeSnapshot snapshot =
      refused({held_by({vm_in("vm"), of_kubelet("vm"), kByThePlugin})}, {pod("vm"), pod("other")});
  ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.unschedulable, true);
  EXPECT_THAT(step.annotations, Contains(Pair(api::kDrainAnnotation, running())));
  EXPECT_THAT(step.annotations, Contains(Pair(api::kCordonedAnnotation, kOurs)));
  EXPECT_THAT(step.labels, Contains(Pair(api::kStateLabel, "draining")));
  EXPECT_THAT(step.evict, IsEmpty());
  EXPECT_THAT(step.events, Contains(Field(&NodeEvent::reason, "Draining")));
  EXPECT_THAT(step.events, Contains(Field(&NodeEvent::message, HasSubstr("a/vm"))));

  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  snapshot.node.annotations = with_changes(snapshot.node.annotations, step.annotations);
  drain_of(snapshot).cordoned = true;
  step = reconcile(snapshot);
  EXPECT_EQ(step.unschedulable, std::nullopt);
  EXPECT_THAT(step.annotations, IsEmpty());
  EXPECT_THAT(step.labels, IsEmpty());
  EXPECT_THAT(step.events, IsEmpty());
  EXPECT_THAT(step.evict, ElementsAre(pod("vm"))) << "the holder, once, and nobody else";
  EXPECT_EQ(step.drain_left, kTimeout);
}

TEST(Drain, WhatSomebodyElseHasCordonedIsNotOurs) {
  NodeSnapshot snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  drain_of(snapshot).cordoned = true;
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.unschedulable, std::nullopt);
  EXPECT_THAT(step.annotations, Contains(Pair(api::kDrainAnnotation, running())));
  EXPECT_THAT(step.annotations, Not(Contains(testing::Key(api::kCordonedAnnotation))));

  snapshot.node.annotations = {{api::kDrainAnnotation, running()}};
  EXPECT_THAT(reconcile(snapshot).evict, ElementsAre(pod("p")));
  snapshot.host.status->phase = api::NodePhase::ready;
  EXPECT_EQ(reconcile(snapshot).unschedulable, std::nullopt) << "nor is it given back";
  EXPECT_THAT(reconcile(snapshot).annotations, Contains(Pair(api::kDrainAnnotation, std::nullopt)));
}

struct NoDrain {
  const char* name;
  NodeSnapshot snapshot;
  const char* said;  ///< part of what the annotation says; empty: nothing of it
};
void PrintTo(const NoDrain& row, std::ostream* out) {
  *out << row.name;
}

class NobodyIsEvicted : public testing::TestWithParam<NoDrain> {};

TEST_P(NobodyIsEvicted, AndTheNodeIsLeftAlone) {
  const ReconcileResult step = reconcile(GetParam().snapshot);
  EXPECT_THAT(step, leaves_it());
  EXPECT_THAT(step.report.trouble, HasSubstr(GetParam().said));
  EXPECT_EQ(step.report.trouble.find("evicted") != std::string::npos, *GetParam().said != '\0')
      << step.report.trouble;
  EXPECT_EQ(state_of(GetParam().snapshot), "blocked");
}

NodeSnapshot with(NodeSnapshot snapshot, const std::function<void(NodeSnapshot&)>& change) {
  change(snapshot);
  return snapshot;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, NobodyIsEvicted,
    testing::Values(
        NoDrain{"switched off",
                with(refused({held_by({of_kubelet("p")})}, {pod("p")}),
                     [](NodeSnapshot& snapshot) { drain_of(snapshot).timeout.reset(); }),
                ""},
        NoDrain{"a process of the host's", refused({held_by({of_kubelet("p"), kProcess})}, {pod("p")}),
                "process python3 (pid 9) would stay"},
        NoDrain{"on another GPU", refused({held_by({of_kubelet("p")}), held_by({kProcess})}, {pod("p")}),
                "process python3 (pid 9) would stay"},
        NoDrain{"a DaemonSet's pod",
                refused({held_by({of_kubelet("p")})}, {pod("p", "it is of DaemonSet d")}),
                "pod a/p (it is of DaemonSet d) would stay"},
        NoDrain{"not for its holders alone", refused({held_by({of_kubelet("p")}, false)}, {pod("p")}),
                "0000:02:00.0, which is blocked by more"},
        NoDrain{"a file that does not say so", refused({held_by({}, false)}, {}), "would stay"},
        NoDrain{"a pod that is not seen", refused({held_by({of_kubelet("p")})}, {pod("q")}),
                "no such pod is seen here: pod a/p"},
        NoDrain{"a pod of another UID", refused({held_by({vm_in("former")})}, {pod("p")}),
                "no such pod is seen here: virtual machine"},
        NoDrain{"a pod that nobody names", refused({held_by({kByThePlugin})}, {pod("p")}),
                "no such pod is seen here"},
        NoDrain{"one that may still be given out", refused({held_by({of_kubelet("p"), kAnyPod})}, {pod("p")}),
                "no such pod is seen here: pod (any"},
        NoDrain{"pods that cannot be seen",
                with(refused({held_by({of_kubelet("p")})}, {}),
                     [](NodeSnapshot& snapshot) { drain_of(snapshot).pods.reset(); }),
                "cannot be seen"},
        NoDrain{"evictions that are refused",
                with(refused({held_by({of_kubelet("p")})}, {pod("p")}),
                     [](NodeSnapshot& snapshot) {
                       drain_of(snapshot).eviction_refused = "the right is missing";
                     }),
                "the right is missing"},
        NoDrain{"all are going", refused({held_by({of_kubelet("p")})}, {pod("p", "", true)}), ""},
        NoDrain{"it is not their turn",
                with(refused({held_by({of_kubelet("p")})}, {pod("p")}),
                     [](NodeSnapshot& snapshot) { snapshot.rollout = Rollout(); }),
                ""}));

TEST(Drain, OfAnotherUidUnderTheSameNameIsAnotherPod) {
  api::ReportedUser user = of_kubelet("p");
  user.pod_uid = "uid-former";
  EXPECT_THAT(reconcile(refused({held_by({user})}, {pod("p")})), leaves_it());
  EXPECT_THAT(reconcile(begun({held_by({user})}, {pod("p")})).evict, IsEmpty());
}

TEST(Drain, BeginsOnlyForARefusalOfWhatIsAskedForNow) {
  for (const api::NodePhase phase :
       {api::NodePhase::ready, api::NodePhase::applying, api::NodePhase::failed, api::NodePhase::idle}) {
    NodeSnapshot snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
    snapshot.host.status->phase = phase;
    EXPECT_THAT(reconcile(snapshot), leaves_it());
  }
  NodeSnapshot snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.status->desired->generation = kGeneration - 1;
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "an answer to something else";
  snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.node.labels[api::kWorkloadLabel] = "container";
  EXPECT_THAT(reconcile(snapshot), leaves_it());
  snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.hostd_down = kGonePatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "the word of a hostd that is gone";
  snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.hostd_speaks = false;
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "or of one that has just gone";
}

// --- Its turn ----------------------------------------------------------------------------------------------

Rollout rollout_of(const NodeSnapshot& snapshot, bool renewed) {
  Rollout rollout;
  rollout.known = rollout.searched = true;
  rollout.leases = {{.index = 0,
                     .holder = snapshot.node.name,
                     .configuration = configuration_id(
                         resolve_desired_state(snapshot.node, snapshot.configs, {}).desired_policy.policy)}};
  rollout.renewed = renewed;
  return rollout;
}

TEST(Drain, NeedsALeaseOfItsOwn) {
  NodeSnapshot snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  Rollout nobody_changes;
  nobody_changes.known = nobody_changes.searched = true;
  snapshot.rollout = nobody_changes;
  ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step, leaves_it());
  EXPECT_EQ(step.rollout.kind, RolloutStep::Kind::take);
  snapshot.rollout = rollout_of(snapshot, true);
  step = reconcile(snapshot);
  EXPECT_EQ(step.rollout.kind, RolloutStep::Kind::nothing) << "it keeps the one of the change";
  EXPECT_EQ(step.unschedulable, true);

  snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.rollout = rollout_of(snapshot, true);
  EXPECT_THAT(reconcile(snapshot).evict, SizeIs(1));
  snapshot.rollout = rollout_of(snapshot, false);
  step = reconcile(snapshot);
  EXPECT_THAT(step, leaves_it()) << "somebody else may have taken it";
  EXPECT_EQ(step.rollout.kind, RolloutStep::Kind::take);
  EXPECT_EQ(state_of(snapshot), "draining");
}

TEST(Drain, IsUndoneWhereItsPolicyIsHeldBack) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  Rollout rollout = rollout_of(snapshot, true);
  rollout.results.failed[rollout.leases.front().configuration] = "n9: no";
  snapshot.rollout = rollout;
  EXPECT_THAT(reconcile(snapshot), leaves_it());
  EXPECT_EQ(reconcile(snapshot).rollout.kind, RolloutStep::Kind::give_back);
  rollout.leases.front().holder.clear();
  snapshot.rollout = rollout;
  EXPECT_THAT(reconcile(snapshot), undoes_all());
  EXPECT_THAT(reconcile(snapshot).report.trouble, HasSubstr("pods are not evicted: it has failed on n9: no"));
}

TEST(Drain, FreesItsLeaseWhenItHasFailed) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.rollout = rollout_of(snapshot, true);
  drain_of(snapshot).now = at(600);
  EXPECT_EQ(reconcile(snapshot).rollout.kind, RolloutStep::Kind::give_back);
  EXPECT_EQ(reconcile(snapshot).rollout.result, std::nullopt) << "it says nothing of the policy";
}

// --- Its course --------------------------------------------------------------------------------------------

TEST(Drain, AsksOnlyThoseThatAreNotGoing) {
  EXPECT_THAT(reconcile(begun({held_by({of_kubelet("p"), of_kubelet("q"), of_kubelet("gone")})},
                              {pod("p"), pod("q", "", true)}))
                  .evict,
              ElementsAre(pod("p")));
}

TEST(Drain, WaitsWhileSomebodyElseHoldsItToo) {
  const NodeSnapshot snapshot = begun({held_by({of_kubelet("p"), kProcess})}, {pod("p")});
  EXPECT_THAT(reconcile(snapshot), leaves_it());
  EXPECT_EQ(state_of(snapshot), "draining");
}

TEST(Drain, StaysWhileHostdIsAtIt) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.status->phase = api::NodePhase::applying;
  drain_of(snapshot).now = at(5'000);
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "it has worked, however long ago it began";
  snapshot.host.silent = kChangePatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot), undoes_all()) << "nobody stays cordoned for a host that says nothing more";
  snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.status.reset();
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "hostd may be starting";
  snapshot.host.silent = kAnswerPatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot), undoes_all());
}

// --- Its end -----------------------------------------------------------------------------------------------

TEST(Drain, WaitsForAHostdThatDoesNotRunAsLongAsItMayTakeAndHasNotFailedThen) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.hostd_speaks = false;
  ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step, leaves_it());
  EXPECT_EQ(step.drain_left, kTimeout);
  EXPECT_THAT(step.labels, IsEmpty()) << "it is draining";
  drain_of(snapshot).now = at(static_cast<int>(kTimeout.count()));
  EXPECT_THAT(reconcile(snapshot), undoes_all());
}

TEST(Drain, IsUndoneWhenThereIsNoReasonForItAnyMore) {
  const NodeSnapshot before = begun({held_by({of_kubelet("p")})}, {pod("p")});
  NodeSnapshot snapshot = before;
  snapshot.host.status->phase = api::NodePhase::ready;
  EXPECT_THAT(reconcile(snapshot), undoes_all());
  snapshot.host.status->phase = api::NodePhase::failed;
  EXPECT_THAT(reconcile(snapshot), undoes_all());
  snapshot = before;
  snapshot.host.hostd_down = kGonePatience + seconds(1);
  EXPECT_THAT(reconcile(snapshot), undoes_all()) << "nobody would do what they make room for";
  snapshot = before;
  snapshot.node.labels.erase(api::kWorkloadLabel);
  EXPECT_THAT(reconcile(snapshot), undoes_all());
  snapshot = before;
  snapshot.node.labels[api::kWorkloadLabel] = "container";
  EXPECT_THAT(reconcile(snapshot), undoes_all());
  snapshot = before;
  snapshot.node.labels[api::kOperandsLabel] = "false";
  EXPECT_THAT(reconcile(snapshot), undoes_all());
  snapshot = before;
  snapshot.host.written->generation = snapshot.host.status->desired->generation.emplace(8);
  EXPECT_THAT(reconcile(snapshot).annotations, Contains(Pair(api::kDrainAnnotation, running(0, 8))))
      << "it is another one for another desired state";
  snapshot = before;
  drain_of(snapshot).timeout.reset();
  EXPECT_THAT(reconcile(snapshot), undoes_all()) << "an agent that is started without it";
  snapshot = before;
  snapshot.drain.reset();
  EXPECT_THAT(reconcile(snapshot), leaves_it()) << "whoever has nothing to do with it";
  snapshot = before;
  snapshot.node.annotations.erase(api::kDrainAnnotation);
  snapshot.host.status->phase = api::NodePhase::ready;
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.unschedulable, false) << "half a mark is one";
  EXPECT_THAT(step.annotations, Contains(Pair(api::kCordonedAnnotation, std::nullopt)));
}

TEST(Drain, FailsWhenItsTimeIsUpAndIsNotTriedAgain) {
  NodeSnapshot snapshot = begun({held_by({vm_in("vm"), kProcess})}, {pod("vm")});
  drain_of(snapshot).now = at(599);
  EXPECT_EQ(reconcile(snapshot).drain_left, seconds(1));
  drain_of(snapshot).now = at(600);
  ReconcileResult step = reconcile(snapshot);
  const std::string why = "after 600 seconds the GPUs are still in use by pod a/vm, process python3 (pid 9)";
  EXPECT_EQ(step.unschedulable, false);
  EXPECT_THAT(step.evict, IsEmpty());
  EXPECT_THAT(step.annotations, Contains(Pair(api::kDrainAnnotation, has_failed(why))));
  EXPECT_THAT(step.annotations, Contains(Pair(api::kCordonedAnnotation, std::nullopt)));
  EXPECT_THAT(step.report.trouble, testing::StartsWith("pods are no longer evicted: " + why));
  EXPECT_THAT(step.labels, Contains(Pair(api::kStateLabel, "blocked"))) << "it is done when they have let go";
  EXPECT_THAT(step.events, Contains(Field(&NodeEvent::reason, "DrainFailed")));

  snapshot.node.labels = with_changes(snapshot.node.labels, step.labels);
  snapshot.node.annotations = with_changes(snapshot.node.annotations, step.annotations);
  drain_of(snapshot).cordoned = false;
  snapshot.host.status->accelerators = {held_by({of_kubelet("vm")})};
  for (const int later : {601, 100'000}) {
    drain_of(snapshot).now = at(later);
    step = reconcile(snapshot);
    EXPECT_THAT(step, leaves_it());
    EXPECT_THAT(step.events, Not(Contains(Field(&NodeEvent::reason, "DrainFailed")))) << "reported once";
  }
  snapshot.host.status->phase = api::NodePhase::applying;
  EXPECT_THAT(reconcile(snapshot), leaves_it());
  snapshot.host.status->phase = api::NodePhase::failed;
  EXPECT_THAT(reconcile(snapshot), leaves_it());
  snapshot.host.status->phase = api::NodePhase::blocked;
  snapshot.host.written->generation = snapshot.host.status->desired->generation.emplace(8);
  EXPECT_EQ(reconcile(snapshot).unschedulable, true) << "another desired state";
  snapshot.host.status->phase = api::NodePhase::ready;
  EXPECT_THAT(reconcile(snapshot).annotations, Contains(Pair(api::kDrainAnnotation, std::nullopt)));
}

TEST(Drain, AClockThatWasSetBackEndsItTooSomeTime) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  drain_of(snapshot).now = at(-100'000);
  EXPECT_EQ(reconcile(snapshot).unschedulable, false);
}

TEST(Drain, AClockThatWasSetCountsOnlyWhereNoOtherDoes) {
  for (const int now : {3'600, -3'600}) {
    NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
    drain_of(snapshot).now = at(now);
    EXPECT_EQ(reconcile(snapshot).unschedulable, false);
    drain_of(snapshot).lasted = seconds(5);
    EXPECT_THAT(reconcile(snapshot).evict, ElementsAre(pod("p")));
    EXPECT_EQ(reconcile(snapshot).drain_left, kTimeout - seconds(5));
  }
}

TEST(Drain, WhoeverUncordonsEndsIt) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  drain_of(snapshot).cordoned = false;
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.unschedulable, std::nullopt);
  EXPECT_THAT(step.evict, IsEmpty());
  EXPECT_THAT(step.report.trouble, HasSubstr("the node was uncordoned during the drain"));
}

TEST(Drain, AMissingRightEndsIt) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  drain_of(snapshot).eviction_refused = "create on pods/eviction";
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_EQ(step.unschedulable, false);
  EXPECT_THAT(step.annotations, Contains(Pair(api::kDrainAnnotation, has_failed("create on pods/eviction"))));
}

TEST(Drain, WhereCordoningIsRefusedTheRestIsSaid) {
  NodeSnapshot snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  drain_of(snapshot).cordon_refused = "a policy is against it";
  const ReconcileResult step = reconcile(snapshot);
  EXPECT_THAT(step, leaves_it());
  EXPECT_THAT(step.labels, Contains(Pair(api::kStateLabel, "blocked")));
  EXPECT_THAT(step.report.trouble, HasSubstr("a policy is against it"));
  snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.host.status->phase = api::NodePhase::ready;
  drain_of(snapshot).cordon_refused = "a policy is against it";
  EXPECT_THAT(reconcile(snapshot), leaves_it());
}

TEST(Drain, RecordsForPeersThatItIsOnItsWay) {
  NodeSnapshot snapshot = refused({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.node.labels = {{policy::kVgpuConfigLabel, "render-mix"}};
  snapshot.host.written =
      test::written(resolve_desired_state(snapshot.node, snapshot.configs, snapshot.defaults));
  EXPECT_THAT(reconcile(snapshot).labels, Contains(Pair(api::kVgpuStateLabel, "pending")));
}

// --- What is remembered ------------------------------------------------------------------------------------

TEST(DrainMark, ReadsBackAsItself) {
  for (const std::string& text :
       {running(), running(86'399, 0), has_failed(""), has_failed("a \"b\" \xff")}) {
    const auto mark = read_drain_mark(text);
    ASSERT_EQ(mark.has_value(), true) << text;
    EXPECT_EQ(drain_mark_text(*mark), text);
  }
  EXPECT_EQ(running(), R"({"generation":7,"since":"2026-11-21T00:00:00Z"})");
}

TEST(DrainMark, OfAnotherFormIsNotOurs) {
  for (const char* bad : {"",
                          "null",
                          "7",
                          "[]",
                          "{",
                          "true",
                          R"({"generation":7})",
                          R"({"since":"2026-11-21T00:00:00Z"})",
                          R"({"generation":-7,"since":"2026-11-21T00:00:00Z"})",
                          R"({"generation":7,"since":7})",
                          R"({"generation":"7","since":"2026-11-21T00:00:00Z"})",
                          R"({"generation":7,"failed":true})",
                          R"({"generation":7,"since":"2026-11-21T00:00:00"})",
                          R"({"generation":7,"since":"2026-11-21 00:00:00Z"})",
                          R"({"generation":7,"since":"2262-01-01T00:00:00Z"})",
                          R"({"generation":7,"since":"2026-02-30T00:00:00Z"})",
                          R"({"generation":7,"since":"2026-11-21T24:00:00Z"})",
                          R"({"generation":7,"since":"2026-11-21T00:60:00Z"})",
                          R"({"generation":7,"since":"2026-11-2xT00:00:00Z"})",
                          R"({"generation":7,"since":"+026-11-21T00:00:00Z"})",
                          R"({"generation":7,"sinec":"2026-11-21T00:00:00Z"})",
                          R"({"generation":7,"since":"2026-11-21T00:00:00Z","failed":"x"})"})
    EXPECT_EQ(read_drain_mark(bad).has_value(), false) << bad;
}

TEST(DrainMark, ThatCannotBeReadIsTakenOff) {
  NodeSnapshot snapshot = begun({held_by({of_kubelet("p")})}, {pod("p")});
  snapshot.node.annotations[api::kDrainAnnotation] = "by hand";
  snapshot.host.status->phase = api::NodePhase::ready;
  EXPECT_THAT(reconcile(snapshot), undoes_all());
}

}  // namespace
}  // namespace ferry::agent
