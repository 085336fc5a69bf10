// SPDX-License-Identifier: Apache-2.0
#include "agent/drain.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/cluster_words.h"
#include "agent/drain_mark.h"

namespace ferry {
namespace {

using std::chrono::seconds;
using Kind = DrainNeed::Kind;

constexpr std::size_t kLongestFailure = 512;

std::string value_of(const NodeObject& node, const char* key) {
  const auto found = node.annotations.find(key);
  return found == node.annotations.end() ? std::string() : found->second;
}

bool is_ours(const NodeObject& node) {
  return node.annotations.contains(kCordonedAnnotation);
}

/// Device users of the refused GPUs.
struct Holders {
  std::vector<NodePod> pods;         ///< that still exist, each once
  std::vector<std::string> kept;     ///< never evicted; for people
  std::vector<std::string> unknown;  ///< their pod is not known, or has just ended
};

/// Null: no such pod.
const NodePod* pod_of(const SeenHolder& holder, const std::vector<NodePod>& pods) {
  const auto found = std::ranges::find_if(pods, [&](const NodePod& pod) {
    if (!holder.pod_uid.empty() && pod.uid != holder.pod_uid) return false;
    return holder.kind == "pod" ? holder.name == pod.text() : !holder.pod_uid.empty();
  });
  return found == pods.end() ? nullptr : &*found;
}

void add_holder(const SeenHolder& holder, const std::vector<NodePod>& pods, Holders& out) {
  const NodePod* const pod = pod_of(holder, pods);
  if (pod == nullptr) {
    const bool in_a_pod = holder.kind == "pod" || !holder.pod_uid.empty();
    (in_a_pod ? out.unknown : out.kept).push_back(holder.text);
  } else if (!pod->kept.empty()) {
    out.kept.push_back(fmt::format("pod {} ({})", pod->text(), pod->kept));
  } else if (std::ranges::find(out.pods, *pod) == out.pods.end()) {
    out.pods.push_back(*pod);
  }
}

Holders holders_of(const SeenHost& host, const std::vector<NodePod>& pods) {
  Holders out;
  for (const SeenAccelerator& gpu : host.accelerators) {
    if (gpu.state != "refused") continue;
    const bool named = !std::ranges::all_of(gpu.holders, &SeenHolder::by_the_plugin);
    for (const SeenHolder& holder : gpu.holders)
      if (!named || !holder.by_the_plugin) add_holder(holder, pods, out);
    if (!gpu.only_in_use) out.kept.push_back(gpu.address + ", which is refused for more than its holders");
  }
  return out;
}

std::string joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string joined(const std::vector<NodePod>& pods) {
  std::vector<std::string> names;
  names.reserve(pods.size());
  for (const NodePod& pod : pods) names.push_back(pod.text());
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

/// The need after a refusal for which no drain runs yet.
DrainNeed need_at_first(const HostSide& host, const DrainView& view, Holders holders, DrainNeed need) {
  if (!host.hostd_speaks) return nothing();  // its users may be others by now, and no change would follow
  if (!view.eviction_refused.empty()) return nothing(view.eviction_refused);
  if (!holders.kept.empty()) return nothing(joined(holders.kept) + " would stay");
  if (!holders.unknown.empty()) return nothing("no such pod is seen here: " + joined(holders.unknown));
  std::erase_if(holders.pods, [](const NodePod& pod) { return pod.ends; });
  if (holders.pods.empty()) return nothing();
  need.kind = Kind::evict;
  need.pods = std::move(holders.pods);
  return need;
}

/// The need while a drain runs.
DrainNeed need_when_begun(const HostSide& host, const DrainView& view, Holders holders, DrainMark::Time since,
                          DrainNeed need) {
  need.begun = true;
  if (!view.cordoned) return over(need, "somebody has uncordoned the node");
  if (!view.eviction_refused.empty()) return over(need, view.eviction_refused);
  // A clock that was set back must not prolong the drain.
  const auto passed = std::chrono::abs(std::chrono::duration_cast<seconds>(view.now - since));
  const seconds timeout = view.timeout.value_or(seconds(0));
  if (passed >= timeout) {
    // The pods are not the cause: the drain begins anew once hostd runs.
    if (!host.hostd_speaks) return nothing("ferry hostd does not run on this node");
    std::vector<std::string> still;
    still.reserve(holders.pods.size());
    for (const NodePod& pod : holders.pods) still.push_back("pod " + pod.text());
    std::ranges::move(holders.kept, std::back_inserter(still));
    std::ranges::move(holders.unknown, std::back_inserter(still));
    std::string why =
        fmt::format("after {} seconds the GPUs are still held by {}", timeout.count(), joined(still));
    if (!view.delayed.empty()) why += fmt::format(" ({})", fmt::join(view.delayed, "; "));
    return over(need, std::move(why));
  }
  need.kind = Kind::evict;
  need.left = timeout - passed;
  // Another device user, or the absence of hostd, would keep the change from its end: the evictions would be
  // in vain.
  if (!host.hostd_speaks || !holders.kept.empty()) return need;
  std::erase_if(holders.pods, [](const NodePod& pod) { return pod.ends; });
  need.pods = std::move(holders.pods);
  return need;
}

std::string purpose(const NodeWish& wish) {
  return fmt::format("policy {} ({})", wish.wished.name, wish.wished.asked_by);
}

DrainStep undone(const NodeObject& node, const DrainView& view, const DrainNeed& need) {
  DrainStep out;
  out.annotations = {{kCordonedAnnotation, std::nullopt}};
  if (!need.keeps_failure) out.annotations[kDrainAnnotation] = std::nullopt;
  if (is_ours(node) && view.cordoned) out.unschedulable = false;
  return out;
}

DrainStep failed(const NodeObject& node, const NodeWish& wish, const DrainView& view, const DrainNeed& need) {
  DrainStep out = undone(node, view, need);
  const std::string why = told(need.why, kLongestFailure);
  const std::string text = drain_mark_text({.generation = need.generation, .since = {}, .failed = why});
  out.annotations[kDrainAnnotation] = text;
  out.report.note = "pods are no longer evicted: " + why;
  if (value_of(node, kDrainAnnotation) != text) {
    out.events.push_back({.warning = true,
                          .reason = "DrainFailed",
                          .message = told(fmt::format(
                              "pods are no longer evicted for {}: {}; it is done when they have let go, and "
                              "nobody is evicted again unless something else is asked for",
                              purpose(wish), why))});
  }
  return out;
}

DrainStep begin(const NodeWish& wish, const DrainView& view, const DrainNeed& need) {
  DrainStep out;
  const auto now = std::chrono::floor<seconds>(view.now);
  out.annotations[kDrainAnnotation] = drain_mark_text({.generation = need.generation, .since = now});
  if (!view.cordoned) {
    out.unschedulable = true;
    out.annotations[kCordonedAnnotation] = "true";
  }
  out.report.draining = true;
  out.events.push_back(
      {.warning = false,
       .reason = "NodeDraining",
       .message = told(fmt::format("for {} these are evicted, for {} seconds at most: {}", purpose(wish),
                                   view.timeout.value_or(seconds(0)).count(), joined(need.pods)))});
  return out;
}

/// A desired state that cannot be read for a moment, or a silent hostd, does not clear the failure.
bool keeps_failure(const NodeObject& node, const HostSide& host, const DrainView& view) {
  const auto mark = read_drain_mark(value_of(node, kDrainAnnotation));
  if (!view.timeout || !mark || mark->since || !host.written) return false;
  const bool done = host.seen && has_answered(host) && host.seen->phase == SeenPhase::as_wanted;
  return mark->generation == host.written->generation && !done;
}

DrainNeed need_now(const NodeObject& node, const NodeWish& wish, const HostSide& host,
                   const DrainView& view) {
  if (!view.timeout || wish.kind != NodeWish::Kind::policy) return nothing();
  if (!host.written || !host.written->says(wish.wished)) return nothing();
  DrainNeed need;
  need.generation = host.written->generation;
  auto mark = read_drain_mark(value_of(node, kDrainAnnotation));
  if (mark && mark->generation != need.generation) mark.reset();
  if (hostd_is_gone(host)) return need;  // no change would follow the evictions
  if (!host.seen || !has_answered(host) || host_is_changing(host)) {
    if (mark && !is_silent(wish, host)) need.kind = Kind::stays;
    return need;
  }
  if (mark && !mark->since && host.seen->phase != SeenPhase::as_wanted) return over(need, mark->failed);
  if (host.seen->phase != SeenPhase::refused) return nothing();
  if (!view.pods && !mark) return nothing("the pods of the node cannot be seen");
  Holders holders = holders_of(*host.seen, view.pods.value_or(std::vector<NodePod>()));
  return mark && mark->since ? need_when_begun(host, view, std::move(holders), *mark->since, std::move(need))
                             : need_at_first(host, view, std::move(holders), std::move(need));
}

}  // namespace

std::set<NamedOwner> owners_in_the_way(const HostSide& host, const std::vector<NodePod>& pods) {
  std::set<NamedOwner> out;
  if (!host.seen) return out;
  for (const SeenAccelerator& gpu : host.seen->accelerators) {
    if (gpu.state != "refused") continue;
    for (const SeenHolder& holder : gpu.holders) {
      const NodePod* const pod = pod_of(holder, pods);
      if (pod != nullptr && pod->daemon_set) out.insert(*pod->daemon_set);
    }
  }
  return out;
}

DrainNeed drain_need(const NodeObject& node, const NodeWish& wish, const HostSide& host,
                     const DrainView& view) {
  DrainNeed need = need_now(node, wish, host, view);
  need.keeps_failure = keeps_failure(node, host, view);
  return need;
}

DrainStep drain_undone(const NodeObject& node, bool cordoned) {
  DrainStep out;
  // A failed drain stays recorded.
  const auto mark = read_drain_mark(value_of(node, kDrainAnnotation));
  if (mark && mark->since) out.annotations[kDrainAnnotation] = std::nullopt;
  if (!is_ours(node)) return out;
  out.annotations[kCordonedAnnotation] = std::nullopt;
  if (cordoned) out.unschedulable = false;
  return out;
}

DrainStep drain_step(const NodeObject& node, const NodeWish& wish, const DrainView& view,
                     const DrainNeed& need, const BudgetStep& budget) {
  if (!view.cordon_refused.empty()) {
    DrainStep out;
    out.report.note = view.cordon_refused;
    return out;
  }
  switch (need.kind) {
    case Kind::stays:
      return {};
    case Kind::over:
      return failed(node, wish, view, need);
    case Kind::evict:
      break;
    case Kind::nothing: {
      DrainStep out = undone(node, view, need);
      if (!need.why.empty()) out.report.note = "pods are not evicted: " + need.why;
      return out;
    }
  }
  const bool stopped = !budget.held.empty() && !(need.begun && budget.unknown);
  if (stopped || (!need.begun && !budget.may_begin)) {
    DrainStep out = undone(node, view, need);
    if (!budget.held.empty()) out.report.note = "pods are not evicted: " + budget.held;
    return out;
  }
  if (!need.begun) return begin(wish, view, need);
  DrainStep out;
  out.report.draining = true;
  out.report.note = fmt::format("{}", fmt::join(view.delayed, "; "));
  out.left = need.left;
  if (budget.may_begin) out.evict = need.pods;
  return out;
}

}  // namespace ferry
