// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "host/node_description.h"

namespace ferry::cli {

/// The document of `ferry status`.
nlohmann::json to_json(const host::NodeDescription& view);
/// An entry of its `accelerators`.
nlohmann::json to_json(const host::AcceleratorDescription& view);
nlohmann::json to_json(const host::VgpuDescription& view);
nlohmann::json to_json(const host::Condition& condition);
nlohmann::json to_json(const host::AdvertisedAs& offer);

}  // namespace ferry::cli
