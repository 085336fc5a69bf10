// SPDX-License-Identifier: Apache-2.0
// Compares a profile's item with the vGPUs of one GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mdev/vgpu.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

/// A vGPU that stays, and the placement ID that it gets.
struct VgpuMove {
  const mdev::VgpuDevice* device = nullptr;
  std::uint32_t to = 0;
};

/// Placement IDs of an entry, applied to the existing vGPUs.
struct Placing {
  std::vector<VgpuMove> moves;
  std::vector<std::uint32_t> left;  ///< for missing vGPUs, in order
};

struct Want {
  const VgpuCount* entry = nullptr;
  const mdev::VgpuType* type = nullptr;  ///< nullptr: the GPU has no type of that name, as far as is known
  bool listed = false;                   ///< a parent lists the type: it can be created by its id
  /// Functions of its vGPUs on an empty GPU; empty: vGPUs are made on the GPU itself.
  std::vector<vfio::PciAddress> functions = {};
  std::vector<const mdev::VgpuDevice*> kept = {};
  /// Kept vGPUs whose parameters differ from the entry's.
  std::vector<const mdev::VgpuDevice*> untuned() const;
  /// vGPUs of one type are alike: a vGPU that is at one of the placements stays there.
  Placing placing() const;
  std::uint32_t missing() const { return entry->count - static_cast<std::uint32_t>(kept.size()); }
};

/// Holds pointers into the item and the GPU that it was made from.
struct GpuMatch {
  std::vector<Want> wants;                        ///< in order of the item
  std::vector<const mdev::VgpuDevice*> leftover;  ///< vGPUs that the item does not ask for
  bool mixed_sizes = false;                       ///< see ProfileItem::mixed_sizes
  /// The number of virtual functions that the GPU is to have in place of its present number; absent: that
  /// number stays. Only a framework with mdev::Framework::binds_functions() takes it from the item.
  std::optional<std::uint32_t> functions;
  /// A type name or a vGPU's type is ambiguous, or the GPU has no placements or no such parameters.
  std::optional<Error> problem;

  bool agrees() const;
  std::vector<TypeCount> desired() const;
  std::vector<TypeCount> found() const;  ///< under the item's names where it has one
};

/// Matches existing vGPUs with an item's entries. A vGPU that no driver has bound fits no entry. If too many
/// fit, vGPUs in use stay first, then vGPUs that Ferry did not make if such are spared (stable_uuid.h). Next
/// come vGPUs at a requested placement, then those that leave GPU instances to others, then vGPUs made by
/// Ferry. Last count a function that the type has on an empty GPU, as after a reboot, and the lowest number.
GpuMatch match_gpu(const ProfileItem& item, const mdev::VgpuGpu& gpu, const vfio::UseReport& use,
                   std::string_view node, bool spares_foreign = false);

}  // namespace ferry::vgpu
