// SPDX-License-Identifier: Apache-2.0
#include "agent/change_budget.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "policy/policy_text.h"

namespace ferry {
namespace {

using Kind = BudgetStep::Kind;

// FNV-1a tells configurations apart; a collision would help no attacker.
std::uint64_t hash_of(std::string_view text) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

/// Null: the slot has no Lease yet.
const ChangeSlot* slot_at(const ChangeBudget& budget, std::size_t index) {
  const auto found = std::ranges::find(budget.slots, index, &ChangeSlot::index);
  return found == budget.slots.end() ? nullptr : &*found;
}

bool is_free(const ChangeBudget& budget, std::size_t index) {
  const ChangeSlot* const slot = slot_at(budget, index);
  return slot == nullptr || slot->holder.empty() || slot->silent;
}

bool is_proven(const ChangeBudget& budget, const std::string& configuration) {
  return budget.verdicts.proven.contains(configuration);
}

/// Why the configuration may not begin; empty: it may. A failure elsewhere does not hold back a node whose
/// own label asks for the configuration, once another node has proven it.
std::string failure(const ChangeBudget& budget, const NodeChange& change) {
  const auto found = budget.verdicts.failed.find(change.begin);
  if (found == budget.verdicts.failed.end()) return {};
  return change.by_label && is_proven(budget, change.begin) ? std::string() : found->second;
}

bool is_of(const std::string& verdict, const std::string& node) {
  return verdict.starts_with(node + ":");
}

/// True if other nodes wait because this node has failed at the configuration in wanted.json.
bool is_blamed(const ChangeBudget& budget, const NodeChange& change) {
  const auto found = budget.verdicts.failed.find(change.written);
  return found != budget.verdicts.failed.end() && is_of(found->second, change.node);
}

/// True if this node has succeeded at a configuration that it had failed before.
bool is_mended(const ChangeBudget& budget, const NodeChange& change) {
  return change.outcome == ChangeOutcome::done && is_blamed(budget, change);
}

/// Failure of the configuration in wanted.json; absent: it has not failed, or the Leases say so already.
std::optional<std::string> failure_to_tell(const ChangeBudget& budget, const NodeChange& change) {
  if (change.outcome != ChangeOutcome::failed || budget.verdicts.failed.contains(change.written))
    return std::nullopt;
  return fmt::format("{}: {}", change.node, change.why.empty() ? "failed" : change.why);
}

/// Verdict of a change that has ended in this node's slot; absent: none is to be written.
std::optional<std::string> verdict_inside(const ChangeBudget& budget, const NodeChange& change) {
  const bool proves = change.outcome == ChangeOutcome::done && change.has_any;
  if (proves && (is_mended(budget, change) || !is_proven(budget, change.written))) return std::string();
  return failure_to_tell(budget, change);
}

/// Verdict of a change without a slot, also after the slot was given back. A failure is reported only once:
/// an administrator may have removed the verdict since.
std::optional<std::string> verdict_outside(const ChangeBudget& budget, const NodeChange& change) {
  if (is_mended(budget, change)) return std::string();
  return change.is_news && !change.written.empty() ? failure_to_tell(budget, change) : std::nullopt;
}

BudgetStep waits(BudgetStep step, std::string why) {
  step.may_begin = false;
  step.waits_for = std::move(why);
  return step;
}

/// The next step of a node that has a slot.
BudgetStep step_in(const ChangeSlot& slot, const ChangeBudget& budget, const NodeChange& change) {
  BudgetStep step;
  step.slot = slot.index;
  step.configuration = slot.configuration;
  step.looks = true;
  const bool goes_on = change.outcome == ChangeOutcome::open;
  const bool fits = slot.configuration == change.begin && slot.index < budget.most &&
                    (slot.index == 0 || is_proven(budget, change.begin)) && failure(budget, change).empty();
  if (goes_on || fits) {
    if (!budget.renewed) step.kind = Kind::take;
    if (!fits && !change.begin.empty()) return waits(step, "what was begun before to end");
    return budget.renewed || change.begin.empty() ? step : waits(step, "our turn to be written down");
  }
  if (slot.configuration == change.written) step.verdict = verdict_inside(budget, change);
  // Slot 0 holds the verdicts, so there a single write does both. For other slots the verdict comes first.
  step.kind = step.verdict && slot.index != 0 ? Kind::judge : Kind::give_back;
  return change.begin.empty() ? step : waits(step, "our turn for another configuration to be given back");
}

std::string holders(const ChangeBudget& budget) {
  std::vector<std::string> names;
  for (const ChangeSlot& slot : budget.slots)
    if (!slot.holder.empty() && slot.index < budget.most) names.push_back(slot.holder);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The next step of a node without a slot.
BudgetStep step_outside(const ChangeBudget& budget, const NodeChange& change) {
  BudgetStep step;
  step.verdict = verdict_outside(budget, change);
  if (step.verdict) {
    step.kind = Kind::judge;
    step.configuration = change.written;
  }
  step.looks = !change.begin.empty() || change.outcome == ChangeOutcome::failed || is_blamed(budget, change);
  if (change.begin.empty()) return step;
  if (step.verdict) return waits(step, "what has come of the last change to be written down");

  if (const std::string why = failure(budget, change); !why.empty()) {
    step.held = fmt::format(
        "it has failed on {}; change it, or have it tried again: kubectl annotate lease -n {} {}0 {}{}-", why,
        budget.space, kChangeLease, kFailedPrefix, change.begin);
    return waits(step, step.held);
  }
  const bool proven = is_proven(budget, change.begin);
  const ChangeSlot* const first = slot_at(budget, 0);
  if (first != nullptr && first->silent && first->configuration == change.begin && !proven) {
    step.kind = Kind::close;
    step.configuration = change.begin;
    step.verdict = fmt::format("{}: the node has gone silent in the middle of it", first->holder);
    return waits(step, "what has become of " + first->holder);
  }
  // The highest free slot first: slot 0 is kept for configurations that are not proven yet.
  for (std::size_t index = proven ? budget.most : std::min<std::size_t>(budget.most, 1); index-- > 0;) {
    if (!is_free(budget, index)) continue;
    step.kind = Kind::take;
    step.slot = index;
    step.configuration = change.begin;
    return waits(step, "our turn to be written down");
  }
  return waits(step, proven || first == nullptr
                         ? fmt::format("one of {} to be done", holders(budget))
                         : fmt::format("{} to be done, which goes ahead of others", first->holder));
}

BudgetStep with_trouble(BudgetStep step, const ChangeBudget& budget) {
  if (!step.may_begin && step.held.empty() && !budget.trouble.empty()) {
    step.held = "how many nodes change cannot be learnt or said: " + budget.trouble;
    step.unknown = true;
  }
  return step;
}

}  // namespace

std::string configuration_id(const Policy& policy) {
  Policy nameless = policy;
  nameless.name = "policy";
  return configuration_id(policy_text({.file = {}, .policies = {nameless}}));
}

std::string configuration_id(std::string_view text) {
  return fmt::format("{:016x}", hash_of(text));
}

BudgetStep budget_step(const ChangeBudget& budget, const NodeChange& change) {
  if (!budget.known) {
    BudgetStep step;
    step.looks = !change.begin.empty() || change.outcome == ChangeOutcome::failed || !budget.searched;
    return with_trouble(change.begin.empty() ? step : waits(step, "word of who else changes"), budget);
  }
  const auto ours = std::ranges::find(budget.slots, change.node, &ChangeSlot::holder);
  return with_trouble(
      ours == budget.slots.end() ? step_outside(budget, change) : step_in(*ours, budget, change), budget);
}

}  // namespace ferry
