// SPDX-License-Identifier: Apache-2.0
// One slot of the cluster's for the two things of a node that change: its GPUs, and Kata's runtimes, for
// which the container runtime is started anew. Pure.
#pragma once

#include <string>

#include "agent/change_budget.h"
#include "common/config_tree.h"

namespace ferry {

/// As configuration_id(), of a class file. It tells them from configurations of GPUs.
std::string kata_configuration_id(const ConfigText& config);
bool is_kata_configuration(const std::string& id);

struct NodeTurn {
  BudgetStep gpus;  ///< whether the GPUs' change may begin; what it says of Leases `lease` says
  BudgetStep kata;  ///< likewise
  BudgetStep lease;
};

/// The one that has the slot keeps it to its end; of two that have none the GPUs' change comes first, unless
/// it is held until a person does something.
NodeTurn node_turn(const ChangeBudget& budget, const NodeChange& gpus, const NodeChange& kata);

}  // namespace ferry
