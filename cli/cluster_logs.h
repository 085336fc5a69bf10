// SPDX-License-Identifier: Apache-2.0
// The ends of the logs of Ferry's own containers, for `kubectl ferry gather`: masked, and of a bounded size.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "kube/api_path.h"

namespace ferry {

/// Asks for the end of a log and waits for it.
using AskForLog = std::function<Result<std::string>(const ObjectRef& pod, const LogEnd& end)>;

struct GatheredLogs {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  /// {"namespace", "pod", "node", "container", "previous", "cut", "lines"} of each; `cut`: there was more
  /// before its first line.
  nlohmann::json logs = nlohmann::json::array();
  std::vector<std::string> notes;  ///< what is not in it
  bool whole = true;               ///< false: something failed that the role permits
};

/// What is taken of one log, and of all together.
inline constexpr unsigned kMostLogLines = 400;
inline constexpr std::size_t kMostOfALog = std::size_t{64} << 10U;
inline constexpr std::size_t kMostOfLogs = std::size_t{4} << 20U;

/// Of those of `pods` that run a program of Ferry's: containers that are in trouble first, and of those that
/// were started anew also what they said before. Never other programs' logs.
GatheredLogs gather_logs(const AskForLog& ask, const std::vector<nlohmann::json>& pods);

}  // namespace ferry
