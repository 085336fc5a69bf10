// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/host_check.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/counted.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

/// The GPU instance that NVIDIA's program derives from a MIG-backed name's slices, size and suffix alone.
std::string derived_instance(const VgpuTypeName& name) {
  const auto suffix = [&]() -> std::string_view {
    switch (name.attribute) {
      case MigAttribute::none:
        return "";
      case MigAttribute::me:
        return "+me";
      case MigAttribute::nome:
        return "-me";
      case MigAttribute::meall:
        return "+me.all";
      case MigAttribute::gfx:
        return "+gfx";
    }
    return "";
  };
  return fmt::format("{}g.{}gb{}", name.slices.value_or(0), name.size_gib, suffix());
}

std::optional<std::string> never_under_nvidias(const VgpuTypeName& name, const KnownType& type) {
  if (type.mig_profile.empty()) return std::nullopt;
  const std::string derived = derived_instance(name);
  if (derived == type.mig_profile) return std::nullopt;
  return fmt::format(
      "{} never works under NVIDIA's program, which makes a GPU instance {} for it; the type needs {}",
      name.text(), derived, type.mig_profile);
}

/// The table's objection to an entry on a GPU whose driver offers no types now.
std::optional<Error> cannot_be(const VgpuCount& entry, const mdev::VgpuGpu& gpu, const KnownType& type) {
  const std::uint32_t most = type.max_instances.value_or(entry.count);
  if (entry.count <= most) return std::nullopt;
  return Error{.code = Errc::invalid_config,
               .message = fmt::format("{}: {}: no room for {} x {}: {} fit on an empty one", entry.place,
                                      gpu.label(), entry.count, entry.type.text(), most),
               .hint = {}};
}

void check_by_table(const ProfileItem& item, const mdev::VgpuGpu& gpu, GpuCheck& check) {
  const BoardTypes known(gpu.function);
  const bool offers =
      std::ranges::any_of(gpu.parents, [](const mdev::VgpuParent& parent) { return !parent.types.empty(); });
  for (const VgpuCount& entry : item.vgpus) {
    const KnownType* type = known.find(entry.type.text());
    if (type == nullptr) type = known.find(entry.type.driver_short_name());
    if (type == nullptr) {
      if (!offers) {
        check.notes.push_back(fmt::format(
            "{}: no table lists {} for {}: whether it has the type shows once its driver offers types",
            entry.place, entry.type.text(), gpu.function.ids()));
      }
      continue;
    }
    if (auto note = never_under_nvidias(entry.type, *type)) check.notes.push_back(entry.place + ": " + *note);
    if (offers) continue;
    // This fault outweighs a driver that offers no types now: the count will never fit.
    if (auto fault = cannot_be(entry, gpu, *type)) check.fault = std::move(fault);
  }
}

/// Items that are in effect on no GPU, in few words: a file for many nodes has many.
std::vector<std::string> idle_items(const Profile& profile, const mdev::VgpuInventory& inventory) {
  std::vector<std::string> out;
  std::vector<std::string> unmatched;
  for (const ProfileItem& item : profile.items) {
    const auto matches = [&](const mdev::VgpuGpu& gpu) { return item.matches(gpu); };
    const auto holds = [&](const mdev::VgpuGpu& gpu) { return profile.item_for(gpu) == &item; };
    if (std::ranges::none_of(inventory.gpus, matches)) {
      unmatched.push_back(item.place);
    } else if (std::ranges::none_of(inventory.gpus, holds)) {
      out.push_back(fmt::format("{}: a later item holds for every GPU that it matches", item.place));
    }
  }
  constexpr std::size_t kMost = 3;
  if (unmatched.size() > kMost) {
    out.push_back(fmt::format("{} match no GPU of this node, the first at {}",
                              counted(unmatched.size(), "item"), unmatched.front()));
  } else {
    for (const std::string& place : unmatched) out.push_back(place + ": matches no GPU of this node");
  }
  return out;
}

}  // namespace

std::string GpuCheck::label() const {
  return fmt::format("GPU {} ({})", index, gpu.text());
}

bool HostCheck::works() const {
  return std::ranges::none_of(gpus, [](const GpuCheck& gpu) { return gpu.fault.has_value(); });
}

bool HostCheck::is_for_no_gpu() const {
  return std::ranges::none_of(gpus, &GpuCheck::matched);
}

ExitStatus HostCheck::status() const {
  return works() ? ExitStatus::done : ExitStatus::refused;
}

HostCheck check_on_host(const Profile& profile, const VgpuView& view) {
  HostCheck out{.profile = profile.name, .gpus = {}, .notes = idle_items(profile, view.inventory)};
  for (GpuPlan& plan : plan_profile(profile, view).gpus) {
    GpuCheck check{.index = plan.index,
                   .gpu = plan.gpu,
                   .matched = plan.matched,
                   .place = std::move(plan.place),
                   .wanted = std::move(plan.wanted),
                   .found = std::move(plan.found),
                   .fault = std::move(plan.refusal),
                   .notes = std::move(plan.notes)};
    const mdev::VgpuGpu* gpu = view.inventory.find(check.gpu);
    const ProfileItem* item = gpu != nullptr ? profile.item_for(*gpu) : nullptr;
    if (item != nullptr) check_by_table(*item, *gpu, check);
    out.gpus.push_back(std::move(check));
  }
  return out;
}

}  // namespace ferry::vgpu
