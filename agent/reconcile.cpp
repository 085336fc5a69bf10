// SPDX-License-Identifier: Apache-2.0
#include "agent/reconcile.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/desired_state/written_policy.h"
#include "agent/labels/feature_labels.h"
#include "agent/labels/own_labels.h"
#include "agent/operator_compat/cc_manager.h"
#include "agent/rollout/rollout.h"
#include "api/labels.h"
#include "common/generation.h"
#include "common/text/words.h"
#include "vfio/registers/register_facts.h"

namespace ferry::agent {
namespace {

DesiredState desired_state_for(const NodeSnapshot& snapshot, const std::vector<OtherOwner>& owners) {
  DesiredState desired_state =
      resolve_desired_state(snapshot.node, snapshot.configs, snapshot.defaults, snapshot.unreadable);
  if (snapshot.incomplete && desired_state.kind != DesiredState::Kind::nothing) {
    desired_state.kind = DesiredState::Kind::invalid;
    desired_state.error = Error(*snapshot.incomplete).during("no GPU is changed");
    return desired_state;
  }
  // Without a desired state there is no reason for standby.
  if (owners.empty() || desired_state.kind == DesiredState::Kind::nothing) return desired_state;
  desired_state.kind = DesiredState::Kind::standby;
  desired_state.reason = standby_because(owners);
  desired_state.of_vgpu_config = false;  // the other program reports its state
  return desired_state;
}

/// Takes the confidential mode that the Node's label asks for, on a node with a policy.
void take_cc_mode(const NodeSnapshot& snapshot, DesiredState& desired_state) {
  const std::string word = value_of(snapshot.node.labels, api::kCcModeLabel);
  if (!snapshot.sets_cc_mode || word.empty() || desired_state.kind != DesiredState::Kind::policy) return;
  const auto mode = value_for(vfio::kWantedModes, word);
  std::string why;
  if (has_cc_manager(snapshot.node.labels)) {
    why = "NVIDIA's CC manager sets the mode of this node";
  } else if (mode == vfio::WantedMode::ppcie) {
    why = "it concerns a whole board: set it on the host by `ferry cc set ppcie`";
  } else if (!mode) {
    why = "the modes are on, off and devtools";
  } else {
    desired_state.cc_mode = mode;
    return;
  }
  desired_state.warnings.push_back(
      fmt::format("Ferry leaves label {}={} alone: {}", api::kCcModeLabel, word, why));
}

/// True if all GPUs are in the desired mode already. Only a policy with an item for all GPUs, and without
/// vGPUs, can be decided here.
bool has_all_modes(const policy::Policy& policy, const api::HostStatus& host) {
  if (policy.items.size() != 1) return false;
  if (host.accelerators.empty() && host.error) return false;  // the host could not be scanned
  const policy::PolicyItem& item = policy.items.front();
  const bool of_all = item.gpus.all_devices && item.gpus.filters.empty() && item.selection.empty();
  const bool for_dra = item.allocation == policy::Allocation::dra;  // the claims of a GPU decide its mode
  return of_all && item.mode != policy::Mode::vgpu &&
         std::ranges::all_of(host.accelerators, [&](const api::AcceleratorStatus& gpu) {
           return gpu.allocation == item.allocation && (for_dra || gpu.mode == item.mode);
         });
}

bool is_written(const DesiredState& desired_state, const HostSide& host) {
  return host.written && says(*host.written, desired_state.desired_policy);
}

/// True if writing the desired state changes GPUs, or may. Once it is written, hostd reports the result.
bool would_change(const DesiredState& desired_state, const HostSide& host) {
  if (desired_state.kind != DesiredState::Kind::policy || is_written(desired_state, host)) return false;
  // A running change may have changed a GPU already.
  if (host.status && !host_is_changing(host) &&
      has_all_modes(desired_state.desired_policy.policy, *host.status))
    return false;
  return !is_done_already(desired_state, host);
}

/// True if a change follows. An unwritable desired.json must not keep operands paused.
bool change_is_coming(const DesiredState& desired_state, const HostSide& host) {
  return host.unwritable.empty() && would_change(desired_state, host);
}

/// UIDs of the pods that end once their operands are paused.
std::set<std::string> pods_of_operands(const NodeSnapshot& snapshot) {
  std::set<std::string> out;
  if (!snapshot.others.pods) return out;
  for (const PodOnNode& pod : *snapshot.others.pods)
    if (!pod.uid.empty() && can_be_paused(snapshot.node.labels, pod.daemon_set)) out.insert(pod.uid);
  return out;
}

/// True if hostd refused a GPU that only pausable operands use. They were resumed when another device user
/// led to the refusal, and opened the GPU again. After kPausePatience the operands are not waited for.
bool operands_are_in_the_way(const NodeSnapshot& snapshot, const DesiredState& desired_state) {
  const HostSide& host = snapshot.host;
  if (!is_taken_up(desired_state, host) || !host.status || !host.hostd_speaks) return false;
  if (host.status->phase != api::NodePhase::blocked || host.silent > kPausePatience) return false;
  const auto is_operands = [operands = pods_of_operands(snapshot)](const api::ReportedUser& user) {
    return operands.contains(user.pod_uid);
  };
  return std::ranges::any_of(host.status->accelerators, [&](const api::AcceleratorStatus& gpu) {
    return gpu.state == api::GpuState::blocked && gpu.only_in_use && !gpu.users.empty() &&
           std::ranges::all_of(gpu.users, is_operands);
  });
}

struct OperandPause {
  bool pause = false;   ///< operands are paused
  bool keep = false;    ///< else: operands that are paused stay so, and no others are paused
  LabelChanges labels;  ///< the changes for that
};

OperandPause operand_pause(const NodeSnapshot& snapshot, const DesiredState& desired_state,
                           const DrainNeed& drain, const RolloutStep& rollout) {
  const HostSide& host = snapshot.host;
  // Operands are not paused for a silent host, whatever the desired state is by now.
  const bool in_vain = waits_in_vain(host);
  const bool changing = host_is_changing(host) && !in_vain;
  // A drain counts too: an operand that came back would open the GPUs, and its pod is never evicted.
  const bool coming = change_is_coming(desired_state, host) || drain.kind == DrainNeed::Kind::evict;
  OperandPause out;
  out.pause = desired_state.kind == DesiredState::Kind::policy && !is_silent(desired_state, host) &&
              ((changing && !host.has_failed) || (coming && rollout.may_begin) ||
               operands_are_in_the_way(snapshot, desired_state));
  // The labels may ask for another state by now, but hostd may still work on the last one.
  out.keep = (changing || !has_answered(host)) && !in_vain;
  if (out.pause)
    out.labels = pause_operands(snapshot.node.labels);
  else if (!out.keep)
    out.labels = resume_operands(snapshot.node.labels);
  return out;
}

/// Warns of addresses in the policy that no GPU of the node has. They are no error, since a policy may be for
/// several nodes. Only a host status about this policy counts: its GPUs depend on the policy's addresses.
void warn_of_absent_gpus(const HostSide& host, DesiredState& desired_state) {
  if (desired_state.kind != DesiredState::Kind::policy || !host.status || host.status->error) return;
  if (!is_taken_up(desired_state, host) && !is_done_already(desired_state, host)) return;
  std::vector<std::string> absent;
  for (const policy::PolicyItem& item : desired_state.desired_policy.policy.items)
    for (const vfio::PciAddress& address : item.selection.addresses)
      if (std::ranges::find(host.status->accelerators, address, &api::AcceleratorStatus::address) ==
          host.status->accelerators.end())
        absent.push_back(address.text());
  if (absent.empty()) return;
  desired_state.warnings.push_back(
      fmt::format("policy {} names {}, and this node has no such GPU: correct the address if it is a "
                  "mistake; `ferry status` on the node lists its GPUs",
                  desired_state.desired_policy.name, fmt::join(absent, ", ")));
}

/// Adds a warning for each part of the desired state that has no effect, and for GPUs and programs that do
/// not serve the node.
void add_warnings(const NodeSnapshot& snapshot, const std::vector<OtherOwner>& owners, bool pause,
                  DesiredState& desired_state) {
  std::vector<std::string>& warnings = desired_state.warnings;
  if (desired_state.kind == DesiredState::Kind::policy || desired_state.kind == DesiredState::Kind::invalid)
    std::ranges::copy(snapshot.passed_over, std::back_inserter(warnings));
  if (pause) {
    for (const std::string& label : operands_that_stay(snapshot.node.labels))
      warnings.push_back(
          fmt::format("label {} cannot be paused: its value is too long for the mark behind it", label));
  }
  warn_of_absent_gpus(snapshot.host, desired_state);
  for (NodeEvent& warning : gpu_warnings(snapshot.node, snapshot.host))
    warnings.push_back(std::move(warning.message));

  // On standby the message of the standby says that the device plugin is idle.
  if (desired_state.kind == DesiredState::Kind::standby || snapshot.others.are_neighbours) return;
  const std::string why = plugin_is_on_standby(snapshot.others).value_or(std::string());
  if (why.empty()) return;
  const std::string lines = hand_over_text(owners);
  warnings.push_back(fmt::format(
      "Ferry's device plugin advertises nothing here: {}; {}", why,
      lines.empty() ? "remove it to hand the node over" : "ClusterPolicy hands it over with " + lines));
}

NodeChange change_of(const NodeSnapshot& snapshot, const DesiredState& desired_state,
                     const DrainNeed& drain) {
  const HostSide& host = snapshot.host;
  NodeChange change;
  change.node = snapshot.node.name;
  const std::string& source = desired_state.desired_policy.source;
  const bool of_label = source.starts_with("label ");
  // While desired.json cannot be written, each try may be the one that begins the change.
  if (would_change(desired_state, host)) {
    change.begin = configuration_id(desired_state.desired_policy.policy);
    // A label of this node asks for the policy, and desired.json is not from that label.
    change.by_label = of_label && (!host.written || host.written->source != source);
  }
  if (drain.kind == DrainNeed::Kind::evict) {
    change.begin = configuration_id(desired_state.desired_policy.policy);
    change.by_label = of_label;
  }
  if (host.written) {
    const auto policy = policy_in(*host.written);
    change.written = policy ? configuration_id(*policy) : std::string();
  }
  change.outcome = change_outcome(host);
  if (change.outcome == ChangeOutcome::failed) change.why = failure_of(host);
  // A hostd that has not come back, as after a boot, says nothing about its desired state.
  const bool was_blocked = host.written && snapshot.memory.change.blocked == host.written->generation;
  change.is_news = host.hostd_speaks && was_blocked && says_that_it_failed(host);
  change.has_any =
      host.status && std::ranges::any_of(host.status->accelerators, [](const api::AcceleratorStatus& gpu) {
        return gpu.desired.has_value() || gpu.allocation == policy::Allocation::dra;
      });
  return change;
}

/// The rollout leases of the node; without a budget no lease is needed.
SharedLease leases_of(const NodeSnapshot& snapshot, const NodeChange& gpus, const KataPlan& kata) {
  if (!snapshot.rollout) return {};
  NodeChange of_kata = kata.change;
  of_kata.node = snapshot.node.name;
  return share_lease(*snapshot.rollout, gpus, of_kata);
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
std::string still_to_go(const NodeSnapshot& snapshot) {
  const auto going = paused_daemon_sets(snapshot.node.labels);
  if (going.empty()) return {};
  if (!snapshot.others.pods) return "the paused operands' pods, which cannot be seen, to end";
  const auto pod = std::ranges::find_if(*snapshot.others.pods,
                                        [&](const PodOnNode& one) { return going.contains(one.daemon_set); });
  return pod == snapshot.others.pods->end() ? std::string() : fmt::format("pod {} to end", pod->text());
}

void plan_desired_file(const NodeSnapshot& snapshot, const std::vector<OtherOwner>& owners,
                       const OperandPause& operands, ReconcileResult& result) {
  const HostSide& host = snapshot.host;
  if (result.desired_state.kind == DesiredState::Kind::invalid) return;
  if (result.desired_state.kind != DesiredState::Kind::policy) {
    // If only a label says so, and no DaemonSet was listed, Ferry does not give up a node that it serves.
    const bool sure = result.desired_state.kind == DesiredState::Kind::nothing ||
                      std::ranges::any_of(owners, [](const OtherOwner& owner) { return owner.seen; });
    result.remove_desired_file = sure && host.written.has_value();
    return;
  }
  const bool is_known = is_written(result.desired_state, host);
  if (is_known && host.written && host.written->cc_mode == result.desired_state.cc_mode) return;
  if (!is_known && !result.rollout.may_begin) {
    result.waits_for = result.rollout.waits_for;
    return;
  }
  if (snapshot.paused <= kPausePatience) {
    if (!snapshot.memory.patch.refusals.own(snapshot.now).empty()) {
      result.waits_for = "the API server to accept Ferry's labels";
    } else if (operands.pause && !operands.labels.empty()) {
      result.waits_for = "the operands' labels to be paused";
    } else if (change_is_coming(result.desired_state, host)) {
      result.waits_for = still_to_go(snapshot);
    }
  }
  result.awaits_operands = !result.waits_for.empty();
  if (result.awaits_operands) return;
  // Higher than any generation that hostd has read, even of a lost file: its answer must belong to this file.
  const std::uint64_t written = host.written ? host.written->generation.value_or(0) : 0;
  const std::uint64_t seen = host.status ? host.status->desired_generation().value_or(0) : 0;
  result.desired_file =
      file_of(result.desired_state.desired_policy, next_generation(std::max(written, seen)));
  result.desired_file->cc_mode = result.desired_state.cc_mode;
}

void plan_features(const NodeSnapshot& snapshot, LabelChanges& labels, LabelChanges& annotations,
                   ReconcileResult& result) {
  // Absent: the host status is not known, and the labels stay. Labels that vanish at each boot would move the
  // pods that they place. If hostd is down for too long, the labels are removed: nothing keeps them up to
  // date.
  std::optional<Labels> features;
  if (hostd_is_gone(snapshot.host))
    features = Labels();
  else if (snapshot.host.status)
    features = feature_labels(*snapshot.host.status, snapshot.not_confidential);
  if (snapshot.features == FeatureWay::node && !features) return;
  const bool ours = snapshot.features == FeatureWay::node;
  // NFD may have set these labels already, and not yet listed them in its annotation.
  const bool nfds = snapshot.features == FeatureWay::nfd;
  Labels record = read_label_record(value_of(snapshot.node.annotations, api::kFeaturesAnnotation));
  std::erase_if(record, [](const auto& label) { return !is_feature_label(label.first); });
  if (features && has_cc_manager(snapshot.node.labels)) leave_mode_labels(record, *features);
  OwnLabels own = own_labels(
      snapshot.node.labels, std::move(record), ours ? features.value_or(Labels()) : Labels(),
      nfds ? Labels()
           : own_features(snapshot.node.labels, value_of(snapshot.node.annotations, api::kNfdAnnotation)));
  if (snapshot.memory.patch.refusals.labels(snapshot.now).empty()) {
    labels.merge(own.changes);
    annotations[api::kFeaturesAnnotation] = std::move(own.record);
  } else if (!own.changes.empty()) {
    return;  // NFD sets no label that the agent has yet to remove
  }
  if (nfds) result.node_feature = std::move(features);
}

void plan_labels(const NodeSnapshot& snapshot, const OperandPause& operands, LabelChanges annotations,
                 ReconcileResult& result) {
  const policy::NodeObject& node = snapshot.node;
  const NodeRefusals& refusals = snapshot.memory.patch.refusals;
  LabelChanges labels;
  if (refusals.own(snapshot.now).empty()) {
    labels = result.report.labels;
    labels.merge(LabelChanges(operands.labels));
  }
  if (refusals.labels(snapshot.now).empty())
    labels.merge(kata_labels(node.labels, snapshot.kata ? labelled_handlers(node, snapshot.host)
                                                        : known_to_kubelet(node, snapshot.host.kata.ready)));
  annotations.merge(LabelChanges(result.report.annotations));
  annotations[api::kKataErrorAnnotation] =
      result.kata.trouble.empty() ? std::nullopt : std::optional(result.kata.trouble);
  plan_features(snapshot, labels, annotations, result);
  result.labels = differences(node.labels, labels);
  result.annotations = differences(node.annotations, annotations);
}

/// Reports labels that the API server refuses; empty `why`: it refuses none.
void add_refusal(const char* which, const std::string& why, ReconcileResult& result) {
  if (why.empty()) return;
  std::string text = fmt::format("{} stay as they are: {}", which, why);
  add_to_error(result.report, text);
  result.desired_state.warnings.push_back(std::move(text));
}

/// Operands are awaited from the first wait until desired.json is written or needs no write. A blocked change
/// that later fails without a rollout lease is reported to the other nodes, but once only: a person may
/// remove the result. A failure after success is this node's own trouble.
ChangeMemory next_change(const NodeSnapshot& snapshot, const NodeChange& change,
                         const ReconcileResult& result) {
  ChangeMemory next = snapshot.memory.change;
  if (result.awaits_operands && !next.waits_since) next.waits_since = snapshot.now;
  if (!result.awaits_operands && !result.desired_file) next.waits_since.reset();
  if (!snapshot.host.written) return next;
  const bool failure_is_recorded = change.outcome == ChangeOutcome::failed && snapshot.rollout &&
                                   snapshot.rollout->known &&
                                   snapshot.rollout->results.failed.contains(change.written);
  if (change.outcome == ChangeOutcome::blocked) next.blocked = snapshot.host.written->generation;
  if (change.outcome == ChangeOutcome::done || failure_is_recorded) next.blocked.reset();
  return next;
}

void plan_patch(const NodeSnapshot& snapshot, ReconcileResult& result) {
  const PatchMemory& memory = snapshot.memory.patch;
  const NodePatchContent& changes = result;
  memory.refusals.leave_out(result, snapshot.now);
  const bool in_vain = memory.refusals.is_all_left_out(snapshot.now);
  // The text may differ in each reconcile, as if a GPU is in use by a new process each time.
  const bool waits = (changes == memory.last && snapshot.now < memory.again) ||
                     (changes.is_error_alone() && snapshot.now < memory.error_again);
  result.sends_patch = !changes.empty() && !waits && !in_vain;
  result.record_events = in_vain || changes.empty();
}

/// The first deadline that no watch and no file reports, as for a silent hostd.
std::optional<Requeue> next_deadline(const NodeSnapshot& snapshot, const ReconcileResult& result) {
  constexpr std::chrono::seconds kBeyond{1};
  const AgentMemory& memory = snapshot.memory;
  std::optional<Requeue> first;
  const auto at = [&](Moment when, std::string_view reason) {
    if (when <= snapshot.now) return;
    if (!first || when - snapshot.now < first->after)
      first = {.after = when - snapshot.now, .reason = reason};
  };
  if (result.kata.awaits_kubelet)
    at(memory.host.unlisted_since + kListPatience + kBeyond, "the kubelet has not listed a handler");
  if (memory.unserved_since && !result.standby)
    at(*memory.unserved_since + kUnservedPatience, "NVIDIA's device plugin has been gone for a while");
  const bool is_held = !result.empty() && !result.sends_patch;
  if (is_held || memory.patch.refusals.is_all_left_out(snapshot.now)) {
    at(memory.patch.again, "the patch that others reverted is sent again");
    at(memory.patch.error_again, "the last text of the error is shown");
  }
  for (const Moment when : memory.patch.refusals.moments()) at(when, "a refused patch is tried again");
  if (memory.host.down_since)
    at(*memory.host.down_since + kGonePatience + kBeyond, "the host status is too old");
  if (result.drain_left)
    at(snapshot.now + *result.drain_left + kBeyond, "the drain has reached its time limit");
  if (snapshot.kata_given_up_at) at(*snapshot.kata_given_up_at, "Kata's ConfigMap counts as missing");
  if (result.change_memory.waits_since)
    at(*result.change_memory.waits_since + kPausePatience + kBeyond, "the change begins without operands");
  const Moment host = memory.host.changed_at + kBeyond;
  // Operands must not stay paused for a silent host, whatever the desired state is by now.
  const bool paused = !resume_operands(snapshot.node.labels).empty();
  if (paused) at(host + kPausePatience, "operands are resumed without hostd");
  if (result.kata.awaited)
    at(memory.host.kata_changed_at + *result.kata.awaited + kBeyond, "hostd is silent about Kata's handlers");
  if (paused || result.report.condition == NodeCondition::pending ||
      result.report.condition == NodeCondition::applying)
    at(host + (has_answered(snapshot.host) ? kChangePatience : kAnswerPatience), "hostd is silent");
  return first;
}

}  // namespace

ReconcileResult reconcile(const NodeSnapshot& snapshot) {
  const auto owners = other_owners(snapshot.node.labels, snapshot.others);
  const NodeRefusals& refusals = snapshot.memory.patch.refusals;
  ReconcileResult result;
  result.desired_state = desired_state_for(snapshot, owners);
  take_cc_mode(snapshot, result.desired_state);

  const DrainNeed need = snapshot.drain ? drain_need(snapshot.node, result.desired_state, snapshot.host,
                                                     *snapshot.drain, pods_of_operands(snapshot))
                                        : DrainNeed();
  const KataPlan kata = snapshot.kata ? kata_plan(snapshot.node, snapshot.host, *snapshot.kata,
                                                  snapshot.rollout ? &*snapshot.rollout : nullptr)
                                      : KataPlan();

  const NodeChange change = change_of(snapshot, result.desired_state, need);
  SharedLease leases = leases_of(snapshot, change, kata);
  result.rollout = std::move(leases.gpus);
  result.lease = std::move(leases.lease);
  if (snapshot.kata) result.kata = kata_step(snapshot.node, snapshot.host, *snapshot.kata, kata, leases.kata);

  DrainStep drain =
      snapshot.drain ? drain_step(snapshot.node, result.desired_state, *snapshot.drain, need, result.rollout)
                     : DrainStep();

  result.report = node_report(result.desired_state, snapshot.host, result.rollout.held, drain.report);
  add_refusal("labels of features and of Kata's handlers", refusals.labels(snapshot.now), result);
  add_refusal("labels that report the state, and those of operands,", refusals.own(snapshot.now), result);

  const OperandPause operands = operand_pause(snapshot, result.desired_state, need, result.rollout);
  add_warnings(snapshot, owners, operands.pause, result.desired_state);
  // A vGPU configuration that is no longer desired, and that hostd never took up, is not pending.
  if (owners.empty() && !operands.keep && !result.desired_state.of_vgpu_config &&
      result.desired_state.kind != DesiredState::Kind::policy &&
      value_of(snapshot.node.labels, api::kVgpuStateLabel) == "pending")
    result.report.labels[api::kVgpuStateLabel] = std::nullopt;

  plan_labels(snapshot, operands, std::move(drain.annotations), result);
  result.unschedulable = drain.unschedulable;
  result.evict = std::move(drain.evict);
  result.drain_left = drain.left;

  result.events = node_events(snapshot.node, result.desired_state, snapshot.host, result.report,
                              snapshot.memory.warnings);
  std::ranges::move(drain.events, std::back_inserter(result.events));
  std::ranges::copy(result.kata.events, std::back_inserter(result.events));

  plan_desired_file(snapshot, owners, operands, result);
  if (!snapshot.others.are_neighbours) result.standby = plugin_is_on_standby(snapshot.others);
  result.change_memory = next_change(snapshot, change, result);
  plan_patch(snapshot, result);
  result.requeue = next_deadline(snapshot, result);
  return result;
}

LastLease last_lease(const NodeSnapshot& snapshot) {
  LastLease out;
  if (!snapshot.rollout) return out;
  KataPlan plan;  // no change and no pull begins
  if (snapshot.kata) {
    KataSnapshot kata = *snapshot.kata;
    kata.pulls_no_more = true;
    plan = kata_plan(snapshot.node, snapshot.host, kata, &*snapshot.rollout);
    plan.change.begin.clear();
  }
  RolloutStep lease = leases_of(snapshot, change_of(snapshot, DesiredState(), DrainNeed()), plan).lease;
  if (lease.kind == RolloutStep::Kind::take) return out;
  out.lease = std::move(lease);
  const auto& written = snapshot.host.kata_written;
  if (is_kata_configuration(out.lease.configuration) && written && written->permitted) {
    out.kata = written;
    out.kata->permitted = false;
  }
  return out;
}

}  // namespace ferry::agent
