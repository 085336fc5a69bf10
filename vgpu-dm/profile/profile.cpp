// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/profile.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry::vgpu {

bool ProfileItem::matches(const mdev::VgpuGpu& gpu) const {
  return selects(gpu) && (!gpu.by_name || only || !filters.empty());
}

bool ProfileItem::selects(const mdev::VgpuGpu& gpu) const {
  const auto matches_it = [&](const DeviceFilter& filter) { return filter.matches(gpu.function); };
  const bool is_chosen =
      only ? gpu.address() == *only : all_devices || std::ranges::count(indices, std::int64_t{gpu.index}) > 0;
  return is_chosen && (filters.empty() || std::ranges::any_of(filters, matches_it));
}

const ProfileItem* Profile::item_for(const mdev::VgpuGpu& gpu) const {
  const auto last =
      std::find_if(items.rbegin(), items.rend(), [&](const ProfileItem& item) { return item.matches(gpu); });
  return last == items.rend() ? nullptr : &*last;
}

vfio::AcceleratorRules rules_for(const Profile& profile, vfio::AcceleratorRules rules) {
  for (const ProfileItem& item : profile.items)
    for (const DeviceFilter& filter : item.filters) rules.named_vendors.insert(filter.vendor);
  return rules;
}

std::vector<std::string> ProfileFile::names() const {
  std::vector<std::string> out;
  out.reserve(profiles.size());
  for (const Profile& profile : profiles) out.push_back(profile.name);
  return out;
}

bool can_be_label(std::string_view name) {
  constexpr std::size_t kLongest = 63;
  return !name.empty() && name.size() <= kLongest && is_alphanumeric(name.front()) &&
         is_alphanumeric(name.back()) && std::ranges::all_of(name, [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
         });
}

std::string label_warning(std::string_view place, std::string_view name) {
  return fmt::format("{}: '{}' can be chosen by no node's label: {}", place, name, kLabelNames);
}

namespace {

// Parses a number as Go's strconv does with base 0, by which the format is defined.
std::optional<std::uint32_t> parse_number(std::string_view text) {
  int base = 10;
  bool prefixed = false;
  const auto prefix = [&](char lower, char upper) {
    return text.size() > 2 && text[0] == '0' && (text[1] == lower || text[1] == upper);
  };
  if (prefix('x', 'X')) base = 16;
  if (prefix('o', 'O')) base = 8;
  if (prefix('b', 'B')) base = 2;
  if (base != 10) {
    text.remove_prefix(2);
    prefixed = true;
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
    text.remove_prefix(1);
    prefixed = true;
  }
  // `_` stands between digits, or between the prefix and the first one.
  std::string digits;
  bool after_digit = prefixed;
  for (const char c : text) {
    if (c == '_') {
      if (!after_digit) return std::nullopt;
      after_digit = false;
    } else {
      digits += c;
      after_digit = true;
    }
  }
  if (digits.empty() || !after_digit) return std::nullopt;
  return whole_number(digits, base);
}

constexpr std::uint16_t high(std::uint32_t number) {
  return static_cast<std::uint16_t>(number >> 16U);
}
constexpr std::uint16_t low(std::uint32_t number) {
  return static_cast<std::uint16_t>(number & 0xffffU);
}

}  // namespace

Result<DeviceFilter> DeviceFilter::parse(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view first = text.substr(0, colon);
  const auto ids = parse_number(first);
  DeviceFilter filter;
  std::optional<std::uint32_t> board;
  if (colon != std::string_view::npos) board = parse_number(text.substr(colon + 1));
  if (!ids || (colon != std::string_view::npos && !board)) {
    const bool is_bare_hex =
        first.size() == 8 && first.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    return fail(Errc::invalid_config, fmt::format("'{}' is not a device filter", text),
                is_bare_hex ? fmt::format("put 0x in front: 0x{}", first)
                            : "write 0xDDDDVVVV or 0xDDDDVVVV:0xSSSSWWWW: device and vendor ID, then the "
                              "board's subsystem IDs");
  }
  filter.device = high(*ids);
  filter.vendor = low(*ids);
  if (board) {
    filter.subsystem_device = high(*board);
    filter.subsystem_vendor = low(*board);
  }
  return filter;
}

bool DeviceFilter::matches(const vfio::PciFunction& function) const {
  if (function.vendor != vendor || function.device != device) return false;
  return !subsystem_device || (function.subsystem_device.value_or(0) == *subsystem_device &&
                               function.subsystem_vendor.value_or(0) == subsystem_vendor);
}

std::string DeviceFilter::text() const {
  std::string out = fmt::format("0x{:04X}{:04X}", device, vendor);
  if (subsystem_device)
    out += fmt::format(":0x{:04X}{:04X}", *subsystem_device, subsystem_vendor.value_or(0));
  return out;
}

}  // namespace ferry::vgpu
