// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "vfio/device_facts.h"

namespace ferry {

/// What is absent is null, so that every key is always there. Sizes are in bytes where the key does not say
/// otherwise; addresses are text in hex, since many readers of JSON lose the last bits of such numbers.
nlohmann::json to_json(const DeviceFacts& facts);

}  // namespace ferry
