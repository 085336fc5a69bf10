// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/gpu_capacity.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vgpu-dm/plan/gpu_preparation.h"
#include "vgpu-dm/types/type_capacity.h"

namespace ferry::vgpu {
namespace {

constexpr auto kUnknown = std::numeric_limits<std::uint32_t>::max();

/// The total of vGPUs up to which a type can still be made; absent: unknown.
struct Limit {
  std::optional<std::uint32_t> most;
  bool certain = true;  ///< false: perhaps fewer
};

// Present vGPUs plus those available now, unless another size hides the type; then its maximum counts,
// if known. On virtual functions each free function offers a vGPU, whatever memory the GPU has left.
Limit limit_of(const Want& want, const mdev::VgpuGpu& gpu, const TypeIndex& types, bool instances_fit) {
  const auto carried = static_cast<std::uint32_t>(gpu.devices.size());
  const auto functions = static_cast<std::uint32_t>(gpu.parents.size());
  if (want.type == nullptr) return {.most = functions, .certain = false};
  const mdev::VgpuType& type = *want.type;
  // lacking_instances() has compared it with its maximum.
  if (want.entry->type.is_mig_backed() && gpu.on_virtual_functions())
    return {.most = functions, .certain = instances_fit || type.max_instances};
  std::uint32_t left = 0;
  for (const mdev::VgpuParent& parent : gpu.parents) left += parent.available(type.id);
  const bool carries_its_size = std::ranges::any_of(gpu.devices, [&](const mdev::VgpuDevice& device) {
    if (device.type_id == type.id || device.type_name == type.name) return true;
    const mdev::VgpuType* other = type_of(device, types);
    return type.framebuffer_mib && other != nullptr && other->framebuffer_mib == type.framebuffer_mib;
  });
  const bool known = left > 0 || carried == 0 || carries_its_size;
  if (!gpu.on_virtual_functions()) {
    return known ? Limit{.most = left + carried} : Limit{.most = type.max_instances};
  }
  if (known && left == 0) return {.most = std::min(carried, type.max_instances.value_or(carried))};
  const std::uint32_t most = std::min(functions, type.max_instances.value_or(functions));
  return {.most = known ? std::min(most, left + carried) : most, .certain = type.max_instances.has_value()};
}

std::optional<Error> two_sizes(const GpuMatch& match, const mdev::VgpuGpu& gpu) {
  const Want* first = nullptr;
  std::uint32_t size_of_first = 0;
  for (const Want& want : match.wants) {
    // MIG-backed types do not count: each GPU instance has its own size.
    const bool counts = want.type != nullptr && !want.entry->type.is_mig_backed();
    const std::uint32_t size = counts ? want.type->framebuffer_mib.value_or(0) : 0;
    if (size == 0) continue;
    if (first == nullptr) {
      first = &want;
      size_of_first = size;
    }
    if (size == size_of_first) continue;
    const std::string both =
        fmt::format("{}: {}: {} ({} MiB) and {} ({} MiB)", want.entry->place, gpu.label(),
                    first->entry->type.text(), size_of_first, want.entry->type.text(), size);
    // GPUs from Ampere on, which have virtual functions, can carry several sizes.
    if (gpu.on_virtual_functions() ||
        (!gpu.on_itself() && gpu.function.sriov_totalvfs > 0 && !gpu.never_has_functions)) {
      return Error{
          .code = Errc::invalid_config,
          .message = both + " are of two sizes, and mixed-sizes is not set",
          .hint =
              "write `mixed-sizes: true` next to vgpu-devices in a policy file (v2; `ferry convert -f "
              "FILE` prints a profile file as one), or give each size GPUs of its own"};
    }
    return Error{
        .code = Errc::invalid_config,
        .message = both + " cannot be on one GPU",
        .hint = "all vGPUs of a GPU have one framebuffer size before Ampere; give each size GPUs of its own"};
  }
  return std::nullopt;
}

/// `carried`: all vGPUs that are asked for, up to and including this entry.
Error no_capacity(const Want& want, const mdev::VgpuGpu& gpu, std::uint32_t carried, std::uint32_t limit) {
  const std::uint32_t beside = carried - want.missing();
  const std::size_t others = beside > want.kept.size() ? beside - want.kept.size() : 0;
  return {.code = Errc::invalid_config,
          .message = fmt::format(
              "{}: {}: no room for {} x {}: {} fit{}", want.entry->place, gpu.label(), want.entry->count,
              want.entry->type.text(), limit,
              others > 0 ? fmt::format(", and {} asked for", counted(others, "other is", "others are")) : ""),
          .hint = "'ferry vgpu types' shows what each GPU can carry"};
}

// For mixed sizes only the driver knows where each size may begin. Two bounds are known before any removal: a
// type never exceeds its own maximum, and all together never exceed the memory.
std::optional<Error> lacking_of_mixed_sizes(const GpuMatch& match, const mdev::VgpuGpu& gpu) {
  const std::uint64_t memory = time_sliced_memory(gpu);
  std::uint64_t taken = 0;
  for (const Want& want : match.wants) {
    if (want.type == nullptr || want.entry->type.is_mig_backed()) continue;
    const std::uint32_t count = want.entry->count;
    const std::uint32_t most = want.type->max_instances.value_or(count);
    if (count > most) return no_capacity(want, gpu, count, most);
    taken += std::uint64_t{want.type->framebuffer_mib.value_or(0)} * count;
    if (memory == 0 || taken <= memory) continue;
    return Error{.code = Errc::invalid_config,
                 .message = fmt::format("{}: {}: no room for {} together: at least {} MiB, and it has {} MiB "
                                        "for vGPUs",
                                        want.entry->place, gpu.label(), text(match.desired()), taken, memory),
                 .hint = "ask for fewer, or for smaller ones"};
  }
  return std::nullopt;
}

/// True if a MIG-backed vGPU may join one of its size that stays on a GPU instance. The driver takes the
/// first possible instance: made earlier, this vGPU might take an empty one that other vGPUs need.
bool may_go_beside(const Want& want, const GpuMatch& match) {
  if (!want.entry->type.is_mig_backed() || want.type == nullptr) return false;
  return std::ranges::any_of(match.wants, [&](const Want& other) {
    return !other.kept.empty() && other.entry->type.is_mig_backed() && other.type != nullptr &&
           other.type->framebuffer_mib == want.type->framebuffer_mib;
  });
}

}  // namespace

std::optional<Error> lacking_when_empty(const GpuMatch& match, const mdev::VgpuGpu& gpu) {
  if (auto lacking = match.mixed_sizes ? lacking_of_mixed_sizes(match, gpu) : two_sizes(match, gpu))
    return lacking;
  const bool has_functions = gpu.function.sriov_totalvfs > 0 && !gpu.never_has_functions;
  const std::uint32_t functions = has_functions ? gpu.function.sriov_totalvfs : kUnknown;
  std::uint32_t carried = 0;
  for (const Want& want : match.wants) {
    // lacking_instances() counts MIG-backed types, and mixed sizes count each on its own.
    const bool counts = want.type != nullptr && !want.entry->type.is_mig_backed() && !match.mixed_sizes;
    const auto most = counts ? want.type->max_instances : std::nullopt;
    const std::uint32_t limit = std::min(functions, most.value_or(functions));
    carried += want.missing();
    if (carried > limit) return no_capacity(want, gpu, carried, limit);
  }
  return std::nullopt;
}

std::optional<Error> lacking_instances(const GpuMatch& match, const mdev::VgpuGpu& gpu) {
  std::vector<Want> wants;
  for (const Want& want : match.wants) {
    if (!want.entry->type.is_mig_backed() || want.type == nullptr) continue;
    const std::uint32_t count = want.entry->count;
    const std::uint32_t most = want.type->max_instances.value_or(most_by_slices(gpu, *want.type));
    if (count > most) return no_capacity(want, gpu, count, most);
    if (!want.type->max_per_instance) continue;
    wants.push_back(want);
    wants.back().kept.clear();  // as if the GPU were empty
  }
  if (wants.empty()) return std::nullopt;
  return plan_instances(gpu, wants, instances_by_types(gpu), {}).refusal;
}

bool carries_several_sizes(const mdev::VgpuGpu& gpu) {
  const TypeIndex types = index_of(gpu);
  std::set<std::uint32_t> sizes;
  for (const mdev::VgpuDevice& device : gpu.devices) {
    const mdev::VgpuType* type = is_mig_backed(device) ? nullptr : type_of(device, types);
    if (type != nullptr && type->framebuffer_mib) sizes.insert(*type->framebuffer_mib);
  }
  return sizes.size() > 1;
}

CapacityCheck check_capacity(const GpuMatch& match, const mdev::VgpuGpu& gpu, bool instances_fit) {
  CapacityCheck capacity;
  std::uint32_t carried = 0;
  for (const Want& want : match.wants) {
    carried += static_cast<std::uint32_t>(want.kept.size());
    if (want.missing() > 0) capacity.order.push_back(&want);
  }
  if (capacity.order.empty()) return capacity;

  if (gpu.on_virtual_functions()) {
    std::uint32_t desired = carried;
    for (const Want* want : capacity.order) {
      desired += want->missing();
      if (desired <= gpu.parents.size()) continue;
      capacity.lacking = no_capacity(*want, gpu, desired, static_cast<std::uint32_t>(gpu.parents.size()));
      return capacity;
    }
  }

  const TypeIndex types = index_of(gpu);
  const bool mixed = match.mixed_sizes || carries_several_sizes(gpu);
  capacity.lacking = mixed ? lacking_of_mixed_sizes(match, gpu) : two_sizes(match, gpu);
  if (capacity.lacking) return capacity;

  std::map<const Want*, Limit> limits;
  for (const Want* want : capacity.order) {
    limits[want] = mixed ? Limit{.most = {}, .certain = false} : limit_of(*want, gpu, types, instances_fit);
  }
  std::ranges::stable_sort(capacity.order, {}, [&](const Want* want) {
    return std::tuple(may_go_beside(*want, match), !want->listed, limits[want].most.value_or(kUnknown));
  });
  for (const Want* want : capacity.order) {
    carried += want->missing();
    // The driver offers the only vGPU that is missing, as the GPU is now.
    const bool is_one_on_offer = want->missing() == 1 && want->type != nullptr &&
                                 std::ranges::any_of(gpu.parents, [want](const mdev::VgpuParent& parent) {
                                   return parent.available(want->type->id) > 0;
                                 });
    const bool can_be_made = want == capacity.order.front() && is_one_on_offer;
    const auto [limit, certain] = limits[want];
    if (!limit || (!certain && !can_be_made && carried <= *limit)) {
      capacity.notes.push_back(fmt::format(
          "{}: whether {} x {} fit shows {}", gpu.label(), want->missing(), want->entry->type.text(),
          match.leftover.empty() ? "only when they are made" : "once the others are gone"));
    } else if (carried > *limit) {
      capacity.lacking = no_capacity(*want, gpu, carried, *limit);
      return capacity;
    }
  }
  return capacity;
}

}  // namespace ferry::vgpu
