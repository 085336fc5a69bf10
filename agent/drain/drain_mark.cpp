// SPDX-License-Identifier: Apache-2.0
#include "agent/drain/drain_mark.h"

#include <ctime>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"

namespace ferry::agent {
namespace {

using nlohmann::json;
using Time = DrainMark::Time;

std::string text_of(Time time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

std::optional<Time> time_of(const std::string& text) {
  // system_clock counts nanoseconds since 1970 in 63 bits, up to the year 2262.
  constexpr Time kEnd = std::chrono::sys_days(std::chrono::year(2262) / 1 / 1);
  std::tm parts{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return std::nullopt;
  const Time time{std::chrono::seconds(::timegm(&parts))};
  // strptime(3) also takes other forms of a time, and text behind it.
  if (time < Time() || time >= kEnd || text_of(time) != text) return std::nullopt;
  return time;
}

}  // namespace

std::string drain_mark_text(const DrainMark& mark) {
  json out = {{"generation", mark.generation}};
  if (mark.since)
    out["since"] = text_of(*mark.since);
  else
    out["failed"] = mark.failed;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::chrono::seconds drain_time(const DrainMark& mark, std::chrono::system_clock::time_point now) {
  if (!mark.since) return std::chrono::seconds(0);
  return std::chrono::abs(std::chrono::duration_cast<std::chrono::seconds>(now - *mark.since));
}

std::optional<DrainMark> read_drain_mark(std::string_view text) {
  const json mark = parse_answer_json(text);
  if (!mark.is_object() || mark.size() != 2) return std::nullopt;
  const json& generation = json_at(mark, "generation");
  if (!generation.is_number_unsigned()) return std::nullopt;
  DrainMark out{.generation = generation.get<std::uint64_t>(), .since = time_of(text_at(mark, "since"))};
  if (out.since) return out;
  if (!json_at(mark, "failed").is_string()) return std::nullopt;
  out.failed = text_at(mark, "failed");
  return out;
}

}  // namespace ferry::agent
