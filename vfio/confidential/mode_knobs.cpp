// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/mode_knobs.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace ferry::vfio {
namespace {

// NVIDIA's tool gives these no name, and turns them off before a mode.
constexpr std::uint32_t kUnnamed2 = 2;
constexpr std::uint32_t kUnnamed4 = 4;
constexpr std::uint32_t kUnnamed34 = 34;

constexpr std::uint32_t kFilterOn = 2;

// A request to read or to write: the action, the flag for a knob's value, and the knob.
constexpr std::uint32_t kReadKnob = 0x20c;
constexpr std::uint32_t kWriteKnob = 0x20d;
constexpr std::uint32_t action(std::uint32_t code, std::uint32_t knob) {
  return code | knob << 16U;
}

}  // namespace

std::vector<KnobValue> in_order(std::vector<KnobValue> values) {
  // NVIDIA's tool has the unnamed ones off while a mode is on.
  constexpr std::array kOff = {kUnnamed2,       kUnnamed4,           kUnnamed34,          knob::kBarFilter,
                               knob::kDevtools, knob::kConfidential, knob::kProtectedPcie};
  constexpr std::array kOn = {knob::kBarFilter, knob::kConfidential, knob::kDevtools, knob::kProtectedPcie,
                              kUnnamed2,        kUnnamed4,           kUnnamed34};
  const auto rank = [&](const KnobValue& one) {
    const auto& order = one.value == 0 ? kOff : kOn;
    return std::ranges::find(order, one.knob) - order.begin() + (one.value == 0 ? 0 : std::ssize(kOff));
  };
  std::ranges::stable_sort(values, {}, rank);
  return values;
}

std::vector<KnobValue> knobs_of(ChipFamily family, WantedMode mode) {
  const bool hopper = family == ChipFamily::hopper;
  const bool nvswitch = family == ChipFamily::ls10;
  if (family == ChipFamily::lr10 || (nvswitch && (mode == WantedMode::on || mode == WantedMode::devtools)) ||
      (mode == WantedMode::ppcie && !hopper && !nvswitch))
    return {};

  std::vector<KnobValue> out;
  if (mode != WantedMode::off) {
    out = {{.knob = kUnnamed2, .value = 0}, {.knob = kUnnamed4, .value = 0}};
    if (hopper || nvswitch) out.push_back({.knob = kUnnamed34, .value = 0});
  }
  const bool confidential = mode == WantedMode::on || mode == WantedMode::devtools;
  out.push_back({.knob = knob::kDevtools, .value = mode == WantedMode::devtools ? 1U : 0U});
  out.push_back({.knob = knob::kConfidential, .value = confidential ? 1U : 0U});
  if (hopper || nvswitch) {
    const bool filters = hopper && (mode == WantedMode::on || mode == WantedMode::ppcie);
    out.push_back({.knob = knob::kBarFilter, .value = filters ? kFilterOn : 0});
    out.push_back({.knob = knob::kProtectedPcie, .value = mode == WantedMode::ppcie ? 1U : 0U});
  }
  return in_order(std::move(out));
}

Result<std::optional<std::uint32_t>> read_knob(Fsp& fsp, std::uint32_t knob) {
  const auto data = fsp.call(std::array{action(kReadKnob, knob)});
  if (!data && data.error().code == Errc::unsupported) return std::nullopt;
  if (!data) return fail(Error(data.error()).during(fmt::format("read knob {}", knob)));
  if (data->empty()) return fail(Errc::failed, fmt::format("read knob {}: the answer has no value", knob));
  return data->front() & 0xffffU;  // the rest may have any value
}

Result<> write_knob(Fsp& fsp, const KnobValue& value) {
  const std::string what = fmt::format("write {} to knob {}", value.value, value.knob);
  const auto written = fsp.call(std::array{action(kWriteKnob, value.knob), value.value});
  if (!written) {
    Error error = Error(written.error()).during(what);
    if (error.code == Errc::failed) {
      // The knob before each one lets the host set it.
      const auto allowed = read_knob(fsp, value.knob - 1);
      if (allowed && *allowed == 0U) error.message += ": the firmware does not let the host set it";
    }
    return fail(std::move(error));
  }
  const auto now = read_knob(fsp, value.knob);
  if (!now) return fail(Error(now.error()).during(what));
  const std::optional<std::uint32_t> found = *now;
  if (found == value.value) return {};
  return fail(Errc::failed, found ? fmt::format("{}: it still reads {}", what, *found)
                                  : fmt::format("{}: the firmware no longer knows it", what));
}

}  // namespace ferry::vfio
