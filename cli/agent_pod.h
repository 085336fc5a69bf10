// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "agent/agent_options.h"

namespace ferry {

/// The program of Ferry's that a container's `command` names, "ferry-agent"; empty: it names another, or the
/// image does. What only begins or ends like one of ours is somebody else's.
std::string_view ferry_program_in(const nlohmann::json& container);

/// The verb that a container serves a node by, `hostd` or `plugin` of the program `ferry`; empty: it does
/// something else.
std::string ferry_verb_in(const nlohmann::json& container);

/// Whether a pod is of an installation of Ferry's: in its namespace, or with the chart's labels. Somebody
/// else's program may be called `ferry` too.
bool is_of_ferry(const nlohmann::json& pod, const std::string& space);

/// What the agent that a pod runs is told on its command line, with the pod's namespace where that names
/// none; absent: the pod runs none, or one that cannot start.
std::optional<AgentProgramOptions> agent_options_in(const nlohmann::json& pod);

}  // namespace ferry
