// SPDX-License-Identifier: Apache-2.0
#include "agent/node_report.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/cluster_words.h"

namespace ferry {
namespace {

constexpr std::array<std::pair<NodeCondition, std::string_view>, 10> kConditions = {
    {{NodeCondition::as_wanted, "as_wanted"},
     {NodeCondition::pending, "pending"},
     {NodeCondition::withdrawing, "withdrawing"},
     {NodeCondition::changing, "changing"},
     {NodeCondition::draining, "draining"},
     {NodeCondition::refused, "refused"},
     {NodeCondition::failed, "failed"},
     {NodeCondition::nothing_wanted, "nothing_wanted"},
     {NodeCondition::stood_back, "stood_back"},
     {NodeCondition::unknown, "unknown"}}};

NodeCondition condition_of(SeenPhase phase) {
  switch (phase) {
    case SeenPhase::as_wanted:
      return NodeCondition::as_wanted;
    case SeenPhase::withdrawing:
      return NodeCondition::withdrawing;
    case SeenPhase::changing:
      return NodeCondition::changing;
    case SeenPhase::refused:
      return NodeCondition::refused;
    case SeenPhase::failed:
      return NodeCondition::failed;
    case SeenPhase::nothing_wanted:  // transient: hostd has just read the desired state
      return NodeCondition::pending;
  }
  return NodeCondition::pending;
}

/// True if hostd runs and cannot read wanted.json: its status then names no generation.
bool cannot_read_wish(const NodeWish& wish, const HostSide& host) {
  return host.seen && host.seen->phase == SeenPhase::failed && !host.seen->wanted &&
         !host.seen->error.empty() && !has_answered(host) && is_silent(wish, host);
}

/// Passthrough is desired, and hostd finds no accelerator on the node.
bool lacks_a_gpu(const NodeWish& wish, const HostSide& host) {
  return wish.wished.policy.asks_for(Mode::passthrough) && host.seen && host.seen->accelerators.empty();
}

NodeCondition condition_of(const NodeWish& wish, const HostSide& host) {
  switch (wish.kind) {
    case NodeWish::Kind::stand_back:
      return NodeCondition::stood_back;
    case NodeWish::Kind::nothing:
      return NodeCondition::nothing_wanted;
    case NodeWish::Kind::invalid:
      return NodeCondition::failed;
    case NodeWish::Kind::policy:
      break;
  }
  if (!host.unwritable.empty() || cannot_read_wish(wish, host)) return NodeCondition::failed;
  const bool taken_up = host.seen && is_taken_up(wish, host);
  const bool done = is_done_already(wish, host);
  if ((taken_up || done) && hostd_is_gone(host)) return NodeCondition::unknown;
  const NodeCondition undone = taken_up ? condition_of(host.seen->phase) : NodeCondition::pending;
  const NodeCondition found = !taken_up && done ? NodeCondition::as_wanted : undone;
  return found == NodeCondition::as_wanted && lacks_a_gpu(wish, host) ? NodeCondition::nothing_wanted : found;
}

void add(std::string& text, std::string_view part) {
  if (part.empty()) return;
  if (!text.empty()) text += "; ";
  text += part;
}

/// True if the reason names the device user already, as in "VM guest-7 (pid 4711) holds /dev/vfio/12", with
/// another word for its kind.
bool names(const std::string& reason, const SeenHolder& holder) {
  const auto name = holder.text.rfind(holder.name);
  if (holder.name.empty() || name == std::string::npos) return false;
  return reason.find(fmt::format(" {} holds ", holder.text.substr(name))) != std::string::npos;
}

std::string with_hint(const std::string& message, const std::string& hint) {
  std::string out = message;
  add(out, hint);
  return out;
}

std::string ended_in_it(const HostSide& host) {
  return fmt::format("ferry hostd has ended {} times in the middle of it", host.ends);
}

std::string silence(const NodeWish& wish, const HostSide& host, NodeCondition condition) {
  if (host.ends >= kMostEnds) {
    return with_hint(ended_in_it(host),
                     "`systemctl status ferry-hostd` on the node, or the log of its container, says why");
  }
  std::string out =
      condition == NodeCondition::pending
          ? fmt::format("ferry hostd has not taken up policy {} for more than {} seconds", wish.wished.name,
                        kAnswerPatience.count())
          : fmt::format("ferry hostd has said nothing for more than {} minutes",
                        std::chrono::duration_cast<std::chrono::minutes>(kChangePatience).count());
  add(out, host.unreadable);
  if (host.seen) add(out, with_hint(host.seen->error, host.seen->hint));
  add(out, "does it run on this node?");
  return out;
}

/// True if hostd only reported its own end, so that nothing was tried. Present releases use `withdrawing`
/// then.
bool tells_its_own_end(const SeenHost& host) {
  return host.error == "hostd has ended before the node was as wanted";
}

bool is_on_its_way(NodeCondition condition) {
  return condition == NodeCondition::pending || condition == NodeCondition::withdrawing ||
         condition == NodeCondition::changing;
}

std::string trouble_of(const NodeWish& wish, const HostSide& host, NodeCondition condition) {
  switch (condition) {
    case NodeCondition::as_wanted:
      return {};
    case NodeCondition::nothing_wanted:
      if (wish.kind != NodeWish::Kind::policy) return host.unwritable;
      return fmt::format(
          "policy {} ({}) asks for passthrough, and this node has no GPU of NVIDIA; see whether `lspci` on "
          "it shows "
          "the "
          "card, or {}",
          wish.wished.name, wish.wished.asked_by,
          wish.wished.asked_by.starts_with("label ") ? "remove the label"
                                                     : "set the label gpu-ferry.io/deploy=false on it");
    case NodeCondition::stood_back:
      return with_hint(wish.reason, host.unwritable);
    case NodeCondition::pending:
    case NodeCondition::withdrawing:
    case NodeCondition::changing:
      return is_silent(wish, host) ? silence(wish, host, condition) : std::string();
    case NodeCondition::unknown:
      return fmt::format(
          "ferry hostd has not run on this node for more than {} minutes, and nobody knows what its GPUs are "
          "now; `systemctl status ferry-hostd` on the node, or the log of its container, says why",
          std::chrono::duration_cast<std::chrono::minutes>(kGonePatience).count());
    case NodeCondition::draining:
    case NodeCondition::refused:
    case NodeCondition::failed:
      break;
  }
  if (wish.kind == NodeWish::Kind::invalid) return with_hint(wish.error.message, wish.error.hint);
  if (!host.unwritable.empty()) return host.unwritable;
  std::string out;
  if (!host.seen) return out;
  for (const std::string& trouble : host_troubles(*host.seen)) add(out, trouble);
  return out;
}

/// Result of a vGPU configuration, in NVIDIA's words; absent: unknown, and the last value stays. It is
/// pending until hostd has answered: an older "success" is about another configuration, or from before the
/// boot.
std::optional<std::string> vgpu_state(NodeCondition condition, const HostSide& host) {
  switch (condition) {
    case NodeCondition::as_wanted:
      return "success";
    case NodeCondition::pending:
    case NodeCondition::withdrawing:
    case NodeCondition::changing:
    case NodeCondition::draining:
      return "pending";
    case NodeCondition::refused:
    case NodeCondition::failed:
      return "failed";
    case NodeCondition::unknown:  // of the GPUs; the result of the configuration is known
      return host.seen && host.seen->phase == SeenPhase::as_wanted ? std::optional("success") : std::nullopt;
    case NodeCondition::nothing_wanted:
    case NodeCondition::stood_back:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string_view text(NodeCondition condition) {
  return std::ranges::find(kConditions, condition, &std::pair<NodeCondition, std::string_view>::first)
      ->second;
}

bool hostd_is_gone(const HostSide& host) {
  return host.hostd_down > kGonePatience;
}

bool has_answered(const HostSide& host) {
  return !host.written || (host.seen && host.seen->wanted == host.written->generation);
}

bool is_taken_up(const NodeWish& wish, const HostSide& host) {
  return wish.kind == NodeWish::Kind::policy && host.written && host.written->says(wish.wished) &&
         has_answered(host);
}

bool is_done_already(const NodeWish& wish, const HostSide& host) {
  if (!host.written || !host.seen || host.seen->phase != SeenPhase::as_wanted) return false;
  const bool answered = has_answered(host) || (host.same_as && host.seen->wanted == host.same_as);
  return answered && host.written->holds(wish.wished.policy);
}

bool waits_in_vain(const HostSide& host) {
  return host.ends >= kMostEnds || host.silent > (has_answered(host) ? kChangePatience : kAnswerPatience);
}

bool is_silent(const NodeWish& wish, const HostSide& host) {
  const bool asked = host.written && host.written->says(wish.wished);
  if (wish.kind == NodeWish::Kind::policy && !asked) return false;
  return waits_in_vain(host);
}

std::vector<std::string> host_troubles(const SeenHost& host) {
  std::vector<std::string> out;
  if (!host.error.empty()) out.push_back(with_hint(host.error, host.hint));
  for (const SeenAccelerator& gpu : host.accelerators) {
    if (gpu.state != "refused" && gpu.state != "failed") continue;
    std::string line = gpu.address;
    if (!gpu.model.empty()) line += fmt::format(" ({})", gpu.model);
    line += ": " + (gpu.reason.empty() ? gpu.state : gpu.reason);
    std::vector<std::string_view> holders;
    holders.reserve(gpu.holders.size());
    for (const SeenHolder& holder : gpu.holders)
      if (!names(gpu.reason, holder)) holders.emplace_back(holder.text);
    if (!holders.empty()) add(line, fmt::format("held by {}", fmt::join(holders, ", ")));
    add(line, gpu.hint);
    out.push_back(std::move(line));
  }
  return out;
}

std::string told(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "…";
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (out.size() <= most) return out;
  std::size_t end = most - kCut.size();
  while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xc0U) == 0x80) --end;  // not within a character
  out.resize(end);
  return out + std::string(kCut);
}

bool host_is_changing(const HostSide& host) {
  return host.seen && (host.seen->phase == SeenPhase::changing || host.seen->phase == SeenPhase::withdrawing);
}

ChangeOutcome change_outcome(const HostSide& host) {
  const bool in_vain = host.silent > kChangePatience || host.ends >= kMostEnds;
  const auto awaited = in_vain ? ChangeOutcome::failed : ChangeOutcome::open;
  if (!host.written) return host_is_changing(host) ? awaited : ChangeOutcome::none;
  if (!has_answered(host) || !host.seen) return awaited;
  switch (host.seen->phase) {
    case SeenPhase::as_wanted:
      return ChangeOutcome::done;
    case SeenPhase::refused:
      return ChangeOutcome::refused;
    case SeenPhase::failed:
      // A hostd that is gone may have reported only its own end. Older releases wrote that as a failure, a
      // moment before they ended.
      return host.hostd_speaks && !tells_its_own_end(*host.seen) ? ChangeOutcome::failed : awaited;
    case SeenPhase::withdrawing:
    case SeenPhase::changing:
    case SeenPhase::nothing_wanted:
      break;
  }
  return awaited;
}

bool says_that_it_failed(const HostSide& host) {
  return has_answered(host) && host.seen && host.seen->phase == SeenPhase::failed &&
         !tells_its_own_end(*host.seen);
}

std::string failure_of(const HostSide& host) {
  constexpr std::size_t kMost = 256;
  std::string out;
  if (host.seen && says_that_it_failed(host)) {
    for (const std::string& trouble : host_troubles(*host.seen)) add(out, trouble);
    return told(out, kMost);
  }
  out = host.ends >= kMostEnds ? ended_in_it(host) : "ferry hostd says nothing";
  add(out, host.unreadable);
  return told(out, kMost);
}

void add_to_error(NodeReport& report, const std::string& text) {
  std::string all = report.trouble;
  add(all, text);
  if (!all.empty()) report.annotations[kErrorAnnotation] = told(all);
}

NodeReport node_report(const NodeWish& wish, const HostSide& host, const std::string& held,
                       const DrainReport& drain) {
  NodeReport out;
  out.condition = condition_of(wish, host);
  if (out.condition == NodeCondition::refused && drain.draining) out.condition = NodeCondition::draining;
  out.held = out.condition == NodeCondition::pending && !held.empty();
  std::string trouble = is_on_its_way(out.condition) ? std::string() : drain.note;
  add(trouble,
      out.held ? fmt::format("policy {} ({}) is held back: {}", wish.wished.name, wish.wished.asked_by, held)
               : trouble_of(wish, host, out.condition));
  out.trouble = told(trouble);
  out.labels[kStateLabel] = std::string(text(out.condition));
  out.annotations[kErrorAnnotation] =
      out.trouble.empty() ? std::nullopt : std::optional<std::string>(out.trouble);
  if (wish.of_vgpu_config) {
    if (auto state = vgpu_state(out.condition, host)) out.labels[kVgpuStateLabel] = std::move(state);
  } else if (wish.kind == NodeWish::Kind::policy) {
    out.labels[kVgpuStateLabel] = std::nullopt;
  }
  return out;
}

}  // namespace ferry
