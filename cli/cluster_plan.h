// SPDX-License-Identifier: Apache-2.0
// `kubectl ferry plan`: what a change of a node's labels would ask for, as far as the API server alone can
// tell: which policy, what that says, who has GPUs there. Which GPU is in which mode only the node knows.
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

/// "KEY=VALUE" sets a label, "KEY-" takes it away, as for `kubectl label`. Errc::usage: a word is neither, a
/// key comes twice, or no label can be so.
Result<LabelChanges> parse_label_changes(const std::vector<std::string>& words);

/// What is assumed of an agent that the node's pods do not show.
struct AssumedAgent {
  std::string space;  ///< of its configurations
  std::vector<std::string> config_maps;
};

struct LabelPlan {
  enum class Effect {
    same,         ///< it asks for what is asked for already
    change,       ///< something else is asked for
    left_as_is,   ///< nothing is asked for any more: the GPUs stay as they are
    stands_back,  ///< NVIDIA's programs serve the node: Ferry does nothing
    invalid,      ///< what is asked for cannot be: the GPUs stay as they are
  };
  Effect effect = Effect::same;
  NodeObject node;      ///< as it is
  LabelChanges labels;  ///< those that would be others
  NodeWish now;
  NodeWish then;
  ClusterGpus cluster;             ///< the node, and who has GPUs on it
  std::vector<std::string> notes;  ///< what is not known, or counts beside; each as a sentence
};
std::string_view text(LabelPlan::Effect effect);

/// Reads the node, its pods and the configurations of its agent. Errors: those of `ask`; Errc::not_found:
/// there is no such node.
Result<LabelPlan> read_label_plan(const AskForPart& ask, const std::string& node, const LabelChanges& changes,
                                  const AssumedAgent& assumed);

nlohmann::json plan_document(const LabelPlan& plan);
std::string plan_text(const LabelPlan& plan, std::optional<std::size_t> columns);
/// `usage` where what is asked for cannot be, `refused` where Ferry stands back: as `ferry agent --once`.
ExitStatus plan_status(const LabelPlan& plan);

}  // namespace ferry
