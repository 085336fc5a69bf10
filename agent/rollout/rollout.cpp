// SPDX-License-Identifier: Apache-2.0
#include "agent/rollout/rollout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "policy/policy_export.h"

namespace ferry::agent {
namespace {

using Kind = RolloutStep::Kind;

constexpr const char* kKata = "kata-";

/// Null: the lease has no object yet.
const RolloutLease* lease_at(const Rollout& rollout, std::size_t index) {
  const auto found = std::ranges::find(rollout.leases, index, &RolloutLease::index);
  return found == rollout.leases.end() ? nullptr : &*found;
}

bool has_passed(const Rollout& rollout, const std::string& configuration) {
  return rollout.results.passed.contains(configuration);
}

/// Why the configuration may not begin; empty: it may. A failure elsewhere does not hold back a node whose
/// own label asks for the configuration, once another node has passed it.
std::string failure(const Rollout& rollout, const NodeChange& change) {
  const auto found = rollout.results.failed.find(change.begin);
  if (found == rollout.results.failed.end()) return {};
  return change.by_label && has_passed(rollout, change.begin) ? std::string() : found->second;
}

/// True if other nodes wait because this node has failed at the configuration in desired.json.
bool is_blamed(const Rollout& rollout, const NodeChange& change) {
  const auto found = rollout.results.failed.find(change.written);
  return found != rollout.results.failed.end() && found->second.starts_with(change.node + ":");
}

/// The mark of the configuration in desired.json, as in RolloutStep::result. A success without a lease is
/// marked only if it ends this node's own failure, and a failure without a lease only once: an administrator
/// may have removed the mark since.
std::optional<std::string> mark_of(const Rollout& rollout, const NodeChange& change, bool has_lease) {
  if (change.outcome == ChangeOutcome::done) {
    const bool proves = change.has_any || !has_lease;
    const bool is_new = has_lease && !has_passed(rollout, change.written);
    return proves && (is_new || is_blamed(rollout, change)) ? std::optional<std::string>("") : std::nullopt;
  }
  const bool is_news = has_lease || (change.is_news && !change.written.empty());
  if (change.outcome != ChangeOutcome::failed || !is_news || rollout.results.failed.contains(change.written))
    return std::nullopt;
  return fmt::format("{}: {}", change.node, change.why.empty() ? "failed" : change.why);
}

RolloutStep waits(RolloutStep step, std::string why) {
  step.may_begin = false;
  step.waits_for = std::move(why);
  return step;
}

/// The next step of a node that has a lease.
RolloutStep step_in(const RolloutLease& lease, const Rollout& rollout, const NodeChange& change) {
  RolloutStep step;
  step.index = lease.index;
  step.configuration = lease.configuration;
  step.watches_leases = true;
  const bool goes_on = change.outcome == ChangeOutcome::open;
  const bool fits = lease.configuration == change.begin && lease.index < rollout.most &&
                    (lease.index == 0 || has_passed(rollout, change.begin)) &&
                    failure(rollout, change).empty();
  if (goes_on || fits) {
    if (!rollout.renewed) step.kind = Kind::take;
    if (!fits && !change.begin.empty()) return waits(step, "the change begun before to end");
    return rollout.renewed || change.begin.empty() ? step : waits(step, "its rollout lease to be written");
  }
  if (lease.configuration == change.written) step.result = mark_of(rollout, change, true);
  // Lease 0 holds the marks, so there a single write does both. For other leases the mark comes first.
  step.kind = step.result && lease.index != 0 ? Kind::report : Kind::give_back;
  return change.begin.empty() ? step : waits(step, "its lease of another configuration to be freed");
}

/// The next step of a node without a lease.
RolloutStep step_outside(const Rollout& rollout, const NodeChange& change) {
  RolloutStep step;
  step.result = mark_of(rollout, change, false);
  if (step.result) {
    step.kind = Kind::report;
    step.configuration = change.written;
  }
  step.watches_leases =
      !change.begin.empty() || change.outcome == ChangeOutcome::failed || is_blamed(rollout, change);
  if (change.begin.empty()) return step;
  if (step.result) return waits(step, "the result of the last change to be written");

  if (const std::string why = failure(rollout, change); !why.empty()) {
    step.held = fmt::format(
        "it has failed on {}; change it, or have it tried again: kubectl annotate lease -n {} {}0 {}{}-", why,
        rollout.space, kRolloutLeasePrefix, kFailedPrefix, change.begin);
    return waits(step, step.held);
  }
  const bool passed = has_passed(rollout, change.begin);
  const RolloutLease* const first = lease_at(rollout, 0);
  if (first != nullptr && first->silent && first->configuration == change.begin && !passed) {
    step.kind = Kind::close;
    step.configuration = change.begin;
    step.result = fmt::format("{}: the node has gone silent in the middle of it", first->holder);
    return waits(step, "the result of " + first->holder);
  }
  // The highest free lease first: lease 0 is kept for configurations that no node has passed yet.
  for (std::size_t index = passed ? rollout.most : std::min<std::size_t>(rollout.most, 1); index-- > 0;) {
    const RolloutLease* const lease = lease_at(rollout, index);
    if (lease != nullptr && !lease->holder.empty() && !lease->silent) continue;
    step.kind = Kind::take;
    step.index = index;
    step.configuration = change.begin;
    return waits(step, "its rollout lease to be written");
  }
  if (!passed && first != nullptr)
    return waits(step, fmt::format("{} to be done, which goes ahead of others", first->holder));
  std::vector<std::string> holders;
  for (const RolloutLease& lease : rollout.leases)
    if (!lease.holder.empty() && lease.index < rollout.most) holders.push_back(lease.holder);
  return waits(step, fmt::format("one of {} to be done", fmt::join(holders, ", ")));
}

}  // namespace

std::string configuration_id(const policy::Policy& policy) {
  policy::Policy nameless = policy;
  nameless.name = "policy";
  return configuration_id(policy::policy_text({.file = {}, .policies = {nameless}}));
}

std::string configuration_id(std::string_view text) {
  return fmt::format("{:016x}", stable_hash_64(text));
}

std::string kata_configuration_id(const ConfigText& config) {
  return kKata + configuration_id(config.text);
}

bool is_kata_configuration(const std::string& id) {
  return id.starts_with(kKata);
}

RolloutStep rollout_step(const Rollout& rollout, const NodeChange& change) {
  const auto ours = std::ranges::find(rollout.leases, change.node, &RolloutLease::holder);
  const bool has_one = ours != rollout.leases.end();
  RolloutStep step;
  if (rollout.known) {
    step = has_one ? step_in(*ours, rollout, change) : step_outside(rollout, change);
  } else {
    // RolloutLeases renews the lease that a step names, and gives up a lease that it does not watch.
    if (has_one) {
      step.index = ours->index;
      step.configuration = ours->configuration;
    }
    step.watches_leases =
        has_one || !change.begin.empty() || change.outcome == ChangeOutcome::failed || !rollout.searched;
    if (!change.begin.empty()) step = waits(step, "word of who else changes");
  }
  if (!step.may_begin && step.held.empty() && !rollout.trouble.empty()) {
    step.held = "how many nodes change cannot be learnt or said: " + rollout.trouble;
    step.unknown = true;
  }
  return step;
}

SharedLease share_lease(const Rollout& rollout, const NodeChange& gpus, const NodeChange& kata) {
  SharedLease out;
  const auto ours = std::ranges::find(rollout.leases, gpus.node, &RolloutLease::holder);
  const bool has_one = ours != rollout.leases.end();
  if (has_one && is_kata_configuration(ours->configuration)) {
    if (!gpus.begin.empty()) out.gpus = waits({}, "the change of Kata's runtimes to end");
    out.lease = out.kata = rollout_step(rollout, kata);
    return out;
  }
  out.lease = out.gpus = rollout_step(rollout, gpus);
  const bool comes = !gpus.begin.empty() && out.gpus.held.empty();
  if (has_one || comes || out.gpus.kind != RolloutStep::Kind::nothing) {
    if (!kata.begin.empty()) out.kata = waits({}, "the GPUs to be changed");
    return out;
  }
  out.kata = rollout_step(rollout, kata);
  out.lease = out.kata;
  out.lease.watches_leases = out.lease.watches_leases || out.gpus.watches_leases;
  return out;
}

}  // namespace ferry::agent
