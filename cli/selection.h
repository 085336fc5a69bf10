// SPDX-License-Identifier: Apache-2.0
// From the options that choose accelerators to the accelerators.
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

/// As given on the command line.
struct SelectionOptions {
  bool all = false;
  /// PCI addresses; a companion stands for its accelerator, a VF for itself, and so does, on the way back,
  /// whatever Ferry has moved.
  std::vector<std::string> devices;
  std::vector<std::uint32_t> groups;
  std::vector<std::string> with;
  bool force = false;                     ///< see MoveRequest::force
  std::vector<std::string> release = {};  ///< names beside the default, or "none": see release_list()
  FilterOptions filter = {};              ///< alone, or narrowing `all`
};

struct ChosenUnits {
  MoveRequest request;
  AcceleratorRules rules;  ///< those of this command: with the classes on request that it asks for
  std::map<PciAddress, std::string> left_alone;  ///< what --all or a filter would have but for vGPUs, and why
};

/// Exactly what is named, or with --all or a filter every accelerator that fits both it and the direction: to
/// vfio, all but those that carry or offer vGPUs; back, all that are on a vfio driver or, as `record` says,
/// were left half-way. Errc::usage or not_found name what is wrong.
Result<ChosenUnits> select(const SelectionOptions& options, const Inventory& inventory,
                           const AcceleratorRules& rules, const VgpuInventory& vgpus,
                           const MoveRecord& record, DeviceNames& names, Direction direction);

/// Of what Ferry has moved, that is recorded_accelerators(): what is named or fits; all of it where nothing
/// is chosen, or --all alone. What is named and was not moved is in it and stays as it is. Errors as
/// select().
Result<ChosenUnits> select_recorded(const SelectionOptions& options, const Inventory& inventory,
                                    const AcceleratorRules& rules, const MoveRecord& record,
                                    DeviceNames& names);

/// The accelerators, by `rules`, of whose units Ferry has moved anything, the virtual functions of some that
/// it has moved, and what is left_behind().
std::vector<PciAddress> recorded_accelerators(const Inventory& inventory, const AcceleratorRules& rules,
                                              const MoveRecord& record);

}  // namespace ferry
