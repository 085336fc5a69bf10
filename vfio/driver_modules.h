// SPDX-License-Identifier: Apache-2.0
// Which module brings a host driver back that was unloaded while its function was on vfio. Driver and module
// often differ in name: bochs-drm comes with bochs.
// ABI: drivers/base/module.c (links sys/bus/pci/drivers/D/module, sys/module/M/drivers/pci:D); depmod(8),
// lib/modules/<release>/modules.alias.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "vfio/inventory.h"
#include "vfio/move_record.h"

namespace ferry {

/// The module of a driver that is loaded. Absent: it is built in, or not loaded.
std::optional<std::string> module_of_driver(const HostFs& host, const std::string& driver);

/// What a module is called that is called like its driver: modules have '_' for every '-'.
std::string module_named_as(std::string driver);

/// The modules for a function's modalias ("pci:v000010DEd...") by a modules.alias text, in its order, each
/// once. Lines that are no PCI alias are passed over.
std::vector<std::string> modules_for(std::string_view modalias, std::string_view modules_alias);

/// Completes `record` where a driver is no longer loaded and was recorded without its module: of the modules
/// for the function's modalias that are not loaded (one that is would have brought the driver), the one that
/// bears the driver's name, else the only one. Where that is not clear the record stays as it is.
void find_lost_modules(const HostFs& host, const Inventory& inventory, MoveRecord& record);

}  // namespace ferry
