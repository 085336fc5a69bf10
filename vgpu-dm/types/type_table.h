// SPDX-License-Identifier: Apache-2.0
// Public facts about each board's vGPU types, for drivers that do not tell them. Vendor-specific VFIO tells
// only ids and names, and hides both when no more vGPUs fit. A driver's own figures have priority.
// Source: configs/vgpu-types.tsv, which names the origin of each figure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_function.h"

namespace ferry::vgpu {

/// The types that the table has for a board. A type's ID is the number of its ID on a host, "1153" of
/// "nvidia-1153", and empty where the table has none. Maxima that the table lacks are those of add_maxima().
class BoardTypes : Pinned {
 public:
  /// Boards that share a device ID are told apart by their subsystem IDs. An unlisted board has the types
  /// that the table gives for the device ID alone, or else those of all its boards. Empty: an unknown device
  /// ID.
  explicit BoardTypes(const vfio::PciFunction& gpu);

  const std::vector<mdev::VgpuType>& all() const { return types_; }
  /// The memory of the board: its largest time-sliced type has all of it. For an unlisted board that of the
  /// smallest board with its device ID. 0: the table does not have it.
  std::uint32_t memory_mib() const;
  /// True if a type needs a GPU instance (MIG): the board can have instances that vGPUs fill.
  bool has_mig_backed() const;
  /// The type with a driver's name or short name; nullptr: none.
  const mdev::VgpuType* find(std::string_view name) const;
  /// The type with an id as the host has it, "nvidia-1153" or "1153"; nullptr: none. If releases of the
  /// driver name it differently, it has its newest name.
  const mdev::VgpuType* find_id(std::string_view id) const;

 private:
  std::vector<mdev::VgpuType> types_;
  bool is_one_of_several_ = false;  // types_ are those of all boards with the device ID
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::unordered_map<std::uint32_t, std::size_t> by_number_;
};

/// Completes each GPU's types and vGPUs with missing names, sizes and maxima. Also adds unlisted types for
/// vendor-specific VFIO, or before virtual functions exist. For a type that the table lacks the size is the
/// one in its name, and the maximum that of add_maxima().
void fill_in(std::span<mdev::VgpuGpu> gpus);

/// scan_vgpus(), completed from the table and from remembered names (type_names.h).
Result<mdev::VgpuInventory> scan_known_vgpus(const HostFs& host, const vfio::Inventory& inventory,
                                             const vfio::AcceleratorRules& rules);

/// scan_gpu_again(), completed in the same way.
Result<mdev::VgpuGpu> scan_known_gpu_again(const HostFs& host, const vfio::Inventory& inventory,
                                           const mdev::VgpuGpu& before);

/// Text of configs/vgpu-types.tsv.
std::string_view type_table_text();

}  // namespace ferry::vgpu
