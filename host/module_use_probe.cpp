// SPDX-License-Identifier: Apache-2.0
#include "host/module_use_probe.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry {
namespace {

constexpr std::string_view kDriver = "nvidia";
// Use by these modules is seen through the nodes that processes have open, or as a console.
constexpr std::array<std::string_view, 3> kSeen = {"nvidia_drm", "nvidia_modeset", "nvidia_uvm"};

bool is_on_driver(const HostFs& host, const UseQuestion& question) {
  const auto driver =
      host.link_name(std::filesystem::path("sys/bus/pci/devices") / question.device / "driver");
  return driver && *driver == kDriver;
}

}  // namespace

Result<UseReport> ModuleUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport report;
  if (std::ranges::none_of(questions, [&](const UseQuestion& q) { return is_on_driver(*host_, q); }))
    return report;
  const auto holders = host_->list(std::filesystem::path("sys/module") / kDriver / "holders");
  if (!holders) {
    // A driver that is built into the kernel has no `holders`.
    if (!is_gone(holders.error()))
      report.unknown.push_back("modules that use nvidia: " + holders.error().message);
    return report;
  }
  std::vector<std::string> unseen = *holders;
  std::erase_if(unseen,
                [](const std::string& name) { return std::ranges::find(kSeen, name) != kSeen.end(); });
  if (!unseen.empty())
    report.unknown.push_back(fmt::format("which GPU these modules use: {}", fmt::join(unseen, ", ")));
  return report;
}

}  // namespace ferry
