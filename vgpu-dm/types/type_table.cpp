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
  KnownType type;
};

// The "48" of "2g.48gb+gfx" is twice 24 GiB.
std::optional<std::uint32_t> max_per_instance(const KnownType& type) {
  const auto dot = type.mig_profile.find('.');
  const auto unit = type.mig_profile.find("gb");
  if (dot >= unit || unit == std::string_view::npos) return std::nullopt;
  const auto gib = whole_number(type.mig_profile.substr(dot + 1, unit - dot - 1));
  const std::uint32_t size = type.framebuffer_mib.value_or(0);
  if (!gib || size == 0) return std::nullopt;
  return std::max(1U, *gib * 1024 / size);
}

Line parse_line(std::string_view line) {
  Line out;
  out.boards = cut(line, '\t');
  KnownType& type = out.type;
  type.name = cut(line, '\t');
  type.short_name = type.name.substr(type.name.find_last_of(' ') + 1);  // npos + 1 is 0
  type.number = whole_number(cut(line, '\t'));
  type.framebuffer_mib = whole_number(cut(line, '\t'));
  type.max_instances = whole_number(cut(line, '\t'));
  type.mig_backed = !line.empty();
  if (line != "?") type.mig_profile = line;
  type.max_per_instance = max_per_instance(type);
  return out;
}

bool lists(std::string_view boards, std::string_view board) {
  while (!boards.empty()) {
    if (cut(boards, ',') == board) return true;
  }
  return false;
}

std::vector<KnownType> types_of(const vfio::PciFunction& gpu) {
  std::string_view text = type_table_text();
  const std::string head = fmt::format("\n{}\t", gpu.ids());
  const auto begin = text.find(head);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + 1);
  const std::string_view start = std::string_view(head).substr(1);
  std::vector<Line> lines;  // lines of one device stand together
  while (text.starts_with(start)) {
    lines.push_back(parse_line(cut(text, '\n').substr(start.size())));
  }

  const std::string board =
      fmt::format("{:04x}:{:04x}", gpu.subsystem_vendor.value_or(0), gpu.subsystem_device.value_or(0));
  const auto listed = [&](const Line& line) { return lists(line.boards, board); };
  const auto of_others = [](const Line& line) { return !line.boards.empty(); };
  if (std::ranges::any_of(lines, listed)) {
    std::erase_if(lines, std::not_fn(listed));
  } else if (!std::ranges::all_of(lines, of_others)) {
    std::erase_if(lines, of_others);
  }
  std::vector<KnownType> out;
  out.reserve(lines.size());
  for (const Line& line : lines) out.push_back(line.type);
  return out;
}

void complete(const BoardTypes& known, mdev::VgpuType& type) {
  const bool nameless = type.name == type.id;
  const KnownType* found = nameless ? known.find_id(type.id) : known.find(type.name);
  if (found == nullptr && !nameless) found = known.find(type.short_name);
  if (found == nullptr) return;
  if (nameless) {
    type.name = found->name;
    type.short_name = found->short_name;
  }
  if (!type.max_instances) type.max_instances = found->max_instances;
  if (!type.framebuffer_mib) {
    type.framebuffer_mib = found->framebuffer_mib;
    type.framebuffer_by_name = found->framebuffer_mib.has_value();
  }
}

void complete(const BoardTypes& known, mdev::VgpuDevice& device) {
  if (!device.is_nameless()) return;
  if (const KnownType* found = known.find_id(device.type_id)) {
    device.type_name = found->name;
    device.short_name = found->short_name;
  }
}

bool has_nothing_to_complete(const mdev::VgpuGpu& gpu) {
  return gpu.parents.empty() && gpu.devices.empty() && !gpu.may_get_virtual_functions() &&
         !gpu.awaits_types();
}

// Serves a driver that lists only creatable types, or a GPU that may come to have such a driver's functions.
void add_unlisted(const BoardTypes& known, mdev::VgpuGpu& gpu) {
  std::set<std::string_view> listed;  // names and ids: a release may have another name for an id
  for (const mdev::VgpuParent& parent : gpu.parents) {
    for (const mdev::VgpuType& type : parent.types) listed.insert({type.name, type.id});
  }
  for (const KnownType& type : known.all()) {
    const std::string id = type.number ? std::to_string(*type.number) : "";
    if (listed.contains(type.name) || listed.contains(id)) continue;
    gpu.unlisted.push_back({.id = id,
                            .name = std::string(type.name),
                            .short_name = std::string(type.short_name),
                            .max_instances = type.max_instances,
                            .framebuffer_mib = type.framebuffer_mib,
                            .framebuffer_by_name = type.framebuffer_mib.has_value()});
  }
}

/// Calls `use` with each time-sliced type of the table that the GPU has, listed or not.
template <typename Use>
void for_each_time_sliced(const BoardTypes& known, mdev::VgpuGpu& gpu, const Use& use) {
  const auto visit = [&](std::vector<mdev::VgpuType>& types) {
    for (mdev::VgpuType& type : types) {
      const KnownType* found = known.find(type.name);
      if (found == nullptr) found = known.find(type.short_name);
      if (found != nullptr && !found->mig_backed && type.framebuffer_mib.value_or(0) > 0) use(type);
    }
  };
  for (mdev::VgpuParent& parent : gpu.parents) visit(parent.types);
  visit(gpu.unlisted);
}

// Neither vendor-specific VFIO nor the table gives a maximum for series A and B. It is that of another
// series' type of the same size, or else follows from the memory of the largest type.
void bound_by_framebuffer(const BoardTypes& known, mdev::VgpuGpu& gpu) {
  std::uint64_t memory_mib = 0;
  std::map<std::uint32_t, std::uint32_t> most_of_size;
  bool complete = true;
  for_each_time_sliced(known, gpu, [&](const mdev::VgpuType& type) {
    const std::uint32_t size = *type.framebuffer_mib;
    memory_mib = std::max(memory_mib, std::uint64_t{size} * std::max(type.max_instances.value_or(1), 1U));
    if (type.max_instances) {
      most_of_size.emplace(size, *type.max_instances);
    } else {
      complete = false;
    }
  });
  if (complete) return;
  for_each_time_sliced(known, gpu, [&](mdev::VgpuType& type) {
    if (type.max_instances) return;
    const auto same_size = most_of_size.find(*type.framebuffer_mib);
    type.max_instances = same_size != most_of_size.end()
                             ? same_size->second
                             : static_cast<std::uint32_t>(memory_mib / *type.framebuffer_mib);
  });
}

void complete(const BoardTypes& known, mdev::VgpuGpu& gpu) {
  if (known.all().empty()) return;
  for (mdev::VgpuParent& parent : gpu.parents) {
    for (mdev::VgpuType& type : parent.types) complete(known, type);
  }
  for (mdev::VgpuDevice& device : gpu.devices) complete(known, device);
  gpu.unlisted.clear();
  if (gpu.framework->lists_only_creatable_types() || gpu.may_get_virtual_functions() || gpu.awaits_types())
    add_unlisted(known, gpu);
  bound_by_framebuffer(known, gpu);
}

/// The IDs that decide which lines of the table apply to a GPU.
auto board_of(const vfio::PciFunction& gpu) {
  return std::tuple(gpu.vendor, gpu.device, gpu.subsystem_vendor, gpu.subsystem_device);
}

}  // namespace

std::string_view type_table_text() {
  return {ferry_vgpu_types_begin, static_cast<std::size_t>(ferry_vgpu_types_end - ferry_vgpu_types_begin)};
}

BoardTypes::BoardTypes(const vfio::PciFunction& gpu) : types_(types_of(gpu)) {
  // The first type with a name or a number is kept.
  for (std::size_t i = 0; i < types_.size(); ++i) {
    by_name_.emplace(types_[i].name, i);
    if (const auto known = types_[i].number) by_number_.emplace(*known, i);
  }
  for (std::size_t i = 0; i < types_.size(); ++i) by_name_.emplace(types_[i].short_name, i);
}

const KnownType* BoardTypes::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &types_[found->second];
}

const KnownType* BoardTypes::find_id(std::string_view id) const {
  const auto digits = whole_number(id.substr(id.find_last_of('-') + 1));
  if (!digits) return nullptr;
  const auto found = by_number_.find(*digits);
  return found == by_number_.end() ? nullptr : &types_[found->second];
}

void fill_in(std::span<mdev::VgpuGpu> gpus) {
  using Board = decltype(board_of(vfio::PciFunction{}));
  std::map<Board, BoardTypes> boards;
  for (mdev::VgpuGpu& gpu : gpus) {
    if (has_nothing_to_complete(gpu)) continue;
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
