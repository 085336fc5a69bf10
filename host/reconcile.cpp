// SPDX-License-Identifier: Apache-2.0
#include "host/reconcile.h"

#include <algorithm>
#include <utility>

#include "common/exit_status.h"
#include "host/usage/advertised_use_probe.h"
#include "policy/policy_comparison.h"
#include "vfio/judgement/finding.h"

namespace ferry::host {
namespace {

constexpr const char* kPodsRemedy = "delete the pod first";
constexpr const char* kPluginsRemedy =
    "see by its log whether `ferry plugin` answers, and restart it where it does not";

void merge(std::vector<api::UnavailableDevice>& into, const std::vector<api::UnavailableDevice>& more) {
  for (const api::UnavailableDevice& one : more)
    if (!ids_of(into).contains(one.id)) into.push_back(one);
}

/// The end of the back-off that begins now.
Moment back_off(AttemptMemory& memory, Moment now) {
  constexpr unsigned kMost = 5;  // 10 s doubled five times exceeds kLongestPause
  const auto length = std::min(kLongestPause, kFirstPause * (1U << std::min(memory.failures, kMost)));
  ++memory.failures;
  return now + length;
}

/// True if a device that was allocated at the failure, or since then, is no longer allocated.
bool has_pod_ended(const BeginSnapshot& snapshot, AttemptMemory& memory) {
  if (!snapshot.allocated) return false;
  if (!std::ranges::includes(*snapshot.allocated, memory.allocated)) return true;
  memory.allocated = *snapshot.allocated;  // a pod may come and go within one pause
  return false;
}

ReconcileResult result_for(const RoundSnapshot& snapshot) {
  ReconcileResult out;
  out.conditions = snapshot.conditions;
  out.memory = snapshot.memory.attempt;
  return out;
}

/// The conditions with those of GPUs that wait for another allocation. These GPUs have no others, since the
/// policy's modes do not apply to them.
GpuConditions with_allocations(const RoundSnapshot& snapshot, GpuConditions conditions) {
  conditions.insert(snapshot.allocations.conditions.begin(), snapshot.allocations.conditions.end());
  return conditions;
}

api::HostStatus status_of(const RoundSnapshot& snapshot, api::NodePhase phase,
                          const GpuConditions& conditions) {
  api::HostStatus out;
  out.desired = snapshot.desired;
  out.phase = phase;
  out.unavailable = snapshot.allocations.unavailable;
  // A fabric manager shares these NVSwitches among VMs. No policy has to name them, and no VM may get one.
  std::vector<api::UnavailableDevice> shared_switches;
  for (const auto& [device, findings] : snapshot.node.findings)
    for (const vfio::Finding& finding : findings)
      if (finding.rule == vfio::RuleId::fabric_switch && finding.about == device)
        shared_switches.push_back({.id = device.text(), .reason = finding.text});
  merge(out.unavailable, shared_switches);
  if (const auto& fault = snapshot.allocations.fault)
    out.error = api::StatusError{.message = fault->message, .hint = fault->hint};
  if (!snapshot.is_scanned) return out;
  out.accelerators = describe(snapshot.node, snapshot.modes, with_allocations(snapshot, conditions),
                              snapshot.models, snapshot.allocations.dra);
  out.features = features_of(snapshot.node);
  return out;
}

ReconcileResult report_idle(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  const auto& fault = snapshot.allocations.fault;
  out.round.phase = fault ? api::NodePhase::failed : api::NodePhase::idle;
  out.status = status_of(snapshot, out.round.phase, {});
  if (!fault) {
    out.memory.failures = 0;
    return out;
  }
  out.round.status = exit_status_of(*fault);
  out.round.again = back_off(out.memory, snapshot.now);
  return out;
}

/// If the host cannot be scanned, the accelerators stay as last published.
ReconcileResult report_obstacle(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  const Obstacle& obstacle = snapshot.obstacle;
  Round& round = out.round;
  round.status = exit_status_of(obstacle.error);
  round.phase = round.status == ExitStatus::refused ? api::NodePhase::blocked : api::NodePhase::failed;
  if (obstacle.of_the_lock) {
    out.memory.asked_at.reset();  // the plugin has answered
    // If another process has the lock, the change was not attempted and has not failed.
    if (obstacle.error.code == Errc::failed) round.phase = api::NodePhase::applying;
  }
  api::HostStatus next = status_of(snapshot, round.phase, {});
  next.error = api::StatusError{.message = obstacle.error.message, .hint = obstacle.error.hint};
  if (const auto& published = snapshot.memory.status.published; published && !snapshot.is_scanned) {
    next.accelerators = published->accelerators;
    next.features = published->features;
  }
  if (!obstacle.ends_unavailability) {
    std::vector<api::UnavailableDevice> kept = snapshot.unavailable;
    merge(kept, next.unavailable);
    next.unavailable = std::move(kept);
  }
  round.again = back_off(out.memory, snapshot.now);
  out.status = std::move(next);
  return out;
}

/// The request to the plugin before a change. It is the same in all stages of the change.
struct Request {
  std::set<std::string> asked;  ///< ReconcileResult::asked
  api::HostStatus status;       ///< with all unavailable devices
};

Request request_for(const RoundSnapshot& snapshot) {
  std::vector<api::UnavailableDevice> unavailable =
      unavailable_before_change(snapshot.plan, snapshot.node, snapshot.plugin.listed);
  Request out{.asked = ids_of(unavailable),
              .status = status_of(snapshot, api::NodePhase::applying, snapshot.conditions)};
  merge(unavailable, unavailable_until_pod_ends(snapshot.conditions, snapshot.node, snapshot.plugin.listed));
  merge(unavailable, unavailable_until_made(snapshot.plan));
  merge(unavailable, out.status.unavailable);
  out.status.unavailable = std::move(unavailable);
  return out;
}

/// True if the plugin has read that these devices are unavailable.
bool has_read_unavailable(const RoundSnapshot& snapshot, const std::set<std::string>& asked) {
  const StatusMemory& memory = snapshot.memory.status;
  if (!memory.published || !std::ranges::includes(ids_of(memory.published->unavailable), asked)) return false;
  const auto& answered = snapshot.plugin.state_generation;
  return answered && *answered >= memory.unavailable_since;
}

ReconcileResult begin_change(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  if (!writes(snapshot.plan)) {
    out.action = snapshot.leftovers ? Action::apply : Action::scan_result;
    return out;
  }
  Request request = request_for(snapshot);
  out.action = Action::observe_plugin;
  // The list is published even without a plugin, since one that starts now reads it before it lists devices.
  if (!request.asked.empty() && !has_read_unavailable(snapshot, request.asked))
    out.status = std::move(request.status);
  return out;
}

/// The change begins, with this result. The status has the conditions of the plan: a GPU that a pod has is
/// not reported as blocked before the attempt is over.
ReconcileResult apply_now(ReconcileResult out, Request request) {
  out.action = Action::apply;
  out.status = std::move(request.status);
  return out;
}

ReconcileResult await_plugin(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  Request request = request_for(snapshot);
  const bool answered =
      !snapshot.plugin.runs || request.asked.empty() || has_read_unavailable(snapshot, request.asked);
  // The deadline counts from the first request, whatever came or went since.
  if (!answered && !out.memory.asked_at) out.memory.asked_at = snapshot.now;
  const Moment deadline = out.memory.asked_at.value_or(Moment()) + snapshot.plugin_patience;
  if (!answered && snapshot.now < deadline) {
    out.round.phase = api::NodePhase::applying;
    out.round.unfinished = true;
    out.round.again = deadline;
    return out;
  }
  out.asked = request.asked;
  if (!snapshot.plugin.runs || !answered) return apply_now(std::move(out), std::move(request));
  out.action = Action::find_pods;
  return out;
}

/// The plugin has read the unavailable devices, so a device that it still lists has been allocated to a pod.
ReconcileResult refuse_devices_of_pods(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  for (const auto& [gpu, users] : snapshot.pods) {
    GpuCondition condition;
    condition.state = api::GpuState::blocked;
    condition.users = users;
    for (const vfio::DeviceUser& user : users)
      condition.reasons.push_back(gpu.text() + " is in use: " + user.text());
    condition.hint = kPodsRemedy;
    out.conditions.insert_or_assign(gpu, std::move(condition));
  }
  if (any(out.conditions, api::GpuState::pending)) return apply_now(std::move(out), request_for(snapshot));
  out.action = Action::roll_back;
  return out;
}

/// The result of an attempt. `snapshot.conditions` are those before it.
ReconcileResult judge_attempt(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  out.conditions.clear();
  out.error = snapshot.error;
  if (snapshot.outcome) {
    out.conditions = conditions_of(*snapshot.outcome);
    // A GPU that stays blocked keeps its first reasons; later ones name the plugin's list, which is correct.
    for (auto& [gpu, condition] : out.conditions)
      if (const auto known = snapshot.conditions.find(gpu);
          known != snapshot.conditions.end() && known->second.state == condition.state)
        condition = known->second;
    const NodeOutcome& outcome = *snapshot.outcome;
    out.error = outcome.error;
    for (const auto* errors : {&outcome.unbound.errors, &outcome.bound.errors, &outcome.vgpus.errors})
      if (!out.error && !errors->empty()) out.error = errors->front();
  }
  const bool planned = writes(snapshot.plan);
  // A second plan must find nothing to do, or else every round would repeat the change.
  if (planned && !out.error && out.conditions.empty()) {
    if (!snapshot.still_writes) {
      out.action = Action::plan_again;
      return out;
    }
    if (*snapshot.still_writes) {
      out.error = Error{.code = Errc::failed,
                        .message = "every step succeeded, but the host is not in the desired state",
                        .hint = "`ferry hostd --dry-run` says what is left to do"};
    }
  }
  out.action = Action::scan_result;
  out.in_vain = out.error || any(out.conditions, api::GpuState::failed) ||
                (planned && adds_or_changes(out.conditions, snapshot.conditions));
  return out;
}

/// After an outdated plan: GPUs that are not in their modes are pending, since no plan has known of them.
/// With `anew` the plan is repeated, so its failures are pending too; GPUs in use stay blocked.
void make_pending(const RoundSnapshot& snapshot, bool anew, GpuConditions& conditions) {
  const GpuCondition again{.state = api::GpuState::pending,
                           .reasons = {"another program has changed the host: it is planned again"},
                           .hint = {},
                           .users = {}};
  for (auto& [gpu, condition] : conditions)
    if (anew && condition.state != api::GpuState::pending && !condition.only_in_use()) condition = again;
  for (const auto& [gpu, mode] : snapshot.modes) {
    const mdev::VgpuGpu* found = snapshot.node.vgpus.find(gpu);
    if (found != nullptr && policy::mode_of(*found) != mode) conditions.try_emplace(gpu, again);
  }
}

/// True if an event follows for each blocked GPU that becomes free: from the plugin for a pod's device, and
/// from the kernel for the end of a process, and for a driver (`awaited`: the devices of both kinds).
bool all_reported(const GpuConditions& conditions, const std::set<std::string>& ids, bool ends_are_reported) {
  return std::ranges::all_of(conditions, [&](const auto& one) {
    const auto& [gpu, condition] = one;
    if (condition.state != api::GpuState::blocked || ids.contains(gpu.text())) return true;
    return ends_are_reported && !condition.users.empty() &&
           std::ranges::all_of(condition.users,
                               [](const vfio::DeviceUser& user) { return user.pid.has_value(); });
  });
}

/// The result of a round, with the unavailable devices of pods that still have a device.
ReconcileResult report_result(const RoundSnapshot& snapshot) {
  ReconcileResult out = result_for(snapshot);
  out.conditions = with_allocations(snapshot, std::move(out.conditions));
  GpuConditions& conditions = out.conditions;
  add_unready(snapshot.node, snapshot.modes, conditions);
  for (auto& [gpu, condition] : conditions) {
    const auto silent = [](const vfio::DeviceUser& user) { return user.name == kAnyPod; };
    if (condition.state == api::GpuState::blocked && std::ranges::any_of(condition.users, silent))
      condition.hint = kPluginsRemedy;
  }
  const bool at_once = snapshot.is_outdated && out.memory.replans < kMostReplans;
  if (snapshot.is_outdated) make_pending(snapshot, at_once, conditions);
  const std::set<std::string> driverless = add_driverless(snapshot.node, snapshot.modes, conditions);
  std::optional<Error> error = snapshot.allocations.fault;
  if (snapshot.error && !at_once) error = snapshot.error;
  Round& round = out.round;
  const bool failed = error || any(conditions, api::GpuState::failed);
  const bool refused = any(conditions, api::GpuState::blocked);
  const bool awaits_plugin = any(snapshot.allocations.conditions, api::GpuState::pending);
  round.phase = failed                                    ? api::NodePhase::failed
                : at_once                                 ? api::NodePhase::applying
                : refused || snapshot.gone_gpus           ? api::NodePhase::blocked
                : any(conditions, api::GpuState::pending) ? api::NodePhase::applying
                                                          : api::NodePhase::ready;
  if (refused || snapshot.gone_gpus) round.status = ExitStatus::refused;
  if (failed) round.status = worse(round.status, error ? exit_status_of(*error) : ExitStatus::failed);
  api::HostStatus next = status_of(snapshot, round.phase, conditions);
  if (!error) error = snapshot.gone_gpus;
  if (error) next.error = api::StatusError{.message = error->message, .hint = error->hint};
  std::vector<api::UnavailableDevice> of_pods;
  if (snapshot.plugin.runs)
    of_pods = unavailable_until_pod_ends(conditions, snapshot.node, snapshot.plugin.listed);
  merge(next.unavailable, of_pods);  // beside those for DRA
  for (const auto& [gpu, condition] : conditions)
    for (const vfio::DeviceUser& user : condition.users)
      if (user.pid) round.processes.insert(*user.pid);
  out.memory.replans = snapshot.is_outdated ? out.memory.replans + 1 : 0;
  if (at_once && !failed) {
    out.memory.asked_at.reset();  // the plugin has answered for the former plan
    round.unfinished = true;
    round.again = snapshot.now;
    out.status = std::move(next);
    return out;
  }
  const bool in_vain = snapshot.in_vain;
  if (refused && !failed && !in_vain && !snapshot.ends_are_reported) {
    out.action = Action::watch_ends;
    return out;
  }
  std::set<std::string> awaited = ids_of(of_pods);
  awaited.insert(driverless.begin(), driverless.end());
  if (failed || in_vain || snapshot.is_outdated ||
      (refused && !all_reported(conditions, awaited, snapshot.ends_are_reported.value_or(false)))) {
    const Moment again = back_off(out.memory, snapshot.now);
    // The kubelet forgets a pod without an event, and the agent may have evicted it, so hostd looks soon.
    const bool soon = !failed && !in_vain && only_pods_hold(conditions);
    round.again = soon ? std::min(again, snapshot.now + kFirstPause) : again;
  } else {
    out.memory.failures = 0;
    // A device user may close the device without an exit, and the program that reports it may be gone.
    if (!of_pods.empty() || !round.processes.empty()) round.again = snapshot.now + kLongestPause;
  }
  if (awaits_plugin && !failed && !in_vain) {
    round.unfinished = true;
    const Moment soon = snapshot.now + kPluginPollPause;
    round.again = std::min(round.again.value_or(soon), soon);
  }
  out.status = std::move(next);
  return out;
}

}  // namespace

BeginResult begin_round(const BeginSnapshot& snapshot) {
  BeginResult out;
  out.memory = snapshot.memory;
  AttemptMemory& memory = out.memory;
  out.is_news = memory.summary != snapshot.summary;
  if (out.is_news && snapshot.may_be_incomplete) {
    out.kind = BeginResult::Kind::rereads;
    out.is_news = false;
    out.round = memory.last;
    out.round.again = snapshot.now + kRereadPause;
    out.round.unfinished = true;
    return out;
  }
  if (out.is_news) {
    memory.summary = snapshot.summary;
    memory.failures = 0;
    memory.replans = 0;
    memory.back_off_until.reset();
    memory.asked_at.reset();
  }
  if (memory.back_off_until && snapshot.now < *memory.back_off_until && !snapshot.process_ended &&
      !has_pod_ended(snapshot, memory)) {
    out.kind = BeginResult::Kind::backs_off;
    out.round = memory.last;
    out.round.again = memory.back_off_until;  // a question may have made it come earlier
    return out;
  }
  memory.back_off_until.reset();
  return out;
}

ReconcileResult reconcile(const RoundSnapshot& snapshot) {
  switch (snapshot.stage) {
    case Stage::idle:
      return report_idle(snapshot);
    case Stage::failed:
      return report_obstacle(snapshot);
    case Stage::planned:
      return begin_change(snapshot);
    case Stage::published:
      return await_plugin(snapshot);
    case Stage::checked:
      return refuse_devices_of_pods(snapshot);
    case Stage::attempted:
      return judge_attempt(snapshot);
    case Stage::finished:
      return report_result(snapshot);
  }
  return {};
}

}  // namespace ferry::host
