// SPDX-License-Identifier: Apache-2.0
// Public facts about each board's vGPU types, for drivers that do not tell them. Vendor-specific VFIO tells
// only ids and names, and hides both when no more vGPUs fit. A driver's own figures have priority.
// Source: configs/vgpu-types.tsv, which names the origin of each figure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_function.h"

namespace ferry::vgpu {

/// Names point into the table, which is part of the program.
struct KnownType {
  std::string_view name;                ///< given by the driver: "NVIDIA L40S-12Q"; else as short_name
  std::string_view short_name;          ///< the last word of the name
  std::optional<std::uint32_t> number;  ///< N of its id nvidia-N; absent: not known
  std::optional<std::uint32_t> framebuffer_mib;  ///< the number in its name times 1024, about right
  /// Maximum on an empty GPU with one size only; for a MIG-backed type, on all its GPU instances together.
  std::optional<std::uint32_t> max_instances;
  bool mig_backed = false;
  std::string_view mig_profile;  ///< the GPU instance that a MIG-backed type needs, "2g.48gb+gfx"; or empty
  /// Maximum on one such instance; absent: not MIG-backed, or not known.
  std::optional<std::uint32_t> max_per_instance;
};

class BoardTypes {
 public:
  /// Boards that share a device ID are told apart by their subsystem IDs. An unlisted board has the types
  /// that the table gives for the device ID alone, or else those of all its boards. Empty: an unknown device
  /// ID.
  explicit BoardTypes(const vfio::PciFunction& gpu);

  const std::vector<KnownType>& all() const { return types_; }
  /// The type with a driver's name or short name; nullptr: none.
  const KnownType* find(std::string_view name) const;
  /// The type with an id as the host has it, "nvidia-1153" or "1153"; nullptr: none. If releases of the
  /// driver name it differently, it has its newest name.
  const KnownType* find_id(std::string_view id) const;

 private:
  std::vector<KnownType> types_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::unordered_map<std::uint32_t, std::size_t> by_number_;
};

/// Completes each GPU's types and vGPUs with missing names, sizes and maxima. Also adds unlisted types for
/// vendor-specific VFIO, or before virtual functions exist. A time-sliced type without a maximum gets the one
/// that the GPU's framebuffer allows.
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
