// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/gpu_room.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "common/counted.h"

namespace ferry {
namespace {

using Sizes =
    std::map<std::string, std::uint32_t>;  // framebuffer in MiB by type id, where the driver says it

Sizes sizes_on(const VgpuGpu& gpu) {
  Sizes out;
  for (const VgpuParent& parent : gpu.parents) {
    for (const VgpuType& type : parent.types) {
      if (type.framebuffer_mib) out[type.id] = *type.framebuffer_mib;
    }
  }
  return out;
}

bool carries_two_sizes(const VgpuGpu& gpu, const Sizes& sizes) {
  std::set<std::uint32_t> seen;
  for (const VgpuDevice& device : gpu.devices) {
    if (const auto size = sizes.find(device.type_id); size != sizes.end()) seen.insert(size->second);
  }
  return seen.size() > 1;
}

bool carries_size_of(const VgpuGpu& gpu, const VgpuType& type, const Sizes& sizes) {
  return std::any_of(gpu.devices.begin(), gpu.devices.end(), [&](const VgpuDevice& device) {
    if (device.type_id == type.id) return true;
    const auto size = sizes.find(device.type_id);
    return size != sizes.end() && type.framebuffer_mib && size->second == *type.framebuffer_mib;
  });
}

// How many vGPUs the GPU may carry for this type to be still creatable up to there. What is available now
// says it, save while vGPUs of another size hide it; then the driver's description does, if there is one.
std::optional<std::uint32_t> limit_of(const VgpuType& type, const VgpuGpu& gpu, const Sizes& sizes) {
  const auto carried = static_cast<std::uint32_t>(gpu.devices.size());
  if (type.available > 0 || carried == 0 || carries_size_of(gpu, type, sizes))
    return type.available + carried;
  return type.max_instances;
}

std::optional<Error> two_sizes(const GpuMatch& match, const VgpuGpu& gpu) {
  const Want* first = nullptr;
  std::uint32_t size_of_first = 0;
  for (const Want& want : match.wants) {
    // Of MIG-backed types each GPU instance has one size, and other instances others.
    const bool counts = want.type != nullptr && !want.entry->type.is_mig_backed();
    const std::uint32_t size = counts ? want.type->framebuffer_mib.value_or(0) : 0;
    if (size == 0) continue;
    if (first == nullptr) {
      first = &want;
      size_of_first = size;
    }
    if (size == size_of_first) continue;
    return Error{.code = Errc::invalid_config,
                 .message = fmt::format("{}: {}: {} ({} MiB) and {} ({} MiB) cannot be on one GPU",
                                        want.entry->place, gpu.label(), first->entry->type.text(),
                                        size_of_first, want.entry->type.text(), size),
                 .hint = "all vGPUs of a GPU have one framebuffer size; give each size GPUs of its own"};
  }
  return std::nullopt;
}

}  // namespace

Room check_room(const GpuMatch& match, const VgpuGpu& gpu) {
  Room room;
  std::uint32_t carried = 0;
  for (const Want& want : match.wants) {
    carried += static_cast<std::uint32_t>(want.kept.size());
    if (want.missing() > 0) room.order.push_back(&want);
  }
  if (room.order.empty()) return room;

  const Sizes sizes = sizes_on(gpu);
  const bool mixed = carries_two_sizes(gpu, sizes);
  if (!mixed) room.lacking = two_sizes(match, gpu);
  if (room.lacking) return room;

  std::map<const Want*, std::optional<std::uint32_t>> limits;
  for (const Want* want : room.order) {
    if (!mixed) limits[want] = limit_of(*want->type, gpu, sizes);
  }
  std::stable_sort(room.order.begin(), room.order.end(), [&](const Want* a, const Want* b) {
    constexpr auto kUnknown = std::numeric_limits<std::uint32_t>::max();
    return limits[a].value_or(kUnknown) < limits[b].value_or(kUnknown);
  });
  for (const Want* want : room.order) {
    carried += want->missing();
    const auto limit = limits[want];
    if (!limit) {
      room.notes.push_back(fmt::format("{}: whether {} x {} fit shows once the others are gone", gpu.label(),
                                       want->missing(), want->type->short_name));
    } else if (carried > *limit) {
      const std::uint32_t beside = carried - want->missing();
      room.lacking = Error{
          .code = Errc::invalid_config,
          .message = fmt::format("{}: {}: no room for {} x {}: {} fit{}", want->entry->place, gpu.label(),
                                 want->entry->count, want->entry->type.text(), *limit,
                                 beside > want->kept.size()
                                     ? fmt::format(", and {} asked for", counted(beside - want->kept.size(),
                                                                                 "other is", "others are"))
                                     : ""),
          .hint = "'ferry vgpu types' shows what each GPU can carry"};
      return room;
    }
  }
  return room;
}

}  // namespace ferry
