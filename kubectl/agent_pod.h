// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "agent/agent_options.h"

namespace ferry::kubectl {

/// Ferry's program that a container's `command` runs, as "ferry-agent". Empty: `command` is absent or runs
/// another program, even if that one's name begins or ends alike.
std::string_view ferry_program_in(const nlohmann::json& container);

/// The verb by which a container serves a node: `hostd` or `plugin` of the program `ferry`. Empty: neither.
std::string ferry_verb_in(const nlohmann::json& container);

/// The command that prints each GPU of the node of a pod that runs hostd, by `kubectl exec` into that pod.
/// Empty: the pod does not run hostd, or not now, or it has no labels of the chart.
std::string status_command_in(const nlohmann::json& pod);

/// True: a container of the pod runs `ferry dra`.
bool runs_dra(const nlohmann::json& pod);

/// True: a pod belongs to an installation of Ferry, by its namespace or by the chart's labels. The program's
/// name is not enough, since other programs may be called `ferry`, too.
bool is_of_ferry(const nlohmann::json& pod, const std::string& space);

/// The options of the agent that a pod runs. If they name no namespace, the pod's own is filled in. Absent:
/// the pod runs no agent, or one with wrong options.
std::optional<agent::AgentProgramOptions> agent_options_in(const nlohmann::json& pod);

}  // namespace ferry::kubectl
