// SPDX-License-Identifier: Apache-2.0
#include "agent/node_step.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry {
namespace {

NodeWish wish_of(const NodeView& view, const std::vector<OtherOwner>& owners) {
  NodeWish wish = node_wish(view.node, view.configs, view.defaults);
  // Where nothing is asked for there is nothing to stand back from.
  if (owners.empty() || wish.kind == NodeWish::Kind::nothing) return wish;
  wish.kind = NodeWish::Kind::stand_back;
  wish.reason = stood_back_because(owners);
  wish.of_vgpu_config = false;  // its state is the other's to say
  return wish;
}

bool host_is_changing(const HostSide& host) {
  return host.seen && (host.seen->phase == SeenPhase::changing || host.seen->phase == SeenPhase::withdrawing);
}

/// Whether the GPUs are such already, as far as that can be told from here: all host, or all given away.
bool host_is_so(const Policy& policy, const SeenHost& host) {
  if (policy.items.size() != 1) return false;
  const PolicyItem& item = policy.items.front();
  const bool of_all = item.gpus.all_devices && item.gpus.filters.empty() && item.selection.models.empty() &&
                      item.selection.addresses.empty() && item.selection.numa_nodes.empty() &&
                      item.selection.vendors.empty();
  return of_all && item.mode != Mode::vgpu &&
         std::ranges::all_of(host.accelerators,
                             [&](const SeenAccelerator& gpu) { return gpu.mode == item.mode; });
}

/// Whether writing the wish down will, or may, change GPUs. What hostd has taken up it says itself.
bool change_is_coming(const NodeWish& wish, const HostSide& host) {
  if (wish.kind != NodeWish::Kind::policy || is_taken_up(wish, host)) return false;
  if (host.seen && host_is_so(wish.wished.policy, *host.seen)) return false;
  return !is_done_already(wish, host);
}

/// Less what is so already.
LabelChanges differences(const Labels& labels, const LabelChanges& wanted) {
  LabelChanges out;
  for (const auto& [key, value] : wanted) {
    const auto now = labels.find(key);
    if (value ? now == labels.end() || now->second != *value : now != labels.end()) out[key] = value;
  }
  return out;
}

/// The pod that is still to go; empty: none.
std::string pod_to_go(const NodeView& view) {
  if (!view.others.pods) return {};
  const auto going = paused_daemon_sets(view.node.labels);
  const auto pod = std::ranges::find_if(*view.others.pods,
                                        [&](const PodOnNode& one) { return going.contains(one.daemon_set); });
  return pod == view.others.pods->end() ? std::string() : pod->name;
}

void plan_wish_file(const NodeView& view, const LabelChanges& pausing, NodeStep& step) {
  const HostSide& host = view.host;
  if (step.wish.kind == NodeWish::Kind::invalid) return;
  if (step.wish.kind != NodeWish::Kind::policy) {
    step.remove_wish_file = host.written.has_value();
    return;
  }
  if (host.written && host.written->says(step.wish.wished)) return;
  if (!pausing.empty()) {
    step.waits_for = "the operands' labels to be paused";
    return;
  }
  const std::string pod = change_is_coming(step.wish, host) ? pod_to_go(view) : std::string();
  if (!pod.empty() && view.paused <= kPausePatience) {
    step.waits_for = fmt::format("pod {} to end", pod);
    return;
  }
  // Also above what hostd has seen of a file that was lost: an answer to that one is none to this.
  const std::uint64_t written = host.written ? host.written->generation : 0;
  const std::uint64_t seen = host.seen ? host.seen->wanted.value_or(0) : 0;
  step.wish_file = {.generation = std::max(written, seen) + 1,
                    .policy = step.wish.wished.name,
                    .config = step.wish.wished.config,
                    .asked_by = step.wish.wished.asked_by};
}

}  // namespace

NodeStep node_step(const NodeView& view) {
  const Labels& labels = view.node.labels;
  const auto owners = other_owners(labels, view.others);
  NodeStep step;
  step.wish = wish_of(view, owners);
  step.report = node_report(step.wish, view.host);

  const bool changing = host_is_changing(view.host);
  const bool pause = step.wish.kind == NodeWish::Kind::policy && !is_silent(step.wish, view.host) &&
                     (changing || change_is_coming(step.wish, view.host));
  // The labels may ask for something else by now; what was written last is still on its way.
  const bool keep = (changing || !has_answered(view.host)) && !is_silent(step.wish, view.host);
  const LabelChanges pausing = pause ? pause_operands(labels) : LabelChanges();
  LabelChanges wanted = step.report.labels;
  wanted.merge(pause ? LabelChanges(pausing) : keep ? LabelChanges() : resume_operands(labels));
  step.labels = differences(labels, wanted);
  step.annotations = differences(view.node.annotations, step.report.annotations);
  step.events = node_events(view.node, step.wish, view.host, step.report, view.told);
  step.files = status_files(step.wish, view.host);
  plan_wish_file(view, pausing, step);
  return step;
}

}  // namespace ferry
