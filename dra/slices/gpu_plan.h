// SPDX-License-Identifier: Apache-2.0
// The counters of one GPU, and the vGPUs that consume them. publication.h describes the counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dra/slices/node_model.h"
#include "dra/slices/resource_slice.h"

namespace ferry::dra {

/// A vGPU that a GPU can make.
struct Vgpu {
  const VgpuType* type = nullptr;  ///< in the GPU's types
  std::uint32_t number = 0;        ///< slot or placement
  Counters counters = {};
};

/// The counters of a GPU, and all vGPUs that it can make, also of types that the admin does not allow.
struct GpuPlan {
  Counters counters;
  std::vector<Vgpu> vgpus = {};
  std::uint64_t framebuffer_mib = 0;  ///< 0: unknown
};

/// `gpus_of_group`: GPUs of the IOMMU group, which share the counters that a set can have. `notes` gets a
/// line for each type that is left out.
GpuPlan plan_gpu(const Gpu& gpu, std::size_t gpus_of_group, std::vector<std::string>& notes);

}  // namespace ferry::dra
