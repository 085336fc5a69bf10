// SPDX-License-Identifier: Apache-2.0
#include "agent/node_step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "agent/desired_state/known_policies.h"
#include "agent/labels/own_labels.h"
#include "agent/rollout/rollout.h"
#include "api/labels.h"

namespace ferry::agent {
namespace {

DesiredState desired_state_for(const NodeSnapshot& view, const std::vector<OtherOwner>& owners) {
  DesiredState desired_state = resolve_desired_state(view.node, view.configs, view.defaults, view.unreadable);
  if (view.incomplete && desired_state.kind != DesiredState::Kind::nothing) {
    desired_state.kind = DesiredState::Kind::invalid;
    desired_state.error = Error(*view.incomplete).during("no GPU is changed");
    return desired_state;
  }
  // Without a desired state there is no reason for standby.
  if (owners.empty() || desired_state.kind == DesiredState::Kind::nothing) return desired_state;
  desired_state.kind = DesiredState::Kind::standby;
  desired_state.reason = standby_because(owners);
  desired_state.of_vgpu_config = false;  // the other program reports its state
  return desired_state;
}

/// True if all GPUs are in the desired mode already. Only a policy with an item for all GPUs, and without
/// vGPUs, can be decided here.
bool host_is_so(const policy::Policy& policy, const api::HostStatus& host) {
  if (policy.items.size() != 1) return false;
  const policy::PolicyItem& item = policy.items.front();
  const bool of_all = item.gpus.all_devices && item.gpus.filters.empty() && item.selection.models.empty() &&
                      item.selection.addresses.empty() && item.selection.numa_nodes.empty() &&
                      item.selection.vendors.empty();
  return of_all && item.mode != policy::Mode::vgpu &&
         std::ranges::all_of(host.accelerators,
                             [&](const api::AcceleratorStatus& gpu) { return gpu.mode == item.mode; });
}

bool is_written(const DesiredState& desired_state, const HostSide& host) {
  return host.written && says(*host.written, desired_state.desired_policy);
}

/// True if writing the desired state changes GPUs, or may. Once it is written, hostd reports the result.
bool would_change(const DesiredState& desired_state, const HostSide& host) {
  if (desired_state.kind != DesiredState::Kind::policy || is_written(desired_state, host)) return false;
  // A running change may have changed a GPU already.
  if (host.status && !host_is_changing(host) && host_is_so(desired_state.desired_policy.policy, *host.status))
    return false;
  return !is_done_already(desired_state, host);
}

/// True if a change follows. An unwritable desired.json must not keep operands paused.
bool change_is_coming(const DesiredState& desired_state, const HostSide& host) {
  return host.unwritable.empty() && would_change(desired_state, host);
}

/// True if hostd refused a GPU that only pausable operands use. They were resumed when another device user
/// led to the refusal, and opened the GPU again. After kPausePatience the operands are not waited for.
bool operands_are_in_the_way(const NodeSnapshot& view, const DesiredState& desired_state) {
  const HostSide& host = view.host;
  if (!is_taken_up(desired_state, host) || !host.status || !host.hostd_speaks || !view.others.pods)
    return false;
  if (host.status->phase != api::NodePhase::blocked || host.silent > kPausePatience) return false;
  const auto is_operands = [&](const api::ReportedUser& user) {
    const auto pod = std::ranges::find(*view.others.pods, user.pod_uid, &PodOnNode::uid);
    return !user.pod_uid.empty() && pod != view.others.pods->end() &&
           can_be_paused(view.node.labels, pod->daemon_set);
  };
  return std::ranges::any_of(host.status->accelerators, [&](const api::AcceleratorStatus& gpu) {
    return gpu.state == api::GpuState::blocked && gpu.only_in_use && !gpu.users.empty() &&
           std::ranges::all_of(gpu.users, is_operands);
  });
}

void add_warnings(const NodeSnapshot& view, bool pause, DesiredState& desired_state) {
  if (desired_state.kind == DesiredState::Kind::policy || desired_state.kind == DesiredState::Kind::invalid)
    desired_state.warnings.insert(desired_state.warnings.end(), view.passed_over.begin(),
                                  view.passed_over.end());
  if (!pause) return;
  for (const std::string& label : operands_that_stay(view.node.labels))
    desired_state.warnings.push_back(
        fmt::format("label {} cannot be paused: its value is too long for the mark behind it", label));
}

/// Warns of an idle device plugin. On standby the message of the standby says it.
void warn_of_idle_plugin(const OtherPrograms& others, const std::vector<OtherOwner>& owners,
                         DesiredState& desired_state) {
  if (desired_state.kind == DesiredState::Kind::standby || others.are_neighbours) return;
  const std::string why = plugin_is_on_standby(others).value_or(std::string());
  if (why.empty()) return;
  const std::string lines = hand_over_text(owners);
  desired_state.warnings.push_back(fmt::format(
      "Ferry's device plugin advertises nothing here: {}; {}", why,
      lines.empty() ? "remove it to hand the node over" : "ClusterPolicy hands it over with " + lines));
}

/// True if a label of this node asks for the policy, and desired.json is not from that label.
bool is_by_label(const DesiredState& desired_state, const HostSide& host) {
  return desired_state.desired_policy.source.starts_with("label ") &&
         (!host.written || host.written->source != desired_state.desired_policy.source);
}

NodeChange change_of(const NodeSnapshot& view, const DesiredState& desired_state, const DrainNeed& drain) {
  const HostSide& host = view.host;
  NodeChange change;
  change.node = view.node.name;
  // While desired.json cannot be written, each try may be the one that begins the change.
  if (would_change(desired_state, host)) {
    change.begin = configuration_id(desired_state.desired_policy.policy);
    change.by_label = is_by_label(desired_state, host);
  }
  if (drain.kind == DrainNeed::Kind::evict) {
    change.begin = configuration_id(desired_state.desired_policy.policy);
    change.by_label = desired_state.desired_policy.source.starts_with("label ");
  }
  if (host.written) {
    const auto policy = policy_in(*host.written);
    change.written = policy ? configuration_id(*policy) : std::string();
  }
  change.outcome = change_outcome(host);
  if (change.outcome == ChangeOutcome::failed) change.why = failure_of(host);
  // A hostd that has not come back, as after a boot, says nothing about its desired state.
  change.is_news = view.failure_is_news && says_that_it_failed(host);
  change.has_any =
      host.status && std::ranges::any_of(host.status->accelerators, [](const api::AcceleratorStatus& gpu) {
        return gpu.desired.has_value();
      });
  return change;
}

bool is_told(const std::optional<Rollout>& rollout, const NodeChange& change) {
  return change.outcome == ChangeOutcome::failed && rollout && rollout->known &&
         rollout->verdicts.failed.contains(change.written);
}

/// The rollout leases of the node; without a budget no lease is needed.
SharedLease turn_of(const NodeSnapshot& view, const NodeChange& gpus, const KataPlan& kata) {
  if (!view.rollout) return {};
  NodeChange of_kata = kata.change;
  of_kata.node = view.node.name;
  return share_lease(*view.rollout, gpus, of_kata);
}

/// The part of `desired` that `labels` do not have yet.
LabelChanges differences(const Labels& labels, const LabelChanges& desired) {
  LabelChanges out;
  for (const auto& [key, value] : desired) {
    const auto now = labels.find(key);
    if (value ? now == labels.end() || now->second != *value : now != labels.end()) out[key] = value;
  }
  return out;
}

/// The pod of a paused operand that still has to end; empty: none.
std::string still_to_go(const NodeSnapshot& view) {
  const auto going = paused_daemon_sets(view.node.labels);
  if (going.empty()) return {};
  if (!view.others.pods) return "the paused operands' pods, which cannot be seen, to end";
  const auto pod = std::ranges::find_if(*view.others.pods,
                                        [&](const PodOnNode& one) { return going.contains(one.daemon_set); });
  return pod == view.others.pods->end() ? std::string() : fmt::format("pod {} to end", text(*pod));
}

void plan_desired_file(const NodeSnapshot& view, const std::vector<OtherOwner>& owners,
                       const LabelChanges& pausing, NodeStep& step) {
  const HostSide& host = view.host;
  if (step.desired_state.kind == DesiredState::Kind::invalid) return;
  if (step.desired_state.kind != DesiredState::Kind::policy) {
    // If only a label says so, and no DaemonSet was listed, Ferry does not give up a node that it serves.
    const bool sure = step.desired_state.kind == DesiredState::Kind::nothing ||
                      std::ranges::any_of(owners, [](const OtherOwner& owner) { return owner.seen; });
    step.remove_desired_file = sure && host.written.has_value();
    return;
  }
  if (is_written(step.desired_state, host)) return;
  if (!step.rollout.may_begin) {
    step.waits_for = step.rollout.waits_for;
    return;
  }
  if (view.paused <= kPausePatience) {
    if (!view.own_refused.empty()) {
      step.waits_for = "the API server to take labels of ours";
    } else if (!pausing.empty()) {
      step.waits_for = "the operands' labels to be paused";
    } else if (change_is_coming(step.desired_state, host)) {
      step.waits_for = still_to_go(view);
    }
  }
  step.awaits_operands = !step.waits_for.empty();
  if (step.awaits_operands) return;
  // Higher than any generation that hostd has read, even of a lost file: its answer must belong to this file.
  const std::uint64_t written = host.written ? host.written->generation.value_or(0) : 0;
  const std::uint64_t seen = host.status ? host.status->desired_generation().value_or(0) : 0;
  step.desired_file = file_of(step.desired_state.desired_policy, std::max(written, seen) + 1);
}

/// Absent: the host status is not known, and the labels stay. Labels that vanish at each boot would move the
/// pods that they place. If hostd is down for too long, the labels are removed, since they are not kept up to
/// date.
std::optional<Labels> features_of(const HostSide& host) {
  if (hostd_is_gone(host)) return Labels();
  return host.status ? feature_labels(*host.status) : std::nullopt;
}

void plan_features(const NodeSnapshot& view, LabelChanges& labels, LabelChanges& annotations,
                   NodeStep& step) {
  auto features = features_of(view.host);
  if (view.features == FeatureWay::node && !features) return;
  const auto annotation = [&](const char* name) {
    const auto found = view.node.annotations.find(name);
    return found == view.node.annotations.end() ? std::string_view() : std::string_view(found->second);
  };
  const bool ours = view.features == FeatureWay::node;
  // NFD may have set these labels already, and not yet listed them in its annotation.
  const bool nfds = view.features == FeatureWay::file || view.features == FeatureWay::nfd;
  Labels record = read_label_record(annotation(api::kFeaturesAnnotation));
  std::erase_if(record, [](const auto& label) { return !is_feature_label(label.first); });
  OwnLabels own =
      own_labels(view.node.labels, std::move(record), ours ? features.value_or(Labels()) : Labels(),
                 nfds ? Labels() : own_features(view.node.labels, annotation(api::kNfdAnnotation)));
  if (view.labels_refused.empty()) {
    labels.merge(own.changes);
    annotations[api::kFeaturesAnnotation] = std::move(own.record);
  } else if (!own.changes.empty()) {
    return;  // NFD sets no label that the agent has yet to remove
  }
  if (view.features == FeatureWay::file)
    step.feature_file = std::move(features);
  else if (view.features == FeatureWay::nfd)
    step.node_feature = std::move(features);
}

/// Reports labels that the API server refuses; empty `why`: it refuses none.
void add_refusal(const char* which, const std::string& why, NodeStep& step) {
  if (why.empty()) return;
  std::string text = fmt::format("{} stay as they are: {}", which, why);
  add_to_error(step.report, text);
  step.desired_state.warnings.push_back(std::move(text));
}

/// The plan of an agent that ends: no change and no pull begins.
KataPlan last_kata_plan(const NodeSnapshot& view) {
  if (!view.kata) return {};
  KataSnapshot kata = *view.kata;
  kata.pulls_no_more = true;
  KataPlan out = kata_plan(view.node, view.host, kata, view.rollout ? &*view.rollout : nullptr);
  out.change.begin.clear();
  return out;
}

/// A vGPU configuration that is no longer desired, and that hostd never took up, is not pending.
void end_pending(const Labels& labels, NodeStep& step) {
  if (step.desired_state.of_vgpu_config || step.desired_state.kind == DesiredState::Kind::policy) return;
  const auto now = labels.find(api::kVgpuStateLabel);
  if (now != labels.end() && now->second == "pending")
    step.report.labels[api::kVgpuStateLabel] = std::nullopt;
}

bool can_wait(const std::string& label) {
  return is_feature_label(label) || label.starts_with(api::kKataPrefix);
}

}  // namespace

NodeStep node_step(const NodeSnapshot& view) {
  begin_look_at_policies();
  const Labels& labels = view.node.labels;
  const auto owners = other_owners(labels, view.others);
  NodeStep step;
  step.desired_state = desired_state_for(view, owners);
  const DrainNeed need =
      view.drain ? drain_need(view.node, step.desired_state, view.host, *view.drain) : DrainNeed();
  const KataPlan kata =
      view.kata ? kata_plan(view.node, view.host, *view.kata, view.rollout ? &*view.rollout : nullptr)
                : KataPlan();
  const NodeChange change = change_of(view, step.desired_state, need);
  step.outcome = change.outcome;
  step.failure_is_told = is_told(view.rollout, change);
  SharedLease turn = turn_of(view, change, kata);
  step.rollout = std::move(turn.gpus);
  step.lease = std::move(turn.lease);
  if (view.kata) step.kata = kata_step(view.node, view.host, *view.kata, kata, turn.kata);
  DrainStep drain =
      view.drain ? drain_step(view.node, step.desired_state, *view.drain, need, step.rollout) : DrainStep();
  step.report = node_report(step.desired_state, view.host, step.rollout.held, drain.report);
  add_refusal("labels of features and of Kata's handlers", view.labels_refused, step);
  add_refusal("labels that report the state, and those of operands,", view.own_refused, step);

  // Operands are not paused for a silent host, whatever the desired state is by now.
  const bool in_vain = waits_in_vain(view.host);
  const bool changing = host_is_changing(view.host) && !in_vain;
  // A drain counts too: an operand that came back would open the GPUs, and its pod is never evicted.
  const bool coming = change_is_coming(step.desired_state, view.host) || need.kind == DrainNeed::Kind::evict;
  const bool pause = step.desired_state.kind == DesiredState::Kind::policy &&
                     !is_silent(step.desired_state, view.host) &&
                     ((changing && !view.host.has_failed) || (coming && step.rollout.may_begin) ||
                      operands_are_in_the_way(view, step.desired_state));
  // The labels may ask for another state by now, but hostd may still work on the last one.
  const bool keep = (changing || !has_answered(view.host)) && !in_vain;
  const LabelChanges pausing = pause ? pause_operands(labels) : LabelChanges();
  add_warnings(view, pause, step.desired_state);
  warn_of_idle_plugin(view.others, owners, step.desired_state);
  if (owners.empty() && !keep) end_pending(labels, step);
  LabelChanges desired;
  if (view.own_refused.empty()) {
    desired = step.report.labels;
    desired.merge(pause ? LabelChanges(pausing) : keep ? LabelChanges() : resume_operands(labels));
  }
  if (view.labels_refused.empty())
    desired.merge(kata_labels(labels, view.kata ? labelled_handlers(view.node, view.host)
                                                : known_to_kubelet(view.node, view.host.kata.ready)));
  drain.annotations.merge(LabelChanges(step.report.annotations));
  drain.annotations[api::kKataErrorAnnotation] =
      step.kata.trouble.empty() ? std::nullopt : std::optional<std::string>(step.kata.trouble);
  plan_features(view, desired, drain.annotations, step);
  step.labels = differences(labels, desired);
  step.annotations = differences(view.node.annotations, drain.annotations);
  step.unschedulable = drain.unschedulable;
  step.evict = std::move(drain.evict);
  step.drain_left = drain.left;
  step.events = node_events(view.node, step.desired_state, view.host, step.report, view.told);
  std::ranges::move(drain.events, std::back_inserter(step.events));
  std::ranges::copy(step.kata.events, std::back_inserter(step.events));
  step.files = status_files(step.desired_state, view.host);
  plan_desired_file(view, owners, pausing, step);
  if (!view.others.are_neighbours) step.standby = plugin_is_on_standby(view.others);
  return step;
}

LastLease last_lease(const NodeSnapshot& view) {
  LastLease out;
  if (!view.rollout) return out;
  RolloutStep lease = turn_of(view, change_of(view, DesiredState(), DrainNeed()), last_kata_plan(view)).lease;
  if (lease.kind == RolloutStep::Kind::take) return out;
  out.lease = std::move(lease);
  const auto& written = view.host.kata_written;
  if (is_kata_configuration(out.lease.configuration) && written && written->permitted) {
    out.kata = written;
    out.kata->permitted = false;
  }
  return out;
}

bool has_labels_that_can_wait(const NodeStep& step) {
  return step.annotations.contains(api::kFeaturesAnnotation) ||
         std::ranges::any_of(step.labels, [](const auto& change) { return can_wait(change.first); });
}

bool has_own_labels(const NodeStep& step) {
  return !std::ranges::all_of(step.labels, [](const auto& change) { return can_wait(change.first); });
}

}  // namespace ferry::agent
