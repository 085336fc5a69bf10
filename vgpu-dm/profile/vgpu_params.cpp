// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/vgpu_params.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry::vgpu {
namespace {

constexpr std::size_t kLongest = 4095;  // a page, with its terminating zero
constexpr std::string_view kBetween = ", \t\r\n";

tl::unexpected<Error> refuse(std::string_view part, const char* what) {
  return fail(Errc::invalid_config, fmt::format("'{}' {}", part, what),
              "parameters are key=value with commas between, as in frame_rate_limiter=0,disable_vnc=1");
}

}  // namespace

Result<VgpuParams> VgpuParams::parse(std::string_view text) {
  if (text.size() > kLongest) {
    return fail(Errc::invalid_config, fmt::format("longer than {} bytes, which no driver takes", kLongest));
  }
  VgpuParams out;
  for (std::size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const auto end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end;
    const auto equals = part.find('=');
    if (equals == std::string_view::npos) return refuse(part, "is no key=value");
    const auto key = part.substr(0, equals);
    const auto value = part.substr(equals + 1);
    const bool is_key = !key.empty() && std::ranges::all_of(key, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    });
    const bool is_value = !value.empty() && std::ranges::all_of(value, [](unsigned char c) {
      return std::isgraph(c) != 0 && c != '=';
    });
    if (!is_key || !is_value) return refuse(part, "is no key=value");
    if (std::ranges::any_of(out.entries, [&](const auto& entry) { return entry.first == key; })) {
      return refuse(key, "stands twice");
    }
    out.entries.emplace_back(key, value);
  }
  return out;
}

std::string VgpuParams::text() const {
  std::vector<std::string> parts;
  parts.reserve(entries.size());
  for (const auto& [key, value] : entries) parts.push_back(fmt::format("{}={}", key, value));
  return fmt::format("{}", fmt::join(parts, ","));
}

bool VgpuParams::operator==(const VgpuParams& other) const {
  return entries.size() == other.entries.size() && std::ranges::is_permutation(entries, other.entries);
}

}  // namespace ferry::vgpu
