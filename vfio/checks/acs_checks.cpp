// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/driver-api/vfio.rst (groups); sysfs-bus-pci (config); bridge_config.h.
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "vfio/checks/passthrough_checks.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/pci/bridge_config.h"
#include "vfio/pci/device_facts.h"

namespace ferry::vfio::checks {
namespace {

struct Way {
  std::vector<std::string> open;     // reasons why isolation is missing, by bridge
  std::vector<std::string> trouble;  // bridges that could not be read
  std::vector<std::string> cures;    // each once
};

void add_cure(Way& way, const char* cure) {
  if (std::ranges::find(way.cures, cure) == way.cures.end()) way.cures.emplace_back(cure);
}

void look_at(const HostFs& host, const PciAddress& bridge, Way& way) {
  const auto path = sysfs_path(bridge) / "config";
  const auto config = host.read_file(path);
  if (!config) return way.trouble.push_back(config.error().message);
  const auto isolation = port_isolation(*config);
  if (!isolation)
    return way.trouble.push_back(fmt::format("/{}: {}", path.string(), isolation.error().message));
  switch (isolation->kind) {
    case PortIsolation::Kind::isolates:
      return;
    case PortIsolation::Kind::bits_off:
      way.open.push_back(fmt::format(
          "bridge {}: its ACS control register, at {:#x} of /{}, is {:#06x}, without {}", bridge.text(),
          isolation->control_at, path.string(), isolation->control, acs_bits_text(isolation->missing)));
      return add_cure(
          way,
          "switch ACS on in the firmware setup and reboot; the kernel switches these bits on when it boots "
          "with the IOMMU on, unless pci=disable_acs_redir= or pci=config_acs= on its command line keeps "
          "them off");
    case PortIsolation::Kind::no_acs:
      way.open.push_back(fmt::format(
          "bridge {}: {} in /{}", bridge.text(),
          isolation->extended ? "no ACS capability (0x000d)" : "no extended capabilities, and so no ACS,",
          path.string()));
      return add_cure(
          way, "another slot, below a port that has ACS; in some firmware setups a switch named ACS adds it");
    case PortIsolation::Kind::conventional:
      way.open.push_back(fmt::format("bridge {}: conventional PCI by /{}, where there is no ACS",
                                     bridge.text(), path.string()));
      return add_cure(way, "another slot: all that is below a bridge of conventional PCI is one group");
  }
}

}  // namespace

Check bridge_check(const HostFs& host, const Inventory& inventory, const PciFunction& function) {
  Check check{"acs-isolation", function.address.text(),
              "a bridge that lets the devices below it reach each other past the IOMMU makes them one group, "
              "and a VM gets all of it or nothing"};
  if (!function.iommu_group || !inventory.has_iommu()) {
    return std::move(check).unknown("without an IOMMU group there is none to judge",
                                    "see iommu-active and in-iommu-group");
  }
  const std::string group = fmt::format("/sys/kernel/iommu_groups/{}", *function.iommu_group);
  std::vector<std::string> others;  // members of the group that are not part of the card, without bridges
  for (const PciAddress& address : inventory.group_of(function)) {
    const PciFunction* member = inventory.find(address);
    if (member == nullptr || member->is_bridge() || address == function.address) continue;
    if (!is_companion(function, *member)) others.push_back(address.text());
  }
  if (others.empty()) return std::move(check).passed(group + " has nothing that is not part of the card");
  constexpr std::size_t kMostNamed = 3;
  const auto named = std::span(others).first(std::min(others.size(), kMostNamed));
  std::string shared = fmt::format("{} has {}", group, fmt::join(named, ", "));
  if (others.size() > kMostNamed) shared += fmt::format(" and {} more", others.size() - kMostNamed);
  shared += " too";

  // The bridges follow the last host bridge, since behind VMD there is a second one.
  std::vector<PciAddress> bridges;
  for (const std::string& name : read_place(host, function.address).above) {
    if (const auto bridge = PciAddress::parse(name))
      bridges.push_back(*bridge);
    else
      bridges.clear();
  }
  Way way;
  for (const PciAddress& bridge : bridges) look_at(host, bridge, way);
  if (!way.open.empty()) {
    return std::move(check).warned(fmt::format("{}; {}", shared, fmt::join(way.open, "; ")),
                                   fmt::format("{}", fmt::join(way.cures, "; ")));
  }
  if (!way.trouble.empty())
    return std::move(check).unknown(fmt::format("{}; {}", shared, way.trouble.front()), "run as root");
  return std::move(check).unknown(
      bridges.empty() ? shared + "; there is no bridge above it that could keep them apart"
                      : shared + "; by their ACS registers the bridges above it keep devices apart",
      "another slot; the firmware of the board decides what shares a group there");
}

}  // namespace ferry::vfio::checks
