// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

std::vector<VgpuMove> all_moves(const GpuMatch& match) {
  std::vector<VgpuMove> out;
  for (const Want& want : match.wants) {
    const Placing placing = want.placing();
    out.insert(out.end(), placing.moves.begin(), placing.moves.end());
  }
  return out;
}

Error refused(const Want& want, const mdev::VgpuGpu& gpu, Errc code, const std::string& message,
              std::string hint) {
  return {.code = code,
          .message = fmt::format("{}: {}: {}", want.entry->place, gpu.label(), message),
          .hint = std::move(hint)};
}

/// Placements of vGPUs that stay and are not moved.
std::map<std::uint32_t, const mdev::VgpuDevice*> taken_places(const GpuMatch& match,
                                                              const std::vector<VgpuMove>& moves) {
  std::map<std::uint32_t, const mdev::VgpuDevice*> out;
  for (const Want& want : match.wants) {
    for (const mdev::VgpuDevice* device : want.kept) {
      if (!device->placement || std::ranges::find(moves, device, &VgpuMove::device) != moves.end()) continue;
      out.emplace(*device->placement, device);
    }
  }
  return out;
}

}  // namespace

std::vector<VgpuMove> in_order(std::vector<VgpuMove>& moves) {
  std::vector<VgpuMove> out;
  const auto is_free = [&](const VgpuMove& move) {
    return std::ranges::none_of(moves, [&](const VgpuMove& other) {
      return other.device != move.device && other.device->placement == move.to;
    });
  };
  for (auto next = moves.begin(); next != moves.end();) {
    next = std::ranges::find_if(moves, is_free);
    if (next == moves.end()) break;
    out.push_back(*next);
    moves.erase(next);
    next = moves.begin();
  }
  return out;
}

std::optional<Error> cannot_place(const GpuMatch& match, const mdev::VgpuGpu& gpu,
                                  const vfio::UseReport& use) {
  std::vector<VgpuMove> moves = all_moves(match);
  const auto taken = taken_places(match, moves);
  // The GPU's vGPUs show that it has no placements. Placements may still come with mixed sizes.
  const bool tells_no_places = !match.mixed_sizes && !gpu.devices.empty() &&
                               std::ranges::none_of(gpu.devices, [](const mdev::VgpuDevice& device) {
                                 return device.placement.has_value();
                               });
  std::optional<Error> held;  // ends with device users: lasting reasons are returned before it
  for (const Want& want : match.wants) {
    const Placing placing = want.placing();
    if (placing.moves.empty() && placing.left.empty()) continue;
    if (tells_no_places) {
      return refused(want, gpu, Errc::unsupported,
                     "its driver tells no places of vGPUs, so that none can be chosen",
                     "leave placement out, or ask for mixed-sizes: GPUs before Ada have places only then");
    }
    for (const VgpuMove& move : placing.moves) {
      const std::string what =
          fmt::format("{}: {}: vGPU {} ({}) cannot be moved to placement {}", want.entry->place, gpu.label(),
                      move.device->id.text, move.device->short_name, move.to);
      if (!held) held = cannot_change(*move.device, what, use);
    }
    std::vector<std::uint32_t> places = placing.left;
    for (const VgpuMove& move : placing.moves) places.push_back(move.to);
    for (const std::uint32_t place : places) {
      const auto other = taken.find(place);
      if (other == taken.end()) continue;
      return refused(want, gpu, Errc::invalid_config,
                     fmt::format("placement {} is taken by vGPU {} ({}), which stays", place,
                                 other->second->id.text, other->second->short_name),
                     "give that type placement IDs too, or choose another one");
    }
  }
  (void)in_order(moves);
  if (moves.empty()) return held;
  return Error{
      .code = Errc::unsupported,
      .message = fmt::format("{}: vGPU {} ({}) would have to change places with another one", gpu.label(),
                             moves.front().device->id.text, moves.front().device->short_name),
      .hint = "`ferry vgpu delete` removes them; made again, they get the places that are asked for"};
}

void add_moves(const GpuMatch& match, const mdev::VgpuGpu& gpu, GpuPlan& plan) {
  std::vector<VgpuMove> moves = all_moves(match);
  for (const VgpuMove& move : in_order(moves)) {
    const auto now = move.device->placement;
    plan.steps.push_back(move_of(
        gpu, move,
        fmt::format("{} asks for it there, it is at {}", plan.place, now ? std::to_string(*now) : "none")));
  }
}

void place_creations(const GpuMatch& match, GpuPlan& plan) {
  for (const Want& want : match.wants) {
    if (want.type == nullptr) continue;
    const Placing placing = want.placing();
    auto place = placing.left.begin();
    for (VgpuStep& step : plan.steps) {
      if (place == placing.left.end()) break;
      if (step.kind == VgpuStep::Kind::create && step.type_id == want.type->id) step.placement = *place++;
    }
  }
  std::ranges::stable_partition(plan.steps, [](const VgpuStep& step) {
    return step.kind != VgpuStep::Kind::create || step.placement.has_value();
  });
}

VgpuStep move_of(const mdev::VgpuGpu& gpu, const VgpuMove& move, std::string why) {
  VgpuStep step = removal_of(gpu, *move.device, std::move(why));
  step.kind = VgpuStep::Kind::set_placement;
  step.placement = move.to;
  return step;
}

}  // namespace ferry::vgpu
