// SPDX-License-Identifier: Apache-2.0
// All objects of a selection, by answers of a bounded size: in a large cluster one answer with all pods would
// be larger than an answer may be (CurlTransport::kMostBody).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "kube/api_path.h"

namespace ferry {

/// Asks for a part of a list and waits for it: the List object.
using AskForPart = std::function<Result<nlohmann::json>(const Selection&, const ListRange&)>;

/// Objects in one answer. A pod with all that KubeVirt writes on it is some 30 KB. Where so many are larger
/// than an answer may be half of them are asked for, and so on: of the rest of the list no more either.
inline constexpr unsigned kListPart = 200;
/// How often a list is begun anew whose state the server has forgotten before its last part (410).
inline constexpr unsigned kMostListRounds = 3;

/// Where the next part begins: ListRange::after. Empty: the list ends with this part.
std::string continues_with(const nlohmann::json& list);

/// What is kept of an object; null: nothing. The rest is forgotten as soon as its part of the list has come,
/// so that a list of which only little matters does not take the memory of all.
using TakeOfObject = std::function<nlohmann::json(nlohmann::json object)>;

/// What `take` (absent: all) takes of the objects, in the server's order, as they were at one moment. Errors:
/// those of `ask`, ApiErrc::too_large of a single object among them; Errc::malformed_host: an answer without
/// items, or one that continues with itself.
Result<std::vector<nlohmann::json>> list_by_parts(const AskForPart& ask, const Selection& selection,
                                                  const TakeOfObject& take = {});

}  // namespace ferry
