// SPDX-License-Identifier: Apache-2.0
// Shares the node's rollout lease between its two kinds of change: the GPUs, and Kata's runtimes, which need
// a restart of the container runtime. Pure.
#pragma once

#include <string>

#include "agent/change_budget.h"
#include "common/config_tree.h"

namespace ferry {

/// The configuration_id() of a class file, marked to differ from configurations of GPUs.
std::string kata_configuration_id(const ConfigText& config);
bool is_kata_configuration(const std::string& id);

struct NodeTurn {
  BudgetStep gpus;  ///< if the GPUs' change may begin; its write to a Lease is in `lease`
  BudgetStep kata;  ///< the same for Kata's runtimes
  BudgetStep lease;
};

/// The kind that has the lease keeps it to its end. Without a lease the GPUs' change comes first, unless it
/// is held until a person acts.
NodeTurn node_turn(const ChangeBudget& budget, const NodeChange& gpus, const NodeChange& kata);

}  // namespace ferry
