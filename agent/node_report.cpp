// SPDX-License-Identifier: Apache-2.0
#include "agent/node_report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/operator_compat/cc_manager.h"
#include "api/events.h"
#include "api/labels.h"
#include "common/text/text.h"
#include "common/text/words.h"

namespace ferry::agent {
namespace {

constexpr Words<NodeCondition, 9> kConditions = {{{"ready", NodeCondition::ready},
                                                  {"pending", NodeCondition::pending},
                                                  {"applying", NodeCondition::applying},
                                                  {"draining", NodeCondition::draining},
                                                  {"blocked", NodeCondition::blocked},
                                                  {"failed", NodeCondition::failed},
                                                  {"idle", NodeCondition::idle},
                                                  {"standby", NodeCondition::standby},
                                                  {"unknown", NodeCondition::unknown}}};

NodeCondition condition_of(api::NodePhase phase) {
  switch (phase) {
    case api::NodePhase::ready:
      return NodeCondition::ready;
    case api::NodePhase::applying:
      return NodeCondition::applying;
    case api::NodePhase::blocked:
      return NodeCondition::blocked;
    case api::NodePhase::failed:
      return NodeCondition::failed;
    case api::NodePhase::idle:  // transient: hostd has just read the desired state
      return NodeCondition::pending;
  }
  return NodeCondition::pending;
}

NodeCondition condition_of(const DesiredState& desired_state, const HostSide& host) {
  switch (desired_state.kind) {
    case DesiredState::Kind::standby:
      return NodeCondition::standby;
    case DesiredState::Kind::nothing:
      return NodeCondition::idle;
    case DesiredState::Kind::invalid:
      return NodeCondition::failed;
    case DesiredState::Kind::policy:
      break;
  }
  if (!host.unwritable.empty()) return NodeCondition::failed;
  // A status that names no generation is that of a hostd which cannot read desired.json.
  const bool is_general_failure = host.status && host.status->phase == api::NodePhase::failed &&
                                  !host.status->desired_generation() && host.status->error;
  if (is_general_failure && !has_answered(host) && is_silent(desired_state, host))
    return NodeCondition::failed;

  const bool taken_up = host.status && is_taken_up(desired_state, host);
  const bool done = is_done_already(desired_state, host);
  if ((taken_up || done) && hostd_is_gone(host)) return NodeCondition::unknown;
  const NodeCondition undone = taken_up ? condition_of(host.status->phase) : NodeCondition::pending;
  const NodeCondition found = !taken_up && done ? NodeCondition::ready : undone;
  const bool lacks_a_gpu = desired_state.desired_policy.policy.asks_for(policy::Mode::passthrough) &&
                           host.status && host.status->accelerators.empty();
  return found == NodeCondition::ready && lacks_a_gpu ? NodeCondition::idle : found;
}

void add(std::string& text, std::string_view part) {
  if (part.empty()) return;
  if (!text.empty()) text += "; ";
  text += part;
}

std::string with_hint(const std::string& message, const std::string& hint) {
  std::string out = message;
  add(out, hint);
  return out;
}

std::string ended_in_it(const HostSide& host) {
  return fmt::format("ferry hostd has ended {} times in the middle of it", host.ends);
}

std::string silence(const DesiredState& desired_state, const HostSide& host, NodeCondition condition) {
  if (host.ends >= kMostEnds) {
    return with_hint(ended_in_it(host),
                     "`systemctl status ferry-hostd` on the node, or the log of its container, says why");
  }
  std::string out =
      condition == NodeCondition::pending
          ? fmt::format("ferry hostd has not taken up policy {} for more than {} seconds",
                        desired_state.desired_policy.name, kAnswerPatience.count())
          : fmt::format("ferry hostd has said nothing for more than {} minutes",
                        std::chrono::duration_cast<std::chrono::minutes>(kChangePatience).count());
  add(out, host.unreadable);
  if (host.status && host.status->error)
    add(out, with_hint(host.status->error->message, host.status->error->hint));
  add(out, "does it run on this node?");
  return out;
}

/// A policy that names neither a vendor nor an address means GPUs of NVIDIA.
std::string_view missing_gpus(const policy::Policy& policy) {
  const vfio::AcceleratorRules rules = policy::rules_for(policy, {});
  return rules.named.empty() && rules.named_vendors.empty() ? "no GPU of NVIDIA"
                                                            : "none of the GPUs that it names";
}

std::string trouble_of(const DesiredState& desired_state, const HostSide& host, NodeCondition condition) {
  switch (condition) {
    case NodeCondition::ready:
      return {};
    case NodeCondition::idle:
      if (desired_state.kind != DesiredState::Kind::policy) return host.unwritable;
      return fmt::format(
          "{} asks for passthrough, and this node has {}; see whether `lspci` on it shows the card, or {}",
          desired_state.desired_policy.text(), missing_gpus(desired_state.desired_policy.policy),
          desired_state.desired_policy.source.starts_with("label ")
              ? "remove the label"
              : "set the label gpu-ferry.io/deploy=false on it");
    case NodeCondition::standby:
      return with_hint(desired_state.reason, host.unwritable);
    case NodeCondition::pending:
    case NodeCondition::applying:
      return is_silent(desired_state, host) ? silence(desired_state, host, condition) : std::string();
    case NodeCondition::unknown:
      return fmt::format(
          "ferry hostd has not run on this node for more than {} minutes, and the state of its GPUs is not "
          "known; `systemctl status ferry-hostd` on the node, or the log of its container, says why",
          std::chrono::duration_cast<std::chrono::minutes>(kGonePatience).count());
    case NodeCondition::draining:
    case NodeCondition::blocked:
    case NodeCondition::failed:
      break;
  }
  if (desired_state.kind == DesiredState::Kind::invalid)
    return with_hint(desired_state.error.message, desired_state.error.hint);
  if (!host.unwritable.empty()) return host.unwritable;
  std::string out;
  if (!host.status) return out;
  for (const std::string& trouble : host_troubles(*host.status)) add(out, trouble);
  return out;
}

/// Result of a vGPU configuration, in NVIDIA's words; absent: unknown, and the last value stays. It is
/// pending until hostd has answered: an older "success" is about another configuration, or from before the
/// boot.
std::optional<std::string> vgpu_state(NodeCondition condition, const HostSide& host) {
  switch (condition) {
    case NodeCondition::ready:
      return "success";
    case NodeCondition::pending:
    case NodeCondition::applying:
    case NodeCondition::draining:
      return "pending";
    case NodeCondition::blocked:
    case NodeCondition::failed:
      return "failed";
    case NodeCondition::unknown:  // of the GPUs; the result of the configuration is known
      return host.status && host.status->phase == api::NodePhase::ready ? std::optional("success")
                                                                        : std::nullopt;
    case NodeCondition::idle:
    case NodeCondition::standby:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string_view text(NodeCondition condition) {
  return word_for(kConditions, condition);
}

bool hostd_is_gone(const HostSide& host) {
  return host.hostd_down > kGonePatience;
}

bool has_answered(const HostSide& host) {
  return !host.written || (host.status && host.status->desired_generation() == host.written->generation);
}

bool is_taken_up(const DesiredState& desired_state, const HostSide& host) {
  return desired_state.kind == DesiredState::Kind::policy && host.written &&
         says(*host.written, desired_state.desired_policy) && has_answered(host);
}

bool is_done_already(const DesiredState& desired_state, const HostSide& host) {
  if (!host.written || !host.status || host.status->phase != api::NodePhase::ready) return false;
  const bool answered =
      has_answered(host) || (host.same_as && host.status->desired_generation() == host.same_as);
  return answered && holds(*host.written, desired_state.desired_policy.policy);
}

bool waits_in_vain(const HostSide& host) {
  return host.ends >= kMostEnds || host.silent > (has_answered(host) ? kChangePatience : kAnswerPatience);
}

bool is_silent(const DesiredState& desired_state, const HostSide& host) {
  const bool asked = host.written && says(*host.written, desired_state.desired_policy);
  if (desired_state.kind == DesiredState::Kind::policy && !asked) return false;
  return waits_in_vain(host);
}

std::vector<std::string> host_troubles(const api::HostStatus& host) {
  std::vector<std::string> out;
  if (host.error) out.push_back(with_hint(host.error->message, host.error->hint));
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    if (gpu.state != api::GpuState::blocked && gpu.state != api::GpuState::failed) continue;
    std::string line = gpu.address.text();
    if (!gpu.model.empty()) line += fmt::format(" ({})", gpu.model);
    line += fmt::format(": {}", gpu.reason.empty() ? text(gpu.state) : gpu.reason);
    std::vector<std::string> users;
    users.reserve(gpu.users.size());
    for (const api::ReportedUser& user : gpu.users) {
      const std::string whole = user.text();
      // The reason may name the user already, as in "VM guest-7 (pid 4711) holds /dev/vfio/12", with another
      // word for its kind.
      const bool is_named =
          !user.name.empty() && gpu.reason.find(fmt::format(
                                    " {} holds ", whole.substr(whole.rfind(user.name)))) != std::string::npos;
      if (!is_named) users.push_back(whole);
    }
    if (!users.empty()) add(line, fmt::format("users: {}", fmt::join(users, ", ")));
    add(line, gpu.hint);
    out.push_back(std::move(line));
  }
  return out;
}

std::string one_line(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "…";
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (out.size() <= most) return out;
  out.resize(beginning_of(out, most - kCut.size()).size());
  return out + std::string(kCut);
}

bool host_is_changing(const HostSide& host) {
  return host.status && host.status->phase == api::NodePhase::applying;
}

ChangeOutcome change_outcome(const HostSide& host) {
  const bool in_vain = host.silent > kChangePatience || host.ends >= kMostEnds;
  const auto awaited = in_vain ? ChangeOutcome::failed : ChangeOutcome::open;
  if (!host.written) return host_is_changing(host) ? awaited : ChangeOutcome::none;
  if (!has_answered(host) || !host.status) return awaited;
  switch (host.status->phase) {
    case api::NodePhase::ready:
      return ChangeOutcome::done;
    case api::NodePhase::blocked:
      return ChangeOutcome::blocked;
    case api::NodePhase::failed:
      // A hostd that is gone tries the change again once it is started.
      return host.hostd_speaks ? ChangeOutcome::failed : awaited;
    case api::NodePhase::applying:
    case api::NodePhase::idle:
      break;
  }
  return awaited;
}

bool says_that_it_failed(const HostSide& host) {
  return has_answered(host) && host.status && host.status->phase == api::NodePhase::failed;
}

std::string failure_of(const HostSide& host) {
  constexpr std::size_t kMost = 256;
  std::string out;
  if (host.status && says_that_it_failed(host)) {
    for (const std::string& trouble : host_troubles(*host.status)) add(out, trouble);
    return one_line(out, kMost);
  }
  out = host.ends >= kMostEnds ? ended_in_it(host) : "ferry hostd says nothing";
  add(out, host.unreadable);
  return one_line(out, kMost);
}

void add_to_error(NodeReport& report, const std::string& text) {
  std::string all = report.trouble;
  add(all, text);
  if (!all.empty()) report.annotations[api::kErrorAnnotation] = one_line(all);
}

NodeReport node_report(const DesiredState& desired_state, const HostSide& host, const std::string& held,
                       const DrainReport& drain) {
  NodeReport out;
  out.condition = condition_of(desired_state, host);
  if (out.condition == NodeCondition::blocked && drain.draining) out.condition = NodeCondition::draining;
  out.held = out.condition == NodeCondition::pending && !held.empty();
  const bool is_on_its_way =
      out.condition == NodeCondition::pending || out.condition == NodeCondition::applying;
  std::string trouble = is_on_its_way ? std::string() : drain.note;
  add(trouble, out.held ? fmt::format("{} is held back: {}", desired_state.desired_policy.text(), held)
                        : trouble_of(desired_state, host, out.condition));
  out.trouble = one_line(trouble);
  out.labels[api::kStateLabel] = std::string(text(out.condition));
  out.annotations[api::kErrorAnnotation] =
      out.trouble.empty() ? std::nullopt : std::optional<std::string>(out.trouble);
  if (desired_state.of_vgpu_config) {
    if (auto state = vgpu_state(out.condition, host)) out.labels[api::kVgpuStateLabel] = std::move(state);
  } else if (desired_state.kind == DesiredState::Kind::policy) {
    out.labels[api::kVgpuStateLabel] = std::nullopt;
  }
  return out;
}

namespace {

// An event for each accelerator that is not in the desired state.
void add_troubles(std::vector<NodeEvent>& out, const char* reason, const HostSide& host,
                  const NodeReport& report) {
  constexpr std::size_t kMostEvents = 8;  // the failure of a whole node must not flood the cluster
  // If desired.json could not be written, status.json is about an older desired state.
  std::vector<std::string> lines =
      host.status && host.unwritable.empty() ? host_troubles(*host.status) : std::vector<std::string>();
  if (lines.empty()) lines.push_back(report.trouble);
  const std::size_t left_out = lines.size() > kMostEvents ? lines.size() - kMostEvents + 1 : 0;
  if (left_out > 0) {
    lines.resize(lines.size() - left_out);
    lines.push_back(fmt::format("and {} more; `ferry status` on the node shows all", left_out));
  }
  for (std::string& line : lines)
    out.push_back({.warning = true, .reason = reason, .message = std::move(line)});
}

void add_condition(std::vector<NodeEvent>& out, const DesiredState& desired_state, const HostSide& host,
                   const NodeReport& report) {
  const auto event = [&](bool warning, const char* reason, std::string message) {
    out.push_back({.warning = warning, .reason = reason, .message = std::move(message)});
  };
  switch (report.condition) {
    case NodeCondition::ready:
      return event(false, api::event::kReady, "the GPUs match " + desired_state.desired_policy.text());
    case NodeCondition::pending:
    case NodeCondition::applying:
      if (report.held) return event(true, api::event::kRolloutHeld, report.trouble);
      if (!report.trouble.empty()) return event(true, api::event::kHostdUnavailable, report.trouble);
      if (report.condition == NodeCondition::applying)
        event(false, api::event::kApplying,
              "the GPUs are being changed to " + desired_state.desired_policy.text());
      return;
    case NodeCondition::draining:  // recorded when the drain begins (drain.h)
      return;
    case NodeCondition::blocked:
      return add_troubles(out, api::event::kBlocked, host, report);
    case NodeCondition::failed:
      if (desired_state.kind != DesiredState::Kind::invalid)
        return add_troubles(out, api::event::kFailed, host, report);
      return event(true, api::event::kInvalidConfig, report.trouble);
    case NodeCondition::idle:
      if (desired_state.kind == DesiredState::Kind::policy)
        return event(true, api::event::kIdle, report.trouble);
      return event(false, api::event::kIdle, "the GPUs are left as they are: " + desired_state.reason);
    case NodeCondition::standby:
      return event(true, api::event::kStandby, desired_state.reason);
    case NodeCondition::unknown:
      return event(true, api::event::kHostdUnavailable, report.trouble);
  }
}

}  // namespace

std::vector<NodeEvent> gpu_warnings(const policy::NodeObject& node, const HostSide& host) {
  std::vector<NodeEvent> out;
  if (!host.status) return out;
  for (const api::AcceleratorStatus& gpu : host.status->accelerators)
    if (gpu.sanitize && gpu.sanitize->state == api::SanitizeState::failed)
      out.push_back({.warning = true,
                     .reason = api::event::kNotSanitized,
                     .message = fmt::format(
                         "{0} could not be sanitized after its last use, and no VM gets it: {1}; `ferry "
                         "sanitize {0}` on the node tries again",
                         gpu.address.text(), gpu.sanitize->detail)});
  for (ResetInUse& reset : resets_in_use(node.labels, *host.status))
    out.push_back({.warning = true, .reason = api::event::kResetInUse, .message = std::move(reset.text)});
  return out;
}

std::vector<NodeEvent> node_events(const policy::NodeObject& node, const DesiredState& desired_state,
                                   const HostSide& host, const NodeReport& report,
                                   const std::set<std::string>& recorded_before) {
  std::vector<NodeEvent> out;
  const std::vector<NodeEvent> of_gpus = gpu_warnings(node, host);
  for (const std::string& warning : desired_state.warnings) {
    if (recorded_before.contains(warning)) continue;
    const auto of_gpu = std::ranges::find(of_gpus, warning, &NodeEvent::message);
    out.push_back(of_gpu == of_gpus.end()
                      ? NodeEvent{.warning = true, .reason = api::event::kConfigWarning, .message = warning}
                      : *of_gpu);
  }
  const auto error = report.annotations.find(api::kErrorAnnotation);
  const bool shown =
      value_of(node.labels, api::kStateLabel) == text(report.condition) &&
      value_of(node.annotations, api::kErrorAnnotation) ==
          (error == report.annotations.end() ? report.trouble : error->second.value_or(std::string()));
  if (!shown) add_condition(out, desired_state, host, report);
  for (NodeEvent& event : out) event.message = one_line(event.message);
  return out;
}

}  // namespace ferry::agent
