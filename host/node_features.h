// SPDX-License-Identifier: Apache-2.0
// Features of a whole node for its labels, from one scan.
// ABI: sysfs class dmi, drivers/firmware/dmi-id.c.
#pragma once

#include <string>

#include "common/host_fs.h"
#include "host/node_standings.h"
#include "host/node_state.h"

namespace ferry {

/// The machine's product name by DMI; empty: the firmware does not say.
std::string machine_name(const HostFs& host);

NodeFeatures features_of(const ScannedNode& node);

}  // namespace ferry
