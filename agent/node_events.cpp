// SPDX-License-Identifier: Apache-2.0
#include "agent/node_events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/cluster_words.h"

namespace ferry {
namespace {

std::string value_of(const std::map<std::string, std::string>& map, const char* key) {
  const auto found = map.find(key);
  return found == map.end() ? std::string() : found->second;
}

// An event for each accelerator that is not in the desired state.
void add_troubles(std::vector<NodeEvent>& out, const char* reason, const HostSide& host,
                  const NodeReport& report) {
  constexpr std::size_t kMostEvents = 8;  // the failure of a whole node must not flood the cluster
  // If wanted.json could not be written, state.json is about an older desired state.
  std::vector<std::string> lines =
      host.seen && host.unwritable.empty() ? host_troubles(*host.seen) : std::vector<std::string>();
  if (lines.empty()) lines.push_back(report.trouble);
  const std::size_t left_out = lines.size() > kMostEvents ? lines.size() - kMostEvents + 1 : 0;
  if (left_out > 0) {
    lines.resize(lines.size() - left_out);
    lines.push_back(fmt::format("and {} more; `ferry status` on the node shows all", left_out));
  }
  for (std::string& line : lines)
    out.push_back({.warning = true, .reason = reason, .message = std::move(line)});
}

std::string policy_of(const NodeWish& wish) {
  return fmt::format("policy {} ({})", wish.wished.name, wish.wished.asked_by);
}

void add_condition(std::vector<NodeEvent>& out, const NodeWish& wish, const HostSide& host,
                   const NodeReport& report) {
  const bool silent = !report.trouble.empty();
  switch (report.condition) {
    case NodeCondition::as_wanted:
      out.push_back({.warning = false,
                     .reason = "HostAsWanted",
                     .message = "the GPUs are as they shall be by " + policy_of(wish)});
      return;
    case NodeCondition::pending:
    case NodeCondition::withdrawing:
    case NodeCondition::changing:
      if (report.held) {
        out.push_back({.warning = true, .reason = "ChangeHeld", .message = report.trouble});
      } else if (silent) {
        out.push_back({.warning = true, .reason = "HostSilent", .message = report.trouble});
      } else if (report.condition == NodeCondition::withdrawing && host.seen) {
        out.push_back({.warning = false,
                       .reason = "HostWithdrawing",
                       .message = fmt::format("to be no longer offered to the kubelet, for {}: {}",
                                              policy_of(wish), fmt::join(host.seen->withdraw, ", "))});
      } else if (report.condition == NodeCondition::changing) {
        out.push_back({.warning = false,
                       .reason = "HostChanging",
                       .message = "the GPUs are being changed to " + policy_of(wish)});
      }
      return;
    case NodeCondition::draining:  // recorded when the drain begins (drain.h)
      return;
    case NodeCondition::refused:
      return add_troubles(out, "HostRefused", host, report);
    case NodeCondition::failed:
      if (wish.kind != NodeWish::Kind::invalid) return add_troubles(out, "HostFailed", host, report);
      out.push_back({.warning = true, .reason = "WishInvalid", .message = report.trouble});
      return;
    case NodeCondition::nothing_wanted:
      if (wish.kind == NodeWish::Kind::policy) {
        out.push_back({.warning = true, .reason = "NothingWanted", .message = report.trouble});
        return;
      }
      out.push_back({.warning = false,
                     .reason = "NothingWanted",
                     .message = "the GPUs are left as they are: " + wish.reason});
      return;
    case NodeCondition::stood_back:
      out.push_back({.warning = true, .reason = "StoodBack", .message = wish.reason});
      return;
    case NodeCondition::unknown:
      out.push_back({.warning = true, .reason = "HostdDown", .message = report.trouble});
      return;
  }
}

}  // namespace

std::vector<NodeEvent> node_events(const NodeObject& node, const NodeWish& wish, const HostSide& host,
                                   const NodeReport& report, const std::set<std::string>& told_before) {
  std::vector<NodeEvent> out;
  for (const std::string& warning : wish.warnings) {
    if (!told_before.contains(warning))
      out.push_back({.warning = true, .reason = "WishWarning", .message = warning});
  }
  const auto error = report.annotations.find(kErrorAnnotation);
  const bool shown =
      value_of(node.labels, kStateLabel) == text(report.condition) &&
      value_of(node.annotations, kErrorAnnotation) ==
          (error == report.annotations.end() ? report.trouble : error->second.value_or(std::string()));
  if (!shown) add_condition(out, wish, host, report);
  for (NodeEvent& event : out) event.message = told(event.message);
  return out;
}

}  // namespace ferry
