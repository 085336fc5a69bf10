// SPDX-License-Identifier: Apache-2.0
#include "agent/drain/drain.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/drain/drain_mark.h"
#include "api/events.h"
#include "api/labels.h"

namespace ferry::agent {
namespace {

using std::chrono::seconds;
using Kind = DrainNeed::Kind;

constexpr std::size_t kLongestFailure = 512;

bool is_ours(const policy::NodeObject& node) {
  return node.annotations.contains(api::kCordonedAnnotation);
}

/// Device users of the refused GPUs.
struct DeviceUsers {
  std::vector<PodOnNode> pods;        ///< that still exist, each once
  std::vector<std::string> operands;  ///< pods that end once their operands are paused; for people
  std::vector<std::string> kept;      ///< never evicted; for people
  std::vector<std::string> unknown;   ///< their pod is not known, or has just ended
};

/// Null: no such pod.
const PodOnNode* pod_of(const api::ReportedUser& user, const std::vector<PodOnNode>& pods) {
  const auto found = std::ranges::find_if(pods, [&](const PodOnNode& pod) {
    if (!user.pod_uid.empty() && pod.uid != user.pod_uid) return false;
    return user.kind == "pod" ? user.name == pod.text() : !user.pod_uid.empty();
  });
  return found == pods.end() ? nullptr : &*found;
}

DeviceUsers users_of(const api::HostStatus& host, const std::vector<PodOnNode>& pods,
                     const std::set<std::string>& operands) {
  DeviceUsers out;
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    if (gpu.state != api::GpuState::blocked) continue;
    // A GPU that has its mode and does not work in it needs no change, and the end of its users mends
    // nothing.
    const bool is_ill = !gpu.only_in_use && gpu.mode == gpu.desired && gpu.mode != policy::Mode::vgpu;
    if (is_ill) continue;
    const bool named = !std::ranges::all_of(gpu.users, &api::ReportedUser::by_the_plugin);
    for (const api::ReportedUser& user : gpu.users) {
      if (named && user.by_the_plugin) continue;
      const PodOnNode* const pod = pod_of(user, pods);
      if (pod == nullptr) {
        const bool in_a_pod = user.kind == "pod" || !user.pod_uid.empty();
        (in_a_pod ? out.unknown : out.kept).push_back(user.text());
      } else if (operands.contains(pod->uid)) {
        out.operands.push_back(fmt::format("pod {} (an operand)", pod->text()));
      } else if (!pod->kept.empty()) {
        out.kept.push_back(fmt::format("pod {} ({})", pod->text(), pod->kept));
      } else if (std::ranges::find(out.pods, *pod) == out.pods.end()) {
        out.pods.push_back(*pod);
      }
    }
    if (!gpu.only_in_use)
      out.kept.push_back(gpu.address.text() + ", which is blocked by more than its users");
  }
  return out;
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string joined(const std::vector<PodOnNode>& pods) {
  std::vector<std::string> names;
  names.reserve(pods.size());
  for (const PodOnNode& pod : pods) names.push_back(pod.text());
  return joined(names);
}

DrainNeed nothing(std::string why = {}) {
  DrainNeed out;
  out.why = std::move(why);
  return out;
}

DrainNeed over(DrainNeed need, std::string why) {
  need.kind = Kind::over;
  need.why = std::move(why);
  return need;
}

/// The need while a drain runs.
DrainNeed need_when_begun(const HostSide& host, const DrainSnapshot& snapshot, DeviceUsers users,
                          const DrainMark& mark, DrainNeed need) {
  need.begun = true;
  // GPUs that do not work may keep the node blocked after the last eviction.
  if (users.pods.empty() && users.operands.empty() && users.kept.empty() && users.unknown.empty())
    return nothing();
  if (!snapshot.cordoned) return over(need, "the node was uncordoned during the drain");
  if (!snapshot.eviction_refused.empty()) return over(need, snapshot.eviction_refused);
  const seconds passed = snapshot.lasted.value_or(drain_time(mark, snapshot.now));
  const seconds timeout = snapshot.timeout.value_or(seconds(0));
  // An operand that is not gone in time stays, like any other pod of a DaemonSet.
  if (passed > kPausePatience || passed >= timeout)
    std::ranges::move(std::exchange(users.operands, {}), std::back_inserter(users.kept));
  if (passed >= timeout) {
    // The pods are not the cause: the drain begins anew once hostd runs.
    if (!host.hostd_speaks) return nothing("ferry hostd does not run on this node");
    std::vector<std::string> still;
    still.reserve(users.pods.size());
    for (const PodOnNode& pod : users.pods) still.push_back("pod " + pod.text());
    std::ranges::move(users.kept, std::back_inserter(still));
    std::ranges::move(users.unknown, std::back_inserter(still));
    std::string why =
        fmt::format("after {} seconds the GPUs are still in use by {}", timeout.count(), joined(still));
    if (!snapshot.delayed.empty()) why += fmt::format(" ({})", fmt::join(snapshot.delayed, "; "));
    return over(need, std::move(why));
  }
  need.kind = Kind::evict;
  need.left =
      users.operands.empty() ? timeout - passed : std::min(timeout, kPausePatience + seconds(1)) - passed;
  // Another device user, or the absence of hostd, would keep the change from its end: the evictions would be
  // in vain. A paused operand may yet stay.
  if (!host.hostd_speaks || !users.kept.empty() || !users.operands.empty()) return need;
  std::erase_if(users.pods, [](const PodOnNode& pod) { return pod.ends; });
  need.pods = std::move(users.pods);
  return need;
}

DrainStep undone(const policy::NodeObject& node, const DrainSnapshot& snapshot, const DrainNeed& need) {
  DrainStep out;
  out.annotations = {{api::kCordonedAnnotation, std::nullopt}};
  if (!need.keeps_failure) out.annotations[api::kDrainAnnotation] = std::nullopt;
  if (is_ours(node) && snapshot.cordoned) out.unschedulable = false;
  return out;
}

DrainStep failed(const policy::NodeObject& node, const DesiredState& desired_state,
                 const DrainSnapshot& snapshot, const DrainNeed& need) {
  DrainStep out = undone(node, snapshot, need);
  const std::string why = one_line(need.why, kLongestFailure);
  const std::string text = drain_mark_text({.generation = need.generation, .since = {}, .failed = why});
  out.annotations[api::kDrainAnnotation] = text;
  out.report.note = "pods are no longer evicted: " + why;
  if (value_of(node.annotations, api::kDrainAnnotation) != text) {
    out.events.push_back(
        {.warning = true,
         .reason = api::event::kDrainFailed,
         .message = one_line(
             fmt::format("pods are no longer evicted for {}: {}; hostd applies it when the pods have "
                         "released the devices, and no pod is evicted again until the desired state changes",
                         desired_state.desired_policy.text(), why))});
  }
  return out;
}

DrainStep begin(const DesiredState& desired_state, const DrainSnapshot& snapshot, const DrainNeed& need) {
  DrainStep out;
  const auto now = std::chrono::floor<seconds>(snapshot.now);
  out.annotations[api::kDrainAnnotation] = drain_mark_text({.generation = need.generation, .since = now});
  if (!snapshot.cordoned) {
    out.unschedulable = true;
    out.annotations[api::kCordonedAnnotation] = "true";
  }
  out.report.draining = true;
  out.events.push_back(
      {.warning = false,
       .reason = api::event::kDraining,
       .message = one_line(fmt::format("for {} these are evicted, for {} seconds at most: {}",
                                       desired_state.desired_policy.text(),
                                       snapshot.timeout.value_or(seconds(0)).count(), joined(need.pods)))});
  return out;
}

/// A desired state that cannot be read for a moment, or a silent hostd, does not clear the failure.
bool keeps_failure(const policy::NodeObject& node, const HostSide& host, const DrainSnapshot& snapshot) {
  const auto mark = read_drain_mark(value_of(node.annotations, api::kDrainAnnotation));
  if (!snapshot.timeout || !mark || mark->since || !host.written) return false;
  const bool done = host.status && has_answered(host) && host.status->phase == api::NodePhase::ready;
  return mark->generation == host.written->generation && !done;
}

DrainNeed need_now(const policy::NodeObject& node, const DesiredState& desired_state, const HostSide& host,
                   const DrainSnapshot& snapshot, const std::set<std::string>& operands) {
  if (!snapshot.timeout || desired_state.kind != DesiredState::Kind::policy) return nothing();
  if (!host.written || !says(*host.written, desired_state.desired_policy)) return nothing();
  DrainNeed need;
  need.generation = host.written->generation.value_or(0);
  auto mark = read_drain_mark(value_of(node.annotations, api::kDrainAnnotation));
  if (mark && mark->generation != need.generation) mark.reset();
  if (hostd_is_gone(host)) return need;  // no change would follow the evictions
  if (!host.status || !has_answered(host) || host_is_changing(host)) {
    if (mark && !is_silent(desired_state, host)) need.kind = Kind::stays;
    return need;
  }
  if (mark && !mark->since && host.status->phase != api::NodePhase::ready) return over(need, mark->failed);
  if (host.status->phase != api::NodePhase::blocked) return nothing();
  if (!snapshot.pods && !mark) return nothing("the pods of the node cannot be seen");
  DeviceUsers users = users_of(*host.status, snapshot.pods.value_or(std::vector<PodOnNode>()), operands);
  if (mark && mark->since) return need_when_begun(host, snapshot, std::move(users), *mark, std::move(need));

  // No drain runs yet. Without hostd the users may be others by now, and no change would follow.
  if (!host.hostd_speaks) return nothing();
  if (!snapshot.eviction_refused.empty()) return nothing(snapshot.eviction_refused);
  if (!users.kept.empty()) return nothing(joined(users.kept) + " would stay");
  if (!users.unknown.empty()) return nothing("no such pod is seen here: " + joined(users.unknown));
  std::erase_if(users.pods, [](const PodOnNode& pod) { return pod.ends; });
  if (users.pods.empty()) return nothing();
  need.kind = Kind::evict;
  need.pods = std::move(users.pods);
  return need;
}

}  // namespace

std::set<NamedOwner> owners_in_the_way(const HostSide& host, const std::vector<PodOnNode>& pods) {
  std::set<NamedOwner> out;
  if (!host.status) return out;
  for (const api::AcceleratorStatus& gpu : host.status->accelerators) {
    if (gpu.state != api::GpuState::blocked) continue;
    for (const api::ReportedUser& user : gpu.users) {
      const PodOnNode* const pod = pod_of(user, pods);
      if (pod != nullptr && pod->controller) out.insert(*pod->controller);
    }
  }
  return out;
}

DrainNeed drain_need(const policy::NodeObject& node, const DesiredState& desired_state, const HostSide& host,
                     const DrainSnapshot& snapshot, const std::set<std::string>& operands) {
  DrainNeed need = need_now(node, desired_state, host, snapshot, operands);
  need.keeps_failure = keeps_failure(node, host, snapshot);
  return need;
}

NodePatchContent drain_undone(const policy::NodeObject& node, bool cordoned) {
  NodePatchContent out;
  // A failed drain stays recorded.
  const auto mark = read_drain_mark(value_of(node.annotations, api::kDrainAnnotation));
  if (mark && mark->since) out.annotations[api::kDrainAnnotation] = std::nullopt;
  if (!is_ours(node)) return out;
  out.annotations[api::kCordonedAnnotation] = std::nullopt;
  if (cordoned) out.unschedulable = false;
  return out;
}

DrainStep drain_step(const policy::NodeObject& node, const DesiredState& desired_state,
                     const DrainSnapshot& snapshot, const DrainNeed& need, const RolloutStep& rollout) {
  if (!snapshot.cordon_refused.empty()) {
    DrainStep out;
    out.report.note = snapshot.cordon_refused;
    return out;
  }
  switch (need.kind) {
    case Kind::stays:
      return {};
    case Kind::over:
      return failed(node, desired_state, snapshot, need);
    case Kind::evict:
      break;
    case Kind::nothing: {
      DrainStep out = undone(node, snapshot, need);
      if (!need.why.empty()) out.report.note = "pods are not evicted: " + need.why;
      return out;
    }
  }
  const bool stopped = !rollout.held.empty() && !(need.begun && rollout.unknown);
  if (stopped || (!need.begun && !rollout.may_begin)) {
    DrainStep out = undone(node, snapshot, need);
    if (!rollout.held.empty()) out.report.note = "pods are not evicted: " + rollout.held;
    return out;
  }
  if (!need.begun) return begin(desired_state, snapshot, need);
  DrainStep out;
  out.report.draining = true;
  out.report.note = fmt::format("{}", fmt::join(snapshot.delayed, "; "));
  out.left = need.left;
  if (rollout.may_begin) out.evict = need.pods;
  return out;
}

}  // namespace ferry::agent
