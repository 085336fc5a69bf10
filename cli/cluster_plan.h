// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry plan`: the effect of a change of a node's labels, as far as the API server alone shows it.
// That is the policy, its content, and the GPUs' users there. Only the node knows which GPU is in which mode.
// Nothing is written.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "agent/node_wish.h"
#include "agent/operands.h"
#include "cli/cluster_facts.h"
#include "common/exit_status.h"
#include "common/result.h"
#include "kube/paged_list.h"
#include "policy/kubernetes_files.h"

namespace ferry {

/// "KEY=VALUE" sets a label, "KEY-" removes it, as for `kubectl label`. Errc::usage: a word is neither, a key
/// comes twice, or Kubernetes permits no such label.
Result<LabelChanges> parse_label_changes(const std::vector<std::string>& words);

/// Assumptions about an agent that the node's pods do not show.
struct AssumedAgent {
  std::string space;  ///< namespace of its ConfigMaps
  std::vector<std::string> config_maps;
};

struct LabelPlan {
  enum class Effect {
    same,         ///< the desired state does not change
    change,       ///< the desired state changes
    left_as_is,   ///< the desired state goes away: the GPUs stay as they are
    stands_back,  ///< standby: NVIDIA's programs serve the node
    invalid,      ///< the desired state is invalid: the GPUs stay as they are
  };
  Effect effect = Effect::same;
  NodeObject node;      ///< before the change
  LabelChanges labels;  ///< labels that change
  NodeWish now;
  NodeWish then;
  ClusterGpus cluster;             ///< the node, and the users of its GPUs
  std::vector<std::string> notes;  ///< unknown and additional facts, each as a sentence
};
std::string_view text(LabelPlan::Effect effect);

/// Reads the node, its pods and its agent's ConfigMaps. Errors: those of `ask`; Errc::not_found: there is no
/// such node.
Result<LabelPlan> read_label_plan(const AskForPart& ask, const std::string& node, const LabelChanges& changes,
                                  const AssumedAgent& assumed);

nlohmann::json plan_document(const LabelPlan& plan);
std::string plan_text(const LabelPlan& plan, std::optional<std::size_t> columns);
/// Exits as `ferry agent --once`: `usage` for an invalid desired state, `refused` on standby.
ExitStatus plan_status(const LabelPlan& plan);

}  // namespace ferry
