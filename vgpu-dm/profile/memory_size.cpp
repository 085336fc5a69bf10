// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/profile/memory_size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/text/suggest.h"

namespace ferry::vgpu {
namespace {

constexpr std::uint64_t kMebibyte = 1ULL << 20U;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array kUnits = {
    Unit{"MiB", 1ULL << 20U}, Unit{"GiB", 1ULL << 30U},  Unit{"TiB", 1ULL << 40U},
    Unit{"Mi", 1ULL << 20U},  Unit{"Gi", 1ULL << 30U},   Unit{"Ti", 1ULL << 40U},
    Unit{"MB", 1'000'000},    Unit{"GB", 1'000'000'000}, Unit{"TB", 1'000'000'000'000},
    Unit{"M", 1'000'000},     Unit{"G", 1'000'000'000},  Unit{"T", 1'000'000'000'000},
};

std::string meant(std::string_view unit) {
  if (unit.size() == 1) return {};  // every other letter would be close
  std::vector<std::string> names;
  names.reserve(kUnits.size());
  for (const Unit& known : kUnits) names.emplace_back(known.name);
  return did_you_mean(unit, names);
}

}  // namespace

Result<std::uint32_t> parse_memory_mib(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return fail(
        Errc::usage, fmt::format("'{}' is not an amount of memory: {}", text, why),
        "write a whole number and its unit: 6GiB or 6Gi, 4096MiB, 6G (which is 10^9 bytes, 5723 MiB)");
  };
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit_name = text.substr(digits);
  if (digits == 0) return refuse("it begins with no digit");
  if (unit_name.empty()) return refuse("it has no unit");
  const auto* const unit =
      std::ranges::find_if(kUnits, [&](const Unit& known) { return known.name == unit_name; });
  if (unit == kUnits.end()) return refuse(fmt::format("'{}' is no unit{}", unit_name, meant(unit_name)));

  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + digits, number);
  const std::uint64_t most = std::uint64_t{std::numeric_limits<std::uint32_t>::max()} * kMebibyte;
  if (parsed.ec != std::errc() || number > most / unit->bytes) return refuse("no GPU has that much");
  if (number == 0) return refuse("it is none");
  return static_cast<std::uint32_t>((number * unit->bytes + kMebibyte - 1) / kMebibyte);
}

}  // namespace ferry::vgpu
