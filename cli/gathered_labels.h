// SPDX-License-Identifier: Apache-2.0
// The labels that an archive of `kubectl ferry gather` has.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace ferry {

/// True: support needs a label of this key. It shows a node's GPUs, drivers, handlers, desired state, machine
/// type or zone, or a pod's owner. Other labels may have any content: clouds and installers write machine IDs
/// and addresses into them.
bool is_needed_label(std::string_view key);

/// Copies the needed labels of `object[key]` to `out[key]`, masked (masked_text.h) except names of products.
/// The number of other labels goes to "KEY_left_out", if there are any.
void take_labels(const nlohmann::json& object, const char* key, nlohmann::json& out);

}  // namespace ferry
