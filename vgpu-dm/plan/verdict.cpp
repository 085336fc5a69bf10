// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/verdict.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "vgpu-dm/plan/gpu_match.h"

namespace ferry::vgpu {
namespace {

std::string difference(const mdev::VgpuGpu& gpu, const GpuMatch& match) {
  if (match.problem) return match.problem->message;
  const bool counts_agree = match.leftover.empty() && std::ranges::all_of(match.wants, [](const Want& want) {
                              return want.missing() == 0;
                            });
  if (counts_agree) {
    for (const Want& want : match.wants) {
      const auto untuned = want.untuned();
      if (untuned.empty() || !want.entry->params) continue;
      return fmt::format("{}: vGPU {} ({}): wanted the parameters '{}', found '{}'", gpu.label(),
                         untuned.front()->id.text, untuned.front()->short_name, want.entry->params->text(),
                         untuned.front()->params.value_or(""));
    }
    for (const Want& want : match.wants) {
      const Placing placing = want.placing();
      if (placing.moves.empty()) continue;
      const auto& [device, to] = placing.moves.front();
      return fmt::format("{}: vGPU {} ({}): wanted placement {}, found {}", gpu.label(), device->id.text,
                         device->short_name, to,
                         device->placement ? std::to_string(*device->placement) : "none");
    }
  }
  return fmt::format("{}: wanted {}, found {}", gpu.label(), text(match.wanted()), text(match.found()));
}

/// The error of a part that cannot be read, which makes all counts worthless; empty: all was read.
std::string unreadable_part(const mdev::VgpuGpu& gpu) {
  for (const mdev::VgpuParent& parent : gpu.parents) {
    if (parent.problem) return parent.problem->message;
  }
  return {};
}

GpuVerdict judge_gpu(const Profile& profile, const mdev::VgpuGpu& gpu) {
  GpuVerdict verdict{.index = gpu.index, .gpu = gpu.address()};
  const ProfileItem* item = profile.item_for(gpu);
  static const ProfileItem kNothing;  // the match points into its item
  const GpuMatch match = match_gpu(item != nullptr ? *item : kNothing, gpu, {}, {});
  verdict.wanted = match.wanted();
  verdict.found = match.found();
  const std::string unreadable = unreadable_part(gpu);
  if (item == nullptr) {
    verdict.difference = fmt::format("{}: no item of '{}' is for it", gpu.label(), profile.name);
  } else if (!unreadable.empty()) {
    verdict.difference = fmt::format("{}: {}", gpu.label(), unreadable);
  } else if (!match.agrees()) {
    verdict.difference = difference(gpu, match);
  }
  verdict.agrees = verdict.difference.empty();
  return verdict;
}

}  // namespace

std::vector<GpuVerdict> judge(const Profile& profile, const mdev::VgpuInventory& inventory) {
  std::vector<GpuVerdict> out;
  out.reserve(inventory.gpus.size());
  for (const mdev::VgpuGpu& gpu : inventory.gpus) out.push_back(judge_gpu(profile, gpu));
  return out;
}

Result<> assert_profile(const Profile& profile, const mdev::VgpuInventory& inventory) {
  std::vector<std::string> differences;
  for (const GpuVerdict& verdict : judge(profile, inventory)) {
    if (!verdict.agrees) differences.push_back(verdict.difference);
  }
  if (differences.empty()) return {};
  return fail(Errc::differs, fmt::format("'{}' is not what this node carries: {}", profile.name,
                                         fmt::join(differences, "; ")));
}

}  // namespace ferry::vgpu
