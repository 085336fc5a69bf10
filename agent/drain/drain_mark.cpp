// SPDX-License-Identifier: Apache-2.0
#include "agent/drain/drain_mark.h"

#include <array>
#include <cstddef>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "common/text/text.h"

namespace ferry::agent {
namespace {

using nlohmann::json;
using Time = DrainMark::Time;

constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
// system_clock counts nanoseconds since 1970 in 63 bits.
constexpr int kFirstYear = 1970;
constexpr int kLastYear = 2261;

std::string text_of(Time time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

std::optional<Time> time_of(std::string_view text) {
  namespace chrono = std::chrono;
  if (text.size() != kForm.size()) return std::nullopt;
  std::array<int, 6> numbers{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    if (!is_digit(kForm[i])) {
      if (text[i] != kForm[i]) return std::nullopt;
      ++next;
    } else if (!is_digit(text[i])) {
      return std::nullopt;
    } else {
      numbers.at(next) = numbers.at(next) * 10 + (text[i] - '0');
    }
  }
  const auto [year, month, day, hour, minute, second] = numbers;
  const chrono::year_month_day date{chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || year < kFirstYear || year > kLastYear || hour > 23 || minute > 59 || second > 59)
    return std::nullopt;
  return chrono::sys_days(date) + chrono::hours(hour) + chrono::minutes(minute) + chrono::seconds(second);
}

}  // namespace

std::string drain_mark_text(const DrainMark& mark) {
  json out = {{"generation", mark.generation}};
  if (mark.since) {
    out["since"] = text_of(*mark.since);
  } else {
    out["failed"] = mark.failed;
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<DrainMark> read_drain_mark(std::string_view text) {
  const json mark = json::parse(text, nullptr, false);
  if (!mark.is_object() || mark.size() != 2) return std::nullopt;
  const auto generation = mark.find("generation");
  if (generation == mark.end() || !generation->is_number_unsigned()) return std::nullopt;
  DrainMark out{.generation = generation->get<std::uint64_t>(), .since = {}};
  if (const auto since = mark.find("since"); since != mark.end()) {
    if (!since->is_string()) return std::nullopt;
    out.since = time_of(since->get_ref<const std::string&>());
    return out.since ? std::optional(out) : std::nullopt;
  }
  const auto failed = mark.find("failed");
  if (failed == mark.end() || !failed->is_string()) return std::nullopt;
  out.failed = failed->get<std::string>();
  return out;
}

}  // namespace ferry::agent
