// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "dra/names.h"
#include "dra/slices/publication.h"

namespace ferry::dra {
namespace {

// More vGPUs than any GPU makes: NVIDIA's driver knows 64 virtual functions.
constexpr std::uint64_t kMostVgpus = 256;
// Placements beyond this are no placements of a GPU.
constexpr std::uint64_t kMostExtent = 1ULL << 16U;

/// vGPUs of a type on a GPU that has no others. 0: unknown. `memory_mib`: of the GPU.
std::uint64_t most_vgpus(const VgpuType& type, std::uint64_t memory_mib) {
  if (type.framebuffer_mib == 0) return 0;
  const std::uint64_t by_memory = memory_mib / type.framebuffer_mib;
  return std::min(type.most_per_gpu ? std::uint64_t{*type.most_per_gpu} : by_memory, kMostVgpus);
}

/// The memory that the vGPUs of one type take at most, or the GPU's own if that is more.
std::uint64_t memory_of_equal_sizes(const Gpu& gpu) {
  std::uint64_t most = gpu.memory_mib;
  for (const VgpuType& type : gpu.types)
    most = std::max(most, most_vgpus(type, gpu.memory_mib) * type.framebuffer_mib);
  return most;
}

GpuPlan plan_equal_sizes(const Gpu& gpu, const std::string& suffix) {
  const std::uint64_t memory = memory_of_equal_sizes(gpu);
  std::set<std::uint64_t> limits;
  const auto is_limited = [&](const VgpuType& type, std::uint64_t most) {
    return most < memory / type.framebuffer_mib;
  };
  for (const VgpuType& type : gpu.types)
    if (const std::uint64_t most = most_vgpus(type, gpu.memory_mib); most != 0 && is_limited(type, most))
      limits.insert(most);

  // A value that each limit divides. If that is large, one that is large enough for the quotients, rounded
  // down, to allow each limit and not one more (256 squared, and more).
  constexpr std::uint64_t kLarge = 1ULL << 20U;
  std::uint64_t instances = 1;
  for (const std::uint64_t limit : limits) instances = std::min(std::lcm(instances, limit), kLarge);

  GpuPlan out{.counters = {}, .framebuffer_mib = memory};
  out.counters[kFramebuffer + suffix] = memory * kMiB;
  if (!limits.empty()) out.counters["instances" + suffix] = instances;
  for (const VgpuType& type : gpu.types) {
    const std::uint64_t most = most_vgpus(type, gpu.memory_mib);
    if (most == 0) continue;
    Counters counters = {{kFramebuffer + suffix, type.framebuffer_mib * kMiB}};
    if (is_limited(type, most)) counters["instances" + suffix] = instances / most;
    for (std::uint32_t slot = 0; slot < most; ++slot)
      out.vgpus.push_back({.type = &type, .number = slot, .counters = counters});
  }
  return out;
}

GpuPlan plan_parts(const Gpu& gpu, const std::string& suffix, std::size_t most_counters) {
  GpuPlan out{.counters = {}, .framebuffer_mib = memory_of_equal_sizes(gpu)};
  for (const VgpuType& type : gpu.types) {
    const std::uint64_t most = type.fills.empty() ? 0 : most_vgpus(type, gpu.memory_mib);
    std::string counter;  // "gi-1g-18gb-plus-me" of "gi-1g.18gb+me"
    for (const char c : type.fills)
      if (c == '+')
        counter += "-plus-";
      else
        counter += c == '-' || is_alphanumeric(c) ? c : '-';
    counter += suffix;
    if (most == 0 || (out.counters.size() == most_counters && !out.counters.contains(counter))) continue;
    out.counters[counter] = most;
    for (std::uint32_t slot = 0; slot < most; ++slot)
      out.vgpus.push_back({.type = &type, .number = slot, .counters = {{counter, 1}}});
  }
  return out;
}

bool has_placements(const VgpuType& type) {
  return type.framebuffer_mib != 0 && type.size != 0 && !type.placements.empty();
}

bool fits_unit(const VgpuType& type, std::uint32_t placement, std::uint64_t unit) {
  return type.size % unit == 0 && placement % unit == 0;
}

/// The unit, in the driver's units, that keeps the most vGPUs with at most `most_units` counters; the
/// greatest of several. 0: no unit keeps any.
std::uint64_t choose_unit(const Gpu& gpu, std::uint64_t extent, std::uint64_t most_units) {
  std::uint64_t best = 0;
  std::size_t most_kept = 0;
  for (std::uint64_t unit = (extent + most_units - 1) / most_units; unit <= extent; ++unit) {
    std::size_t kept = 0;
    for (const VgpuType& type : gpu.types) {
      if (!has_placements(type) || type.size % unit != 0) continue;
      kept += static_cast<std::size_t>(std::ranges::count_if(
          type.placements, [&](std::uint32_t placement) { return fits_unit(type, placement, unit); }));
    }
    if (kept == 0 || kept < most_kept) continue;
    most_kept = kept;
    best = unit;
  }
  return best;
}

std::string unit_name(std::uint64_t unit, const std::string& suffix) {
  return fmt::format("unit-{:02}{}", unit, suffix);
}

GpuPlan plan_mixed_sizes(const Gpu& gpu, const std::string& suffix, std::size_t most_counters,
                         std::vector<std::string>& notes) {
  std::uint64_t extent = 0;  // the number of units from the first one to the last that a vGPU can take
  for (const VgpuType& type : gpu.types) {
    if (!has_placements(type)) continue;
    for (const std::uint32_t placement : type.placements)
      extent = std::max(extent, std::uint64_t{placement} + type.size);
  }
  const bool plausible = extent != 0 && extent <= kMostExtent;
  const std::uint64_t unit = plausible ? choose_unit(gpu, extent, most_counters) : 0;
  if (unit == 0) {
    if (!gpu.types.empty())
      notes.push_back(fmt::format("GPU {}: no vGPUs, since their placements fit no {} units",
                                  gpu.address.text(), most_counters));
    GpuPlan out{.counters = {}, .framebuffer_mib = gpu.memory_mib};
    out.counters[kFramebuffer + suffix] = gpu.memory_mib * kMiB;
    return out;
  }
  const std::uint64_t units = (extent + unit - 1) / unit;
  const bool counts_memory = units < most_counters;
  GpuPlan out{.counters = {}, .framebuffer_mib = gpu.memory_mib};
  // The vGPUs at different placements may have more together than the GPU's own memory.
  for (const VgpuType& type : gpu.types)
    if (has_placements(type))
      out.framebuffer_mib =
          std::max(out.framebuffer_mib, (type.framebuffer_mib * extent + type.size - 1) / type.size);
  if (counts_memory) out.counters[kFramebuffer + suffix] = out.framebuffer_mib * kMiB;
  for (std::uint64_t i = 0; i < units; ++i) out.counters[unit_name(i, suffix)] = 1;
  for (const VgpuType& type : gpu.types) {
    std::size_t kept = 0;
    for (const std::uint32_t placement : type.placements) {
      if (!has_placements(type) || !fits_unit(type, placement, unit)) continue;
      Vgpu vgpu{.type = &type, .number = placement};
      if (counts_memory) vgpu.counters[kFramebuffer + suffix] = type.framebuffer_mib * kMiB;
      for (std::uint64_t i = placement / unit; i < (std::uint64_t{placement} + type.size) / unit; ++i)
        vgpu.counters[unit_name(i, suffix)] = 1;
      out.vgpus.push_back(std::move(vgpu));
      ++kept;
    }
    if (has_placements(type) && kept != type.placements.size())
      notes.push_back(
          fmt::format("GPU {}: {} of {} placements of {} are left out, since the server takes {} "
                      "counters",
                      gpu.address.text(), type.placements.size() - kept, type.placements.size(),
                      type.short_name, kMostCounters));
  }
  return out;
}

}  // namespace

GpuPlan plan_gpu(const Gpu& gpu, std::size_t gpus_of_group, std::vector<std::string>& notes) {
  const std::string suffix = gpus_of_group == 1 ? std::string() : "-" + address_label(gpu.address);
  const std::size_t most_counters = kMostCounters / gpus_of_group;
  if (most_counters < 2) {
    if (!gpu.types.empty())
      notes.push_back(fmt::format("GPU {}: no vGPUs, since its IOMMU group has {} GPUs", gpu.address.text(),
                                  gpus_of_group));
    return {.counters = {}, .framebuffer_mib = gpu.memory_mib};
  }
  GpuPlan out = gpu.mixed_sizes   ? plan_mixed_sizes(gpu, suffix, most_counters, notes)
                : gpu.has_parts() ? plan_parts(gpu, suffix, most_counters)
                                  : plan_equal_sizes(gpu, suffix);
  for (const VgpuType& type : gpu.types)
    if (gpu.mixed_sizes ? !has_placements(type) : most_vgpus(type, gpu.memory_mib) == 0)
      notes.push_back(fmt::format("GPU {}: {} is left out, since its {} unknown", gpu.address.text(),
                                  type.short_name.empty() ? type.id : type.short_name,
                                  gpu.mixed_sizes ? "placements are" : "size or its number is"));
  if (out.framebuffer_mib == 0) out.counters = {{"gpu" + suffix, 1}};
  return out;
}

}  // namespace ferry::dra
