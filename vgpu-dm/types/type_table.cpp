// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/type_table.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/types/type_capacity.h"
#include "vgpu-dm/types/type_names.h"

// The program holds the table as it is in the repository: nothing is generated, parsed at start or relocated.
// Its pages are read only if a type is looked up. NOLINTNEXTLINE(hicpp-no-assembler)
asm(R"(
  .pushsection .rodata.ferry_vgpu_types, "a", @progbits
ferry_vgpu_types_begin:
  .incbin ")" FERRY_VGPU_TYPES R"("
ferry_vgpu_types_end:
  .popsection
)");
extern "C" {
// NOLINTBEGIN(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
extern const char ferry_vgpu_types_begin[];
extern const char ferry_vgpu_types_end[];
// NOLINTEND(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
}

namespace ferry::vgpu {
namespace {

struct Line {
  std::string_view boards;
  mdev::VgpuType type;
};

Line parse_line(std::string_view line) {
  Line out;
  out.boards = cut(line, '\t');
  mdev::VgpuType& type = out.type;
  type.name = cut(line, '\t');
  type.short_name = mdev::last_word(type.name);
  type.id = cut(line, '\t');
  type.framebuffer_mib = whole_number(cut(line, '\t'));
  type.framebuffer_by_name = type.framebuffer_mib.has_value();
  type.max_instances = whole_number(cut(line, '\t'));
  if (line == "?") return out;
  type.mig_profile = line;
  // The "48" of "2g.48gb+gfx" is twice 24 GiB.
  const auto gib = number_at_start(line.substr(line.find('.') + 1));
  if (gib && type.framebuffer_mib) type.max_per_instance = std::max(1U, *gib * 1024 / *type.framebuffer_mib);
  return out;
}

void complete(const BoardTypes& known, mdev::VgpuType& type) {
  const bool nameless = type.name == type.id;
  const mdev::VgpuType* found = nameless ? known.find_id(type.id) : known.find(type.name);
  if (found == nullptr && !nameless) found = known.find(type.short_name);
  if (found != nullptr) {
    if (nameless) {
      type.name = found->name;
      type.short_name = found->short_name;
    }
    if (!type.max_instances) type.max_instances = found->max_instances;
    type.mig_profile = found->mig_profile;
    type.max_per_instance = found->max_per_instance;
  }
  if (type.framebuffer_mib) return;
  if (found != nullptr) type.framebuffer_mib = found->framebuffer_mib;
  const auto name = type.name == type.id ? std::nullopt : VgpuTypeName::of_driver(type.short_name);
  if (!type.framebuffer_mib && name) type.framebuffer_mib = name->size_mib();
  type.framebuffer_by_name = type.framebuffer_mib.has_value();
}

void complete(const BoardTypes& known, mdev::VgpuDevice& device) {
  if (!device.is_nameless()) return;
  if (const mdev::VgpuType* found = known.find_id(device.type_id)) {
    device.type_name = found->name;
    device.short_name = found->short_name;
  }
}

void complete(const BoardTypes& known, mdev::VgpuGpu& gpu) {
  std::vector<mdev::VgpuType*> types;
  for (mdev::VgpuParent& parent : gpu.parents) {
    for (mdev::VgpuType& type : parent.types) {
      complete(known, type);
      types.push_back(&type);
    }
  }
  for (mdev::VgpuDevice& device : gpu.devices) complete(known, device);
  gpu.unlisted.clear();
  const bool lists_all = !gpu.framework->lists_only_creatable_types();
  // The GPU's driver lists only creatable types, or the GPU may come to have such a driver's functions.
  if (!lists_all || gpu.may_get_virtual_functions() || gpu.awaits_types()) {
    std::set<std::string_view> listed;  // names and ids: a release may have another name for an id
    for (const mdev::VgpuParent& parent : gpu.parents) {
      for (const mdev::VgpuType& type : parent.types) listed.insert({type.name, type.id});
    }
    for (const mdev::VgpuType& type : known.all())
      if (!listed.contains(type.name) && !listed.contains(type.id)) gpu.unlisted.push_back(type);
  }
  for (mdev::VgpuType& type : gpu.unlisted) types.push_back(&type);
  // On the GPU itself the driver counts. Each function carries one vGPU, and only some may be on the driver.
  // Whole functions are made to a profile's number.
  if (gpu.on_virtual_functions() && !gpu.framework->binds_functions() && !gpu.parents.empty())
    add_maxima(types, lists_all || gpu.devices.empty(), static_cast<std::uint32_t>(gpu.parents.size()));
}

/// The IDs that decide which lines of the table apply to a GPU.
auto board_of(const vfio::PciFunction& gpu) {
  return std::tuple(gpu.vendor, gpu.device, gpu.subsystem_vendor, gpu.subsystem_device);
}

}  // namespace

std::string_view type_table_text() {
  return {ferry_vgpu_types_begin, static_cast<std::size_t>(ferry_vgpu_types_end - ferry_vgpu_types_begin)};
}

BoardTypes::BoardTypes(const vfio::PciFunction& gpu) {
  std::string_view text = type_table_text();
  const std::string head = fmt::format("\n{}\t", gpu.ids());
  const auto begin = text.find(head);
  if (begin == std::string_view::npos) return;
  text.remove_prefix(begin + 1);
  const std::string_view start = std::string_view(head).substr(1);
  std::vector<Line> lines;  // lines of one device stand together
  while (text.starts_with(start)) {
    lines.push_back(parse_line(cut(text, '\n').substr(start.size())));
  }

  const std::string board =
      fmt::format("{:04x}:{:04x}", gpu.subsystem_vendor.value_or(0), gpu.subsystem_device.value_or(0));
  const auto listed = [&](const Line& line) {
    const auto boards = words_between(line.boards, ',');
    return std::ranges::find(boards, board) != boards.end();
  };
  const auto of_others = [](const Line& line) { return !line.boards.empty(); };
  if (std::ranges::any_of(lines, listed)) {
    std::erase_if(lines, std::not_fn(listed));
  } else if (!std::ranges::all_of(lines, of_others)) {
    std::erase_if(lines, of_others);
  } else {
    is_one_of_several_ = true;
  }
  types_.reserve(lines.size());
  for (Line& line : lines) types_.push_back(std::move(line.type));
  std::vector<mdev::VgpuType*> all;
  all.reserve(types_.size());
  for (mdev::VgpuType& type : types_) all.push_back(&type);
  add_maxima(all, true);

  // The first type with a name or a number is kept.
  for (std::size_t i = 0; i < types_.size(); ++i) {
    by_name_.emplace(types_[i].name, i);
    if (const auto known = whole_number(types_[i].id)) by_number_.emplace(*known, i);
  }
  for (std::size_t i = 0; i < types_.size(); ++i) by_name_.emplace(types_[i].short_name, i);
}

std::uint32_t BoardTypes::memory_mib() const {
  std::map<std::string, std::uint32_t> boards;
  for (const mdev::VgpuType& type : types_) {
    const auto name = VgpuTypeName::of_driver(type.short_name);
    if (!name || is_mig_backed(type)) continue;
    std::uint32_t& most = boards[is_one_of_several_ ? name->board : std::string()];
    most = std::max(most, type.framebuffer_mib.value_or(0));
  }
  const auto smallest = std::ranges::min_element(boards, {}, [](const auto& board) { return board.second; });
  return smallest == boards.end() ? 0 : smallest->second;
}

bool BoardTypes::has_mig_backed() const {
  return std::ranges::any_of(types_, [](const mdev::VgpuType& type) { return is_mig_backed(type); });
}

const mdev::VgpuType* BoardTypes::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &types_[found->second];
}

const mdev::VgpuType* BoardTypes::find_id(std::string_view id) const {
  const auto digits = whole_number(id.substr(id.find_last_of('-') + 1));
  if (!digits) return nullptr;
  const auto found = by_number_.find(*digits);
  return found == by_number_.end() ? nullptr : &types_[found->second];
}

void fill_in(std::span<mdev::VgpuGpu> gpus) {
  using Board = decltype(board_of(vfio::PciFunction{}));
  std::map<Board, BoardTypes> boards;
  for (mdev::VgpuGpu& gpu : gpus) {
    if (gpu.parents.empty() && gpu.devices.empty() && !gpu.may_get_virtual_functions() && !gpu.awaits_types())
      continue;
    complete(boards.try_emplace(board_of(gpu.function), gpu.function).first->second, gpu);
  }
}

Result<mdev::VgpuInventory> scan_known_vgpus(const HostFs& host, const vfio::Inventory& inventory,
                                             const vfio::AcceleratorRules& rules) {
  auto out = mdev::scan_vgpus(host, inventory, rules);
  if (!out) return out;
  name_by_memory(host, out->gpus);
  fill_in(out->gpus);
  return out;
}

Result<mdev::VgpuGpu> scan_known_gpu_again(const HostFs& host, const vfio::Inventory& inventory,
                                           const mdev::VgpuGpu& before) {
  auto out = mdev::scan_gpu_again(host, inventory, before);
  if (!out) return out;
  name_by_memory(host, {&*out, 1});
  fill_in({&*out, 1});
  return out;
}

}  // namespace ferry::vgpu
