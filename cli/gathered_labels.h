// SPDX-License-Identifier: Apache-2.0
// Inside this room: which labels an archive of `kubectl ferry gather` has.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace ferry {

/// Whether support needs a label of this key: what GPUs, drivers and handlers a node has, what it is asked
/// to be, what kind of machine it is and in which zone, whose a pod is. Of others nobody knows what stands
/// in them; clouds and installers write a machine's ID and addresses into labels.
bool is_needed_label(std::string_view key);

/// Takes `object`'s texts under `key`, a map of labels, over to `out`: those that are needed, masked
/// (masked_text.h) but for names of products. How many others there were stands beside them, under
/// "KEY_left_out", where there were any.
void take_labels(const nlohmann::json& object, const char* key, nlohmann::json& out);

}  // namespace ferry
