// SPDX-License-Identifier: Apache-2.0
// Which device nodes lead to a function: those below its directory in sysfs, and its group's.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "vfio/move_plan.h"

namespace ferry {
namespace {

// Content of a sysfs `dev` file: "226:0".
std::optional<DeviceNumber> parse_number(std::string_view text) {
  DeviceNumber number;
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view major = text.substr(0, colon);
  const std::string_view minor = text.substr(colon + 1);
  if (std::from_chars(major.data(), major.data() + major.size(), number.major).ec != std::errc() ||
      std::from_chars(minor.data(), minor.data() + minor.size(), number.minor).ec != std::errc()) {
    return std::nullopt;
  }
  return number;
}

void add_node(const HostFs& host, const std::filesystem::path& directory, const std::string& name,
              std::vector<DeviceNode>& nodes) {
  const auto text = host.read_attribute(directory / "dev");
  if (!text) return;
  const auto number = parse_number(*text);
  if (!number) return;
  // .../host6/target6:0:0/6:0:0:0/block/sdb, and sdb1 below it.
  const bool block = std::ranges::find(directory, "block") != directory.end();
  nodes.push_back({.name = name, .number = *number, .block = block});
}

// Walks down from a function's own directory: .../drm/card0/dev, .../sound/card1/pcmC1D3p/dev,
// .../usb3/3-1/... Links lead out of it (driver, subsystem, physfn) and other PCI functions are not part of
// it.
void collect_nodes(const HostFs& host, const std::filesystem::path& directory, int depth,
                   std::vector<DeviceNode>& nodes) {
  const auto entries = host.entries(directory);
  if (!entries) return;
  for (const auto& [name, is_directory] : *entries) {
    if (name == "dev") {
      const auto uevent = host.read_attribute(directory / "uevent").value_or("");
      constexpr std::string_view kName = "DEVNAME=";
      const auto at = uevent.find(kName);
      const std::string node =
          at == std::string::npos
              ? directory.filename().string()
              : uevent.substr(at + kName.size(), uevent.find('\n', at) - at - kName.size());
      add_node(host, directory, "/dev/" + node, nodes);
      continue;
    }
    if (depth == 0 || !is_directory || PciAddress::parse(name)) continue;
    collect_nodes(host, directory / name, depth - 1, nodes);
  }
}

}  // namespace

std::vector<UseQuestion> use_questions(const HostFs& host, const Inventory& inventory,
                                       const std::vector<PciAddress>& addresses) {
  constexpr int kDeepest =
      8;  // a disk behind a GPU's USB controller: usb3/3-1/3-1:1.0/host6/target/lun/block/sdb
  std::vector<UseQuestion> questions;
  for (const PciAddress& address : addresses) {
    const PciFunction* function = inventory.find(address);
    if (function == nullptr) continue;
    UseQuestion question{.device = address.text(), .nodes = {}};
    collect_nodes(host, sysfs_path(address), kDeepest, question.nodes);
    if (function->iommu_group && on_vfio_driver(*function)) {
      const std::string group = std::to_string(*function->iommu_group);
      add_node(host, std::filesystem::path("sys/class/vfio") / group, "/dev/vfio/" + group, question.nodes);
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

}  // namespace ferry
