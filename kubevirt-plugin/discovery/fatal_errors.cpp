// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/fatal_errors.h"

#include <charconv>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vfio/pci/pci_function.h"

namespace ferry::plugin {
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

std::uint64_t binding_of(const HostFs& host, const vfio::PciAddress& function) {
  const auto link = host.open(vfio::sysfs_path(function) / "driver", O_PATH | O_NOFOLLOW);
  struct stat status {};
  return link && ::fstat(link->get(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::string FatalErrors::problem(const HostFs& host, const vfio::PciAddress& function) {
  const auto path = vfio::sysfs_path(function) / "aer_dev_fatal";
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

std::vector<api::FatalErrorsOf> FatalErrors::found() const {
  std::vector<api::FatalErrorsOf> out;
  for (const auto& [address, seen] : last_read_)
    if (seen.had_some)
      out.push_back({.function = address.text(), .since = seen.count, .binding = seen.binding});
  return out;
}

void FatalErrors::remember(const api::FatalErrorsOf& before) {
  if (const auto address = vfio::PciAddress::parse(before.function))
    last_read_.insert_or_assign(*address,
                                LastRead{.count = before.since, .binding = before.binding, .had_some = true});
}

}  // namespace ferry::plugin
