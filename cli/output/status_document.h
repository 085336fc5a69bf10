// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "host/node_description.h"

namespace ferry::cli {

/// The document of `ferry status`.
nlohmann::json to_json(const host::NodeDescription& description);
/// An entry of its `accelerators`.
nlohmann::json to_json(const host::AcceleratorDescription& description);
nlohmann::json to_json(const host::VgpuDescription& description);
nlohmann::json to_json(const host::Condition& condition);
nlohmann::json to_json(const api::AdvertisedDevice& advertised);

}  // namespace ferry::cli
