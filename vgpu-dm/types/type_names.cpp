// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/type_names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/text.h"
#include "hostfs/kernel_facts.h"
#include "mdev/framework.h"

namespace ferry::vgpu {
namespace {

constexpr std::size_t kLongest = 64;  // longer than any label value; std::regex needs a bound

Result<const mdev::VgpuType*> find_by_short_name(std::string_view name,
                                                 std::span<const mdev::VgpuType> types) {
  const mdev::VgpuType* found = nullptr;
  for (const mdev::VgpuType& type : types) {
    if (type.short_name != name) continue;
    if (found != nullptr) {
      return fail(Errc::unsupported, fmt::format("{} may be {} ({}) or {} ({})", name, found->name, found->id,
                                                 type.name, type.id));
    }
    found = &type;
  }
  return found;
}

}  // namespace

Result<VgpuTypeName> VgpuTypeName::parse(std::string_view text) {
  // No text matches two of them, so their order affects only speed.
  static const std::regex kTimeSliced("([A-Z0-9]+(?:-[A-Za-z]+)*)-(0|[1-9][0-9]*)([ABCQ])");
  static const std::regex kMigBacked("([A-Z0-9]+)-([1-9])-(0|[1-9][0-9]*)([ABCQ])(ME|NOME|MEALL|GFX)?");
  static const std::regex kWholeFunction("[0-9a-f]{4}:[0-9a-f]{4}");
  // Names that NVIDIA's drivers have, and its file format has not: "L40S-48", "DC-2-48", "T4-2B4".
  static const std::regex kOfDriversOnly(
      "[A-Z0-9]+(?:-[A-Za-z]+)*(?:-[1-9])?-(?:0|[1-9][0-9]*)(?:[ABCQ][0-9]+)?");

  const auto refuse = [&]() -> tl::unexpected<Error> {
    constexpr const char* kNames =
        "names look like L40S-12Q, RTX6000-Ada-24Q or H100-1-10CME: board, size in GiB, one of A B C Q";
    const std::string_view last = text.substr(text.find_last_of(" _/") + 1);
    if (text.size() <= kLongest && std::regex_match(last.begin(), last.end(), kOfDriversOnly))
      return fail(Errc::invalid_config,
                  fmt::format("no file can name the vGPU type '{}', although a driver may have it", text),
                  kNames);
    // The text may be the driver's own name, as `nvidia-smi vgpu` prints it, or that of a resource.
    if (const auto blank = text.find_last_of(" _/"); blank != std::string_view::npos) {
      if (const auto short_name = parse(text.substr(blank + 1))) {
        return fail(Errc::invalid_config, fmt::format("'{}' is not the name of a vGPU type", text),
                    fmt::format("write {}: a file names a type by the last word of the driver's name",
                                short_name->text()));
      }
    }
    return fail(Errc::invalid_config, fmt::format("'{}' is not the name of a vGPU type", text), kNames);
  };
  if (text.size() > kLongest) return refuse();
  std::match_results<std::string_view::const_iterator> match;
  VgpuTypeName name;
  int size_part = 2;
  if (std::regex_match(text.begin(), text.end(), match, kMigBacked)) {
    name.slices = static_cast<std::uint32_t>(*match[2].first - '0');
    name.attribute = match[5].str();
    size_part = 3;
  } else if (std::regex_match(text.begin(), text.end(), kWholeFunction)) {
    name.board = text;
    return name;
  } else if (!std::regex_match(text.begin(), text.end(), match, kTimeSliced)) {
    return refuse();
  }
  name.board = match[1].str();
  const std::string size = match[static_cast<std::size_t>(size_part)].str();
  if (std::from_chars(size.data(), size.data() + size.size(), name.size_gib).ec != std::errc())
    return refuse();
  name.series = *match[static_cast<std::size_t>(size_part) + 1].first;
  return name;
}

std::optional<VgpuTypeName> VgpuTypeName::of_driver(std::string_view short_name) {
  constexpr std::uint32_t kMostGib = 1U << 20U;  // its MiB fit the field
  const auto hyphen = short_name.find_last_of('-');
  if (hyphen == std::string_view::npos) return std::nullopt;
  std::string_view rest = short_name.substr(hyphen + 1);
  const auto digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const auto size = whole_number(rest.substr(0, digits));
  rest.remove_prefix(digits);
  const bool has_series = rest.find_first_of("ABCQ") == 0;
  if (!size || *size > kMostGib || !(rest.empty() || has_series)) return std::nullopt;
  VgpuTypeName name;
  name.size_gib = *size;
  name.series = has_series ? rest.front() : '\0';
  if (has_series && rest.substr(1) == "ME") name.attribute = "ME";
  std::string_view board = short_name.substr(0, hyphen);
  if (board.size() > 2 && board[board.size() - 2] == '-' && board.back() >= '1' && board.back() <= '9') {
    name.slices = static_cast<std::uint32_t>(board.back() - '0');
    board.remove_suffix(2);
  }
  name.board = board;
  return name;
}

std::string VgpuTypeName::text() const {
  if (is_whole_function()) return board;
  const std::string of_slices = slices ? fmt::format("-{}", *slices) : "";
  return fmt::format("{}{}-{}{}{}", board, of_slices, size_gib, series, attribute);
}

std::string VgpuTypeName::driver_short_name() const {
  VgpuTypeName name = *this;
  if (attribute != "ME") name.attribute.clear();
  return name.text();
}

Result<const mdev::VgpuType*> find_type(const VgpuTypeName& name, std::span<const mdev::VgpuType> types) {
  auto found = find_by_short_name(name.text(), types);
  if (!found || *found != nullptr || name.driver_short_name() == name.text()) return found;
  return find_by_short_name(name.driver_short_name(), types);
}

bool is_mig_backed(const mdev::VgpuType& type) {
  const auto name = VgpuTypeName::of_driver(type.short_name);
  return !type.mig_profile.empty() || (name && name->is_mig_backed());
}

bool is_mig_backed(const mdev::VgpuDevice& device) {
  const auto name = VgpuTypeName::of_driver(device.short_name);
  return name && name->is_mig_backed();
}

namespace {

using nlohmann::json;
constexpr const char* kFile = "run/ferry/hostd/vgpu-type-names.json";
constexpr int kVersionOfFormat = 1;

/// Keyed by a GPU's address and IDs: another card in its slot is another GPU.
using Memory = std::map<std::string, TypeNames>;

std::string key_of(const mdev::VgpuGpu& gpu) {
  return gpu.address().text() + " " + gpu.function.ids();
}

// The file is only a help: malformed or of another boot, it counts as empty and is written anew.
Memory read_memory(const HostFs& host, const Result<std::string>& boot) {
  const auto text = host.read_file(kFile);
  if (!text || !boot) return {};
  try {
    const json file = json::parse(*text);
    if (file.at("version") != kVersionOfFormat || file.at("boot_id") != *boot) return {};
    return file.at("gpus").get<Memory>();
  } catch (const json::exception&) {
    return {};
  }
}

void give_name(mdev::VgpuDevice& device, const std::string& called) {
  device.type_name = called;
  device.short_name = mdev::last_word(called);
}

TypeNames listed_on(const mdev::VgpuGpu& gpu) {
  TypeNames out;
  if (!gpu.framework->lists_only_creatable_types()) return out;
  for (const mdev::VgpuParent& parent : gpu.parents) {
    for (const mdev::VgpuType& type : parent.types) out.emplace(type.id, type.name);
  }
  return out;
}

/// The numbers of the vGPUs' types that the driver has named neither now nor earlier.
std::set<std::string> unlisted(const HostFs& host, const mdev::VgpuGpu& gpu) {
  std::set<std::string> out;
  if (!gpu.framework->lists_only_creatable_types()) return out;
  for (const mdev::VgpuDevice& device : gpu.devices) out.insert(device.type_id);
  for (const auto& listed : listed_on(gpu)) out.erase(listed.first);
  if (out.empty()) return out;
  Memory memory = read_memory(host, boot_id(host));
  for (const auto& kept : memory[key_of(gpu)]) out.erase(kept.first);
  return out;
}

}  // namespace

void name_by_memory(const HostFs& host, std::span<mdev::VgpuGpu> gpus) {
  const bool need_names = std::ranges::any_of(gpus, [](const mdev::VgpuGpu& gpu) {
    return gpu.framework->lists_only_creatable_types() &&
           std::ranges::any_of(gpu.devices, &mdev::VgpuDevice::is_nameless);
  });
  if (!need_names) return;
  Memory memory = read_memory(host, boot_id(host));
  for (mdev::VgpuGpu& gpu : gpus) {
    const TypeNames& names = memory[key_of(gpu)];
    for (mdev::VgpuDevice& device : gpu.devices) {
      const auto found = names.find(device.type_id);
      if (device.is_nameless() && found != names.end()) give_name(device, found->second);
    }
  }
}

bool driver_lists_no_name(const HostFs& host, const mdev::VgpuGpu& gpu) {
  return !unlisted(host, gpu).empty();
}

TypeNames name_by_library(const HostFs& host, const mdev::ManagedGpu& said, mdev::VgpuGpu& gpu) {
  TypeNames out;
  const std::set<std::string> nameless = unlisted(host, gpu);
  for (mdev::VgpuDevice& device : gpu.devices) {
    const auto same = [&](const mdev::ManagedType& type) {
      return std::to_string(type.id) == device.type_id;
    };
    const auto type = std::ranges::find_if(said.types, same);
    if (!nameless.contains(device.type_id) || type == said.types.end() || type->name.empty()) continue;
    give_name(device, type->name);
    out.emplace(device.type_id, type->name);
  }
  return out;
}

Result<> remember_names(HostFs& host, std::span<const mdev::VgpuGpu> gpus,
                        const std::map<vfio::PciAddress, TypeNames>& named) {
  static std::mutex one_at_a_time;
  Memory news;
  for (const mdev::VgpuGpu& gpu : gpus) {
    TypeNames names = listed_on(gpu);
    if (const auto found = named.find(gpu.address()); found != named.end())
      names.insert(found->second.begin(), found->second.end());
    if (!names.empty()) news.emplace(key_of(gpu), std::move(names));
  }
  if (news.empty()) return {};
  const auto boot = boot_id(host);
  if (!boot) return fail(boot.error());
  const std::lock_guard lock(one_at_a_time);
  const Memory before = read_memory(host, boot);
  Memory now = before;
  for (const auto& [gpu, names] : news) {
    for (const auto& [number, called] : names) now[gpu][number] = called;
  }
  if (now == before) return {};
  const json file = {{"version", kVersionOfFormat}, {"boot_id", *boot}, {"gpus", now}};
  return host.write_file(kFile, file.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace ferry::vgpu
