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

/// Requests the end of a log and waits for it.
using AskForLog = std::function<Result<std::string>(const ObjectRef& pod, const LogEnd& end)>;

struct GatheredLogs {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  /// Each has {"namespace", "pod", "node", "container", "previous", "cut", "lines"}. `cut` is true if lines
  /// before the first are missing.
  nlohmann::json logs = nlohmann::json::array();
  std::vector<std::string> notes;  ///< logs that are missing, and why
  bool whole = true;               ///< false: a request failed that the role permits
};

/// Limits of one log, and of all together.
inline constexpr unsigned kMostLogLines = 400;
inline constexpr std::size_t kMostOfALog = std::size_t{64} << 10U;
inline constexpr std::size_t kMostOfLogs = std::size_t{4} << 20U;

/// Gathers the logs of containers of `pods` that run Ferry's programs, and no others. Containers in trouble
/// come first. A restarted container's previous log is gathered, too.
GatheredLogs gather_logs(const AskForLog& ask, const std::vector<nlohmann::json>& pods);

}  // namespace ferry
