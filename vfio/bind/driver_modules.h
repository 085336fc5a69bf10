// SPDX-License-Identifier: Apache-2.0
// Finds the module of a host driver that was unloaded while its function was on vfio. Driver and module often
// differ in name: bochs-drm comes with bochs.
// ABI: drivers/base/module.c (links sys/bus/pci/drivers/D/module, sys/module/M/drivers/pci:D); depmod(8),
// lib/modules/<release>/modules.alias; modules.dep(5), modprobe.d(5).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hostfs/host_fs.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {

/// The module of a loaded driver. Absent: the driver is built in, or not loaded.
std::optional<std::string> module_of_driver(const HostFs& host, const std::string& driver);

/// Why neither the host nor a VM can use a function that belongs to the host: no driver has it, or pci-stub
/// does, which only holds it. Absent: another driver has it, or it cannot be read.
std::optional<Error> no_host_driver(const PciFunction& function);

/// The modules for a function's modalias ("pci:v000010DEd...") in a modules.alias text, in its order, each
/// once. Lines that are no PCI alias are skipped.
std::vector<std::string> modules_for(std::string_view modalias, std::string_view modules_alias);

/// The path of a module, compressed or not, in a text of modules.dep or modules.builtin.
std::optional<std::string> path_of_module(std::string_view list, std::string_view module);

/// The module to load for a recorded driver; `prior` must have a driver.
std::string module_for(const PriorState& prior);

/// Completes `journal` where a driver is no longer loaded and was recorded without its module. Candidates are
/// the modules for the function's modalias that are not loaded, since a loaded one would have brought the
/// driver. The candidate with the driver's name counts, else the only one; without either the record stays. A
/// function is `lost` if neither the host's modules nor modprobe's configuration know the module, so that no
/// load can bring its driver. A driver from a container is on the host only while the container runs.
void find_lost_modules(const HostFs& host, const Inventory& inventory, UndoJournal& journal);

}  // namespace ferry::vfio
