// SPDX-License-Identifier: Apache-2.0
#include "dra/names.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "common/text/visible_text.h"

namespace ferry::dra {
namespace {

constexpr std::size_t kLongestTypeLabel = 30;  // so that the longest name has kLongestName bytes

bool is_label_character(char c) {
  return is_lower(c) || is_digit(c) || c == '-';
}

/// The text, less the characters at its end that no name may end in.
std::string_view without_end(std::string_view text) {
  while (!text.empty() && !is_alphanumeric(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view bare_type(std::string_view type_id) {
  constexpr std::string_view kPrefix = "nvidia-";
  return type_id.starts_with(kPrefix) ? type_id.substr(kPrefix.size()) : type_id;
}

/// The suffixes at the beginning of kSuffixes, after the empty one.
constexpr std::size_t kBinaryPowers = 6;
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 13> kSuffixes = {{
    {"", 1},
    {"Ki", 1ULL << 10U},
    {"Mi", 1ULL << 20U},
    {"Gi", 1ULL << 30U},
    {"Ti", 1ULL << 40U},
    {"Pi", 1ULL << 50U},
    {"Ei", 1ULL << 60U},
    {"k", 1'000ULL},
    {"M", 1'000'000ULL},
    {"G", 1'000'000'000ULL},
    {"T", 1'000'000'000'000ULL},
    {"P", 1'000'000'000'000'000ULL},
    {"E", 1'000'000'000'000'000'000ULL},
}};

}  // namespace

std::string pool_name(std::string_view node) {
  const std::string_view label = kDriver.substr(0, kDriver.find('.'));
  if (node.size() + 1 + label.size() <= kLongestPool) return fmt::format("{}/{}", node, label);
  const std::string_view cut = without_end(node.substr(0, kLongestPool - label.size() - 10));
  return fmt::format("{}-{:08x}/{}", cut, stable_hash_32(node), label);
}

std::string slice_name_prefix(std::size_t index, std::string_view node) {
  const std::string start = fmt::format("{:05x}-{}-", index, kDriver);
  return fmt::format("{}{}-", start, without_end(node.substr(0, kLongestGenerateName - start.size() - 1)));
}

std::string address_label(const vfio::PciAddress& address) {
  return fmt::format("{:04x}-{:02x}-{:02x}-{:x}", address.domain, address.bus, address.device,
                     address.function);
}

std::string counter_set_name(std::uint32_t iommu_group) {
  return fmt::format("group-{}", iommu_group);
}

std::string whole_device_name(const vfio::PciAddress& gpu) {
  return "whole-" + address_label(gpu);
}

std::string vgpu_device_name(const vfio::PciAddress& gpu, std::string_view type_id, std::uint32_t number) {
  const std::string_view bare = bare_type(type_id);
  std::string label(bare);
  if (bare.empty() || bare.size() > kLongestTypeLabel || !std::ranges::all_of(bare, is_label_character)) {
    label = lower(bare.substr(0, kLongestTypeLabel - 9));
    std::ranges::replace_if(
        label, [](char c) { return !is_label_character(c); }, '-');
    label += fmt::format("-{:08x}", stable_hash_32(bare));
  }
  return fmt::format("vgpu-{}-{}-{}", address_label(gpu), label, number);
}

std::optional<std::uint32_t> type_number(std::string_view type_id) {
  return whole_number(bare_type(type_id));
}

std::string attribute_text(std::string_view text) {
  return std::string(beginning_of(visible_line(text), kLongestText));
}

std::string taint_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool good = is_alphanumeric(c) || ((c == '.' || c == '_') && !out.empty());
    if (good)
      out += c;
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  return std::string(without_end(std::string_view(out).substr(0, kLongestName)));
}

std::string quantity_text(std::uint64_t value) {
  std::size_t power = 0;
  for (; value != 0 && value % 1024 == 0 && power < kBinaryPowers; ++power) value /= 1024;
  return fmt::format("{}{}", value, kSuffixes.at(power).first);
}

std::optional<std::uint64_t> parse_quantity(std::string_view text) {
  const auto* const first_letter = std::ranges::find_if_not(text, is_digit);
  const auto digits = static_cast<std::size_t>(first_letter - text.begin());
  const auto value = whole_number<std::uint64_t>(text.substr(0, digits));
  const auto* const suffix =
      std::ranges::find(kSuffixes, text.substr(digits), &std::pair<std::string_view, std::uint64_t>::first);
  if (!value || suffix == kSuffixes.end()) return std::nullopt;
  if (*value > std::numeric_limits<std::uint64_t>::max() / suffix->second) return std::nullopt;
  return *value * suffix->second;
}

bool fits_pci_bus_id(const vfio::PciAddress& address) {
  return address.domain <= 0xFFFFU;
}

}  // namespace ferry::dra
