// SPDX-License-Identifier: Apache-2.0
// From the options that choose accelerators to the accelerators.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/session.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/move_apply.h"

namespace ferry {

/// As given on the command line.
struct SelectionOptions {
  bool all = false;
  std::vector<std::string> devices;  ///< PCI addresses; a companion stands for its accelerator
  std::vector<std::uint32_t> groups;
  std::vector<std::string> with;
};

struct Selection {
  MoveRequest request;
  std::map<PciAddress, std::string> left_alone;  ///< what --all leaves out, and why
};

/// Exactly what is named, or with --all every accelerator that fits the direction: to vfio, all but those
/// that carry or offer vGPUs; back, all that are on a vfio driver. Errc::usage or not_found name what is
/// wrong.
Result<Selection> select(const SelectionOptions& options, const Inventory& inventory,
                         const AcceleratorRules& rules, const VgpuInventory& vgpus, Direction direction);

/// The accelerators of whose units Ferry has moved anything.
std::vector<PciAddress> recorded_accelerators(const Inventory& inventory, const AcceleratorRules& rules,
                                              const MoveRecord& record);

}  // namespace ferry
