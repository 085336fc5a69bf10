// SPDX-License-Identifier: Apache-2.0
// The judgement of how many vGPUs of a type fit on a GPU: pure functions of its types. The driver's own
// figures come first, then those of the table, then the bounds that the memory sets. A number that none of
// them gives stays absent: it is not known.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mdev/gpu_management.h"
#include "mdev/vgpu.h"

namespace ferry::vgpu {

/// Sets the missing maxima of one GPU's types. The GPU instances decide for a type whose instance is known.
/// Else a type has the maximum of another one of its size, or as many as fit into the memory of the largest
/// one, among types of one board with as many slices. `complete`: no type of the GPU is missing, so that the
/// largest time-sliced one has all memory. Each maximum is then at most `most`.
void add_maxima(std::span<mdev::VgpuType* const> types, bool complete,
                std::uint32_t most = std::numeric_limits<std::uint32_t>::max());

/// Each type that a GPU's parents list, once, in the parents' order. `available` counts for the whole GPU.
/// Each free virtual function reports 1 whatever memory is left, so the sum is capped by the maximum and by
/// the present vGPUs. Without a maximum it is VgpuType::fewer_may_fit.
std::vector<mdev::VgpuType> types_of(const mdev::VgpuGpu& gpu);

/// A bound for a MIG-backed type without a maximum: no GPU so far has more than seven slices, and an instance
/// has no more memory than the largest type of its kind. No bound: the largest number.
std::uint32_t most_by_slices(const mdev::VgpuGpu& gpu, const mdev::VgpuType& type);

/// Memory of a GPU for time-sliced vGPUs in MiB: the largest product of a type's size and maximum. 0: not
/// known.
std::uint64_t time_sliced_memory(const mdev::VgpuGpu& gpu);

/// True if the GPU is in MIG mode with GPU instances: it carries a MIG-backed vGPU, or all types that can be
/// made now are MIG-backed. Its driver offers no other types then, and no MIG-backed type without.
bool has_instances(const mdev::VgpuGpu& gpu);

/// The GPU instances of an empty GPU in MIG mode, as the profiles of its types tell them. Their IDs are not
/// the driver's.
mdev::ManagedGpu instances_by_types(const mdev::VgpuGpu& gpu);

/// A GPU's types by ID and by name. A listed type has priority over an unlisted one.
using TypeIndex = std::unordered_map<std::string_view, const mdev::VgpuType*>;
TypeIndex index_of(const mdev::VgpuGpu& gpu);
/// The type of a vGPU; nullptr: the GPU has no such type, as far as is known.
const mdev::VgpuType* type_of(const mdev::VgpuDevice& device, const TypeIndex& types);

}  // namespace ferry::vgpu
