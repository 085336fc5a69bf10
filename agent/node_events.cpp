// SPDX-License-Identifier: Apache-2.0
#include "agent/node_events.h"

#include <fmt/format.h>

#include "api/events.h"
#include "api/labels.h"

namespace ferry::agent {
namespace {

std::string value_of(const std::map<std::string, std::string>& map, const char* key) {
  const auto found = map.find(key);
  return found == map.end() ? std::string() : found->second;
}

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

std::string policy_of(const DesiredState& desired_state) {
  return fmt::format("policy {} ({})", desired_state.desired_policy.name,
                     desired_state.desired_policy.source);
}

void add_condition(std::vector<NodeEvent>& out, const DesiredState& desired_state, const HostSide& host,
                   const NodeReport& report) {
  const bool silent = !report.trouble.empty();
  switch (report.condition) {
    case NodeCondition::ready:
      out.push_back({.warning = false,
                     .reason = api::event::kReady,
                     .message = "the GPUs match " + policy_of(desired_state)});
      return;
    case NodeCondition::pending:
    case NodeCondition::applying:
      if (report.held) {
        out.push_back({.warning = true, .reason = api::event::kRolloutHeld, .message = report.trouble});
      } else if (silent) {
        out.push_back({.warning = true, .reason = api::event::kHostdUnavailable, .message = report.trouble});
      } else if (report.condition == NodeCondition::applying) {
        out.push_back({.warning = false,
                       .reason = api::event::kApplying,
                       .message = "the GPUs are being changed to " + policy_of(desired_state)});
      }
      return;
    case NodeCondition::draining:  // recorded when the drain begins (drain.h)
      return;
    case NodeCondition::blocked:
      return add_troubles(out, api::event::kBlocked, host, report);
    case NodeCondition::failed:
      if (desired_state.kind != DesiredState::Kind::invalid)
        return add_troubles(out, api::event::kFailed, host, report);
      out.push_back({.warning = true, .reason = api::event::kInvalidConfig, .message = report.trouble});
      return;
    case NodeCondition::idle:
      if (desired_state.kind == DesiredState::Kind::policy) {
        out.push_back({.warning = true, .reason = api::event::kIdle, .message = report.trouble});
        return;
      }
      out.push_back({.warning = false,
                     .reason = api::event::kIdle,
                     .message = "the GPUs are left as they are: " + desired_state.reason});
      return;
    case NodeCondition::standby:
      out.push_back({.warning = true, .reason = api::event::kStandby, .message = desired_state.reason});
      return;
    case NodeCondition::unknown:
      out.push_back({.warning = true, .reason = api::event::kHostdUnavailable, .message = report.trouble});
      return;
  }
}

}  // namespace

std::vector<NodeEvent> node_events(const policy::NodeObject& node, const DesiredState& desired_state,
                                   const HostSide& host, const NodeReport& report,
                                   const std::set<std::string>& recorded_before) {
  std::vector<NodeEvent> out;
  for (const std::string& warning : desired_state.warnings) {
    if (!recorded_before.contains(warning))
      out.push_back({.warning = true, .reason = api::event::kConfigWarning, .message = warning});
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
