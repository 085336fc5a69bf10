// SPDX-License-Identifier: Apache-2.0
// Lists all objects of a selection in answers of a bounded size: in a large cluster one answer with all pods
// would be larger than CurlTransport::kMostBody.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "kube/api_path.h"

namespace ferry {

/// Gets a part of a list, a List object, and waits for it.
using AskForPart = std::function<Result<nlohmann::json>(const Selection&, const ListRange&)>;

/// Objects in one answer. A pod with KubeVirt's additions is some 30 KB. If an answer is too large, half as
/// many objects are asked for, and so on, also for the rest of the list.
inline constexpr unsigned kListPart = 200;
/// Rounds of a list whose state the server forgets before its last part (410).
inline constexpr unsigned kMostListRounds = 3;

/// The next part's ListRange::after. Empty: this part is the last.
std::string continues_with(const nlohmann::json& list);

/// Returns the part of an object that is kept; null: nothing. The rest is freed with its part of the list, so
/// that a list of which little matters takes little memory.
using TakeOfObject = std::function<nlohmann::json(nlohmann::json object)>;

/// The results of `take` (absent: whole objects), in the server's order and as of one moment. Errors: those
/// of `ask`, such as ApiErrc::too_large for a single object; Errc::malformed_host: an answer without items,
/// or one that continues with itself.
Result<std::vector<nlohmann::json>> list_by_parts(const AskForPart& ask, const Selection& selection,
                                                  const TakeOfObject& take = {});

}  // namespace ferry
