// SPDX-License-Identifier: Apache-2.0
#include "vfio/judgement/fatal_errors.h"

#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/pci_function.h"

namespace ferry::vfio {
namespace {

// The file has a line for each kind of error, then "TOTAL_ERR_FATAL 0".
std::optional<std::uint64_t> total_of(std::string_view text) {
  constexpr std::string_view kTotal = "TOTAL_ERR_FATAL ";
  const auto at = text.find(kTotal);
  if (at == std::string_view::npos) return std::nullopt;
  const auto digits = text.substr(at + kTotal.size());
  std::uint64_t total = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), total).ec != std::errc())
    return std::nullopt;
  return total;
}

}  // namespace

bool had_fatal_errors(const HostFs& host, const PciAddress& function) {
  const auto text = host.read_attribute(sysfs_path(function) / "aer_dev_fatal");
  return text && total_of(*text).value_or(0) > 0;
}

std::string FatalErrors::problem(const HostFs& host, const PciAddress& function) {
  const auto path = sysfs_path(function) / "aer_dev_fatal";
  const auto text = host.read_attribute(path);
  const auto total = text ? total_of(*text) : std::nullopt;
  if (!total) return {};
  const LastRead now{.count = *total, .binding = binding_of(host, function), .had_some = false};
  auto& first = last_read_.try_emplace(function, now).first->second;
  if (first.binding == 0) first.binding = now.binding;
  const bool bound_anew = first.binding != now.binding && now.binding != 0;
  if (bound_anew || *total < first.count) first = now;
  first.had_some = *total != first.count;
  if (!first.had_some) return {};
  return fmt::format("{} since it was advertised (/{})", counted(*total - first.count, "fatal PCIe error"),
                     path.string());
}

std::vector<FatalErrorsOf> FatalErrors::found() const {
  std::vector<FatalErrorsOf> out;
  for (const auto& [address, seen] : last_read_)
    if (seen.had_some)
      out.push_back({.function = address.text(), .since = seen.count, .binding = seen.binding});
  return out;
}

void FatalErrors::remember(const FatalErrorsOf& before) {
  if (const auto address = PciAddress::parse(before.function))
    last_read_.insert_or_assign(*address,
                                LastRead{.count = before.since, .binding = before.binding, .had_some = true});
}

}  // namespace ferry::vfio
