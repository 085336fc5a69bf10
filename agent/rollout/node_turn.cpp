// SPDX-License-Identifier: Apache-2.0
#include "agent/rollout/node_turn.h"

#include <algorithm>
#include <utility>

namespace ferry::agent {
namespace {

constexpr const char* kKata = "kata-";

BudgetStep waits_for(const NodeChange& change, std::string what) {
  BudgetStep out;
  if (change.begin.empty()) return out;
  out.may_begin = false;
  out.waits_for = std::move(what);
  return out;
}

}  // namespace

std::string kata_configuration_id(const ConfigText& config) {
  return kKata + configuration_id(config.text);
}

bool is_kata_configuration(const std::string& id) {
  return id.starts_with(kKata);
}

NodeTurn node_turn(const ChangeBudget& budget, const NodeChange& gpus, const NodeChange& kata) {
  NodeTurn out;
  const auto ours = std::ranges::find(budget.slots, gpus.node, &ChangeSlot::holder);
  const bool has_one = ours != budget.slots.end();
  if (has_one && is_kata_configuration(ours->configuration)) {
    out.gpus = waits_for(gpus, "the change of Kata's runtimes to end");
    out.lease = out.kata = budget_step(budget, kata);
    return out;
  }
  out.lease = out.gpus = budget_step(budget, gpus);
  const bool comes = !gpus.begin.empty() && out.gpus.held.empty();
  if (has_one || comes || out.gpus.kind != BudgetStep::Kind::nothing) {
    out.kata = waits_for(kata, "the GPUs to be changed");
    return out;
  }
  out.kata = budget_step(budget, kata);
  out.lease = out.kata;
  out.lease.looks = out.lease.looks || out.gpus.looks;
  return out;
}

}  // namespace ferry::agent
