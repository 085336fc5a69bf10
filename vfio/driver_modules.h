// SPDX-License-Identifier: Apache-2.0
// Which module brings a host driver back that was unloaded while its function was on vfio. Driver and module
// often differ in name: bochs-drm comes with bochs.
// ABI: drivers/base/module.c (links sys/bus/pci/drivers/D/module, sys/module/M/drivers/pci:D); depmod(8),
// lib/modules/<release>/modules.alias; modules.dep(5), modprobe.d(5).
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

/// The path of a module in a text of modules.dep or modules.builtin, packed or not.
std::optional<std::string> path_of_module(std::string_view list, std::string_view module);

/// The module that would have to be loaded for a recorded driver; only where one is recorded.
std::string module_for(const PriorState& prior);

/// Completes `record` where a driver is no longer loaded and was recorded without its module: of the modules
/// for the function's modalias that are not loaded (one that is would have brought the driver), the one that
/// bears the driver's name, else the only one. Where that is not clear the record stays as it is. A function
/// whose driver no load can bring, since nothing of the host's modules or modprobe's configuration knows the
/// module, is `lost`: a driver that comes in a container is on the host only while that runs.
void find_lost_modules(const HostFs& host, const Inventory& inventory, MoveRecord& record);

}  // namespace ferry
