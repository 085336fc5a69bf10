// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "vfio/device_facts.h"

namespace ferry {

/// Absent facts are null, so that every key is always there. Sizes are in bytes unless the key has another
/// unit. Addresses are hex text, since many JSON readers lose the last bits of such numbers.
nlohmann::json to_json(const DeviceFacts& facts);

}  // namespace ferry
