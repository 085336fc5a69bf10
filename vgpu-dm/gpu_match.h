// SPDX-License-Identifier: Apache-2.0
// Inside this room: what an item asks of one GPU, held against what the GPU carries.
#pragma once

#include <vector>

#include "mdev/vgpu.h"
#include "vgpu-dm/plan.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// A vGPU that stays, and the place in the GPU's memory that it shall have.
struct VgpuMove {
  const VgpuDevice* device = nullptr;
  std::uint32_t to = 0;
};

/// What an entry's placement IDs mean for what is there.
struct Placing {
  std::vector<VgpuMove> moves;
  std::vector<std::uint32_t> left;  ///< for those that are missing; in order
};

/// One entry of an item on one GPU.
struct Want {
  const VgpuCount* entry = nullptr;
  const VgpuType* type = nullptr;  ///< nullptr: the GPU has none of that name, as far as is known
  bool listed = false;             ///< a parent lists the type: it can be created by its id
  /// That its vGPUs have on an empty GPU (function_layout.h); empty: they are made on the GPU itself.
  std::vector<PciAddress> functions;
  std::vector<const VgpuDevice*> kept;
  /// Those kept whose parameters are not what is asked for.
  std::vector<const VgpuDevice*> untuned() const;
  /// vGPUs of one type are alike: who is at one of the places stays there.
  Placing placing() const;
  std::uint32_t missing() const { return entry->count - static_cast<std::uint32_t>(kept.size()); }
};

/// Points into the item and the GPU that it was made from.
struct GpuMatch {
  std::vector<Want> wants;                  ///< in order of the item
  std::vector<const VgpuDevice*> leftover;  ///< what the item does not ask for
  bool mixed_sizes = false;                 ///< as ProfileItem::mixed_sizes
  std::optional<Error> problem;             ///< a name that may be two types, a vGPU that may be of the type

  bool agrees() const;
  std::vector<TypeCount> wanted() const;
  std::vector<TypeCount> found() const;  ///< by the item's names where it has one
};

/// Finds what fits. A vGPU that no driver has taken fits nothing. Of too many, those in use stay, then, where
/// those are spared that are not ours (stable_uuid.h), these, then those at a place that is asked for, then
/// those that leave GPU instances to others, then ours, then those that a reboot would bring back: on the
/// functions that the type has on an empty GPU, and of the lowest numbers.
GpuMatch match_gpu(const ProfileItem& item, const VgpuGpu& gpu, const UseReport& use, std::string_view node,
                   bool spares_foreign = false);

}  // namespace ferry
