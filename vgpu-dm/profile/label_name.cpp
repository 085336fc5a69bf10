// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/label_name.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::vgpu {
namespace {

// ASCII alone, whatever the locale.
bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

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

}  // namespace ferry::vgpu
