// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "host/node_view.h"

namespace ferry::cli {

/// The document of `ferry status`.
nlohmann::json to_json(const host::NodePicture& view);
/// An entry of its `accelerators`.
nlohmann::json to_json(const host::AcceleratorView& view);
nlohmann::json to_json(const host::VgpuPicture& view);
nlohmann::json to_json(const host::Condition& condition);
nlohmann::json to_json(const host::OfferedAs& offer);

}  // namespace ferry::cli
