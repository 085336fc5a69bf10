// SPDX-License-Identifier: Apache-2.0
// Selects accelerators by the command line's options.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/accelerator_filter.h"
#include "cli/session.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/move_apply.h"

namespace ferry {

struct SelectionOptions {
  bool all = false;
  /// PCI addresses. A companion function stands for its accelerator, a VF for itself. For unbind and restore
  /// any function that Ferry has moved stands for itself, too.
  std::vector<std::string> devices;
  std::vector<std::uint32_t> groups;
  std::vector<std::string> with;
  bool force = false;                     ///< see MoveRequest::force
  std::vector<std::string> release = {};  ///< names beside the default, or "none": see release_list()
  FilterOptions filter = {};              ///< alone, or narrowing `all`
};

struct ChosenUnits {
  MoveRequest request;
  AcceleratorRules rules;  ///< of this command, with the on-request classes that it names
  std::map<PciAddress, std::string> left_alone;  ///< skipped by --all or a filter for vGPUs, with the reason
};

/// Selects exactly the named accelerators, or with --all or a filter all that fit it and the direction. To
/// vfio these are all but those that carry or offer vGPUs. Back, these are all on a vfio driver or half-way
/// by `record`. Errc::usage or not_found name the fault.
Result<ChosenUnits> select(const SelectionOptions& options, const Inventory& inventory,
                           const AcceleratorRules& rules, const VgpuInventory& vgpus,
                           const MoveRecord& record, DeviceNames& names, Direction direction);

/// Selects among the accelerators that Ferry has moved (recorded_accelerators()) those that are named or fit.
/// Without options or with --all alone it selects all. A named one that was not moved is selected and stays
/// as it is. Errors as select().
Result<ChosenUnits> select_recorded(const SelectionOptions& options, const Inventory& inventory,
                                    const AcceleratorRules& rules, const MoveRecord& record,
                                    DeviceNames& names);

/// The accelerators, by `rules`, with a unit of which Ferry has moved a function; VFs that it has moved; and
/// left_behind().
std::vector<PciAddress> recorded_accelerators(const Inventory& inventory, const AcceleratorRules& rules,
                                              const MoveRecord& record);

}  // namespace ferry
