// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/comparison.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "common/text/words.h"
#include "mdev/framework.h"
#include "vgpu-dm/plan/gpu_capacity.h"
#include "vgpu-dm/plan/gpu_match.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

std::string difference(const mdev::VgpuGpu& gpu, const GpuMatch& match) {
  if (match.problem) return match.problem->message;
  const bool counts_agree = match.leftover.empty() && std::ranges::all_of(match.wants, [](const Want& want) {
                              return want.missing() == 0;
                            });
  if (counts_agree && match.functions) {
    return fmt::format("{}: expected {}, found {}", gpu.label(),
                       counted(*match.functions, "virtual function"), gpu.function.sriov_numvfs);
  }
  if (counts_agree) {
    for (const Want& want : match.wants) {
      const auto untuned = want.untuned();
      if (untuned.empty() || !want.entry->params) continue;
      return fmt::format("{}: vGPU {} ({}): expected the parameters '{}', found '{}'", gpu.label(),
                         untuned.front()->id.text, untuned.front()->short_name, want.entry->params->text(),
                         untuned.front()->params.value_or(""));
    }
    for (const Want& want : match.wants) {
      const Placing placing = want.placing();
      if (placing.moves.empty()) continue;
      const auto& [device, to] = placing.moves.front();
      return fmt::format("{}: vGPU {} ({}): expected placement {}, found {}", gpu.label(), device->id.text,
                         device->short_name, to,
                         device->placement ? std::to_string(*device->placement) : "none");
    }
  }
  return fmt::format("{}: expected {}, found {}", gpu.label(), text(match.desired()), text(match.found()));
}

}  // namespace

std::vector<GpuComparison> judge(const Profile& profile, const mdev::VgpuInventory& inventory) {
  std::vector<GpuComparison> out;
  out.reserve(inventory.gpus.size());
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    GpuComparison& comparison = out.emplace_back(GpuComparison{.index = gpu.index, .gpu = gpu.address()});
    const ProfileItem* item = profile.item_for(gpu);
    static const ProfileItem kNothing;  // the match points into its item
    const GpuMatch match = match_gpu(item != nullptr ? *item : kNothing, gpu, {}, {});
    comparison.desired = match.desired();
    comparison.found = match.found();
    if (item == nullptr && !gpu.by_name) {  // another item may be the one that names its vendor
      comparison.difference = fmt::format("{}: no item of '{}' is for it", gpu.label(), profile.name);
    } else if (const Error* problem = gpu.problem(); item != nullptr && problem != nullptr) {
      // The counts are worthless.
      comparison.difference = fmt::format("{}: {}", gpu.label(), problem->message);
    } else if (item != nullptr && !match.agrees()) {
      comparison.difference = difference(gpu, match);
    }
    comparison.agrees = comparison.difference.empty();
  }
  return out;
}

Result<> assert_profile(const Profile& profile, const mdev::VgpuInventory& inventory) {
  std::vector<std::string> differences;
  for (const GpuComparison& comparison : judge(profile, inventory)) {
    if (!comparison.agrees) differences.push_back(comparison.difference);
  }
  if (differences.empty()) return {};
  return fail(Errc::differs, fmt::format("'{}' is not what this node carries: {}", profile.name,
                                         fmt::join(differences, "; ")));
}

namespace {

void check_by_table(const ProfileItem& item, const mdev::VgpuGpu& gpu, GpuPlan& plan) {
  const BoardTypes known(gpu.function);
  const bool offers =
      gpu.framework->binds_functions() ||
      std::ranges::any_of(gpu.parents, [](const mdev::VgpuParent& parent) { return !parent.types.empty(); });
  for (const VgpuCount& entry : item.vgpus) {
    const mdev::VgpuType* type = known.find(entry.type.text());
    if (type == nullptr) type = known.find(entry.type.driver_short_name());
    if (type == nullptr) {
      if (!offers) {
        plan.notes.push_back(fmt::format(
            "{}: no table lists {} for {}: whether it has the type shows once its driver offers types",
            entry.place, entry.type.text(), gpu.function.ids()));
      }
      continue;
    }
    if (type->mig_profile.empty()) continue;
    // NVIDIA's program derives the GPU instance from a MIG-backed name's slices, size and suffix alone.
    constexpr Words<std::string_view, 5> kSuffixes = {
        {{"", ""}, {"+me", "ME"}, {"-me", "NOME"}, {"+me.all", "MEALL"}, {"+gfx", "GFX"}}};
    const VgpuTypeName& name = entry.type;
    const std::string derived = fmt::format("{}g.{}gb{}", name.slices.value_or(0), name.size_gib,
                                            word_for(kSuffixes, std::string_view(name.attribute)));
    if (derived == type->mig_profile) continue;
    plan.notes.push_back(
        fmt::format("{}: {} never works under NVIDIA's program, which makes a GPU instance {} "
                    "for it; the type needs {}",
                    entry.place, name.text(), derived, type->mig_profile));
  }
  if (offers || !plan.refusal) return;

  // An empty GPU of this board cannot carry the vGPUs by the table: this fault outweighs a driver that
  // offers no types now.
  mdev::VgpuGpu empty = gpu;
  empty.devices.clear();
  empty.unlisted = known.all();
  const GpuMatch match = match_gpu(item, empty, {}, {});
  if (match.problem) return;
  auto fault = lacking_instances(match, empty);
  if (!fault) fault = lacking_when_empty(match, empty);
  if (fault) plan.refusal = std::move(fault);
}

}  // namespace

bool HostCheck::works() const {
  return std::ranges::none_of(gpus, [](const GpuPlan& gpu) { return gpu.refusal.has_value(); });
}

bool HostCheck::is_not_known() const {
  return works() && std::ranges::any_of(gpus, &GpuPlan::not_known);
}

bool HostCheck::is_for_no_gpu() const {
  return std::ranges::none_of(gpus, &GpuPlan::matched);
}

ExitStatus HostCheck::status() const {
  return works() ? ExitStatus::done : ExitStatus::refused;
}

HostCheck check_on_host(const Profile& profile, const VgpuSnapshot& snapshot) {
  const std::vector<mdev::VgpuGpu>& gpus = snapshot.inventory.gpus;
  HostCheck out{.profile = profile.name, .gpus = plan_profile(profile, snapshot).gpus, .notes = {}};

  // Notes on items that are in effect on no GPU are short: a file for many nodes has many.
  std::vector<std::string> unmatched;
  for (const ProfileItem& item : profile.items) {
    const auto matches = [&](const mdev::VgpuGpu& gpu) { return item.matches(gpu); };
    const auto holds = [&](const mdev::VgpuGpu& gpu) { return profile.item_for(gpu) == &item; };
    if (std::ranges::none_of(gpus, matches)) {
      unmatched.push_back(item.place);
    } else if (std::ranges::none_of(gpus, holds)) {
      out.notes.push_back(fmt::format("{}: a later item holds for every GPU that it matches", item.place));
    }
  }
  constexpr std::size_t kMost = 3;
  if (unmatched.size() > kMost) {
    out.notes.push_back(fmt::format("{} match no GPU of this node, the first at {}",
                                    counted(unmatched.size(), "item"), unmatched.front()));
    unmatched.clear();
  }
  for (const std::string& place : unmatched) out.notes.push_back(place + ": matches no GPU of this node");

  for (GpuPlan& plan : out.gpus) {
    const mdev::VgpuGpu* gpu = snapshot.inventory.find(plan.gpu);
    const ProfileItem* item = gpu != nullptr ? profile.item_for(*gpu) : nullptr;
    if (item != nullptr) check_by_table(*item, *gpu, plan);
  }
  return out;
}

}  // namespace ferry::vgpu
