// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "host/node_view.h"

namespace ferry {

/// The document of `ferry status`.
nlohmann::json to_json(const NodePicture& view);
/// An entry of its `accelerators`.
nlohmann::json to_json(const AcceleratorView& view);
nlohmann::json to_json(const VgpuPicture& view);
nlohmann::json to_json(const Condition& condition);
nlohmann::json to_json(const OfferedAs& offer);

}  // namespace ferry
