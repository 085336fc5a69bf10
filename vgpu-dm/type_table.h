// SPDX-License-Identifier: Apache-2.0
// What public sources know of each board's vGPU types, for what a driver does not say of its own: vendor-
// specific VFIO tells ids and names alone, and hides both where nothing more fits.
// Source: configs/vgpu-types.tsv, which says where each figure comes from. What a driver says goes before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "mdev/vgpu.h"
#include "vfio/inventory.h"
#include "vfio/pci_function.h"

namespace ferry {

/// Names point into the table, which is part of the program.
struct KnownType {
  std::string_view name;                ///< as the driver gives it: "NVIDIA L40S-12Q"; else as short_name
  std::string_view short_name;          ///< the last word of the name
  std::optional<std::uint32_t> number;  ///< N of its id nvidia-N; absent: not known
  std::optional<std::uint32_t> framebuffer_mib;  ///< the number in its name times 1024, about right
  /// So many on an empty GPU, all of one size; of a MIG-backed type on all its GPU instances together.
  std::optional<std::uint32_t> max_instances;
  bool mig_backed = false;
  std::string_view mig_profile;  ///< the GPU instance that a MIG-backed type needs, "2g.48gb+gfx"; or empty
  /// How many one such instance carries; absent: not MIG-backed, or not known.
  std::optional<std::uint32_t> max_per_instance;
};

/// The types of one board.
class BoardTypes {
 public:
  /// Boards that share a device ID are told apart by their subsystem IDs; of a board that nobody has seen the
  /// types of all boards with its device ID. None: the device is not in the table.
  explicit BoardTypes(const PciFunction& gpu);

  const std::vector<KnownType>& all() const { return types_; }
  /// The type with a driver's name or short name; nullptr: none.
  const KnownType* find(std::string_view name) const;
  /// The type with an id as the host has it, "nvidia-1153" or "1153"; nullptr: none. Where releases of the
  /// driver call it differently, under its newest name.
  const KnownType* find_id(std::string_view id) const;

 private:
  std::vector<KnownType> types_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::unordered_map<std::uint32_t, std::size_t> by_number_;
};

/// Completes each GPU's types and vGPUs: names where there is only an id, sizes and maxima where there are
/// none, and with vendor-specific VFIO, or before there are virtual functions, the types that are not listed
/// now. A time-sliced type without a maximum gets the one that the GPU's framebuffer allows.
void fill_in(VgpuInventory& inventory);
void fill_in(VgpuGpu& gpu);

/// scan_vgpus(), completed, also by what the drivers have told earlier (type_names.h).
Result<VgpuInventory> scan_known_vgpus(const HostFs& host, const Inventory& inventory,
                                       const AcceleratorRules& rules);

/// scan_gpu_again(), completed.
Result<VgpuGpu> scan_known_gpu_again(const HostFs& host, const Inventory& inventory, const VgpuGpu& before);

/// The table as it is in the repository.
std::string_view type_table_text();

}  // namespace ferry
