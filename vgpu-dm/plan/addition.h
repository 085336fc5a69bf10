// SPDX-License-Identifier: Apache-2.0
// Plans a single vGPU, for a caller that makes vGPUs on demand: pure functions. All other vGPUs of the GPU
// stay as they are, and so do its virtual functions and its MIG mode. Mixed sizes are switched before the
// GPU's first vGPU, if the caller asks for a mode.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

/// The sizes that vGPUs of a GPU can have together. NVML switches the mode while the GPU has no vGPUs.
enum class Sizes {
  as_now,  ///< the mode stays, and NVML is not asked
  equal,   ///< mixed sizes are off for the first vGPU, since fewer fit with them
  mixed,   ///< mixed sizes are on
};

struct Addition {
  vfio::PciAddress gpu;
  vfio::PciAddress parent;  ///< of free_parent()
  std::string type_id;      ///< "nvidia-230", "1153"
  /// The UUID that the vGPU gets. With a framework without UUIDs: the address of `parent`.
  mdev::VgpuId id;
  std::optional<std::uint32_t> placement = {};  ///< absent: the driver chooses
  Sizes sizes = Sizes::as_now;
  std::string why = {};  ///< for VgpuStep::why
};

/// The function for one more vGPU of a type: the GPU itself, or its first free virtual function that is not
/// in `taken`. Errors: Errc::unsupported, the GPU makes no vGPUs now; Errc::refused, none of the type fits
/// beside its present vGPUs.
Result<vfio::PciAddress> free_parent(const mdev::VgpuGpu& gpu, const std::string& type_id,
                                     const std::set<vfio::PciAddress>& taken = {});

bool needs_library(const Addition& addition, const mdev::VgpuGpu& gpu);
/// True if mixed sizes may have to be switched, so that the GPU's users must be known. `said`: NVML's answer;
/// nullptr: none.
bool may_switch_sizes(const Addition& addition, const mdev::VgpuGpu& gpu, const mdev::ManagedGpu* said);

/// Plans a vGPU that is made only if it does not exist yet. Refusals: those of free_parent(); Errc::refused
/// also if another vGPU has the ID, the parent or a part of the placement, or if vGPUs keep mixed sizes off;
/// Errc::unsupported also if the GPU has no mixed sizes, or NVML does not answer; Errc::stuck.
GpuPlan plan_addition(const Addition& addition, const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu);

/// Virtual functions that a GPU had and gets again.
struct FunctionsAgain {
  vfio::PciAddress gpu;
  std::uint32_t number = 0;
  std::string why;  ///< for VgpuStep::why
};

/// Plans to enable them. A GPU that has virtual functions keeps those.
GpuPlan plan_functions_again(const FunctionsAgain& functions, const VgpuSnapshot& snapshot,
                             const mdev::VgpuGpu& gpu);

}  // namespace ferry::vgpu
