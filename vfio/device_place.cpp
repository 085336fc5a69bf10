// SPDX-License-Identifier: Apache-2.0
#include "vfio/device_place.h"

#include <algorithm>
#include <iterator>

#include "vfio/pci_function.h"

namespace ferry {
namespace {

// A slot's address is that of a device, without the function: "0000:3b:00".
std::optional<std::string> slot_of(const HostFs& host, const PciAddress& address) {
  constexpr const char* kSlots = "sys/bus/pci/slots";
  const std::string text = address.text();
  const std::string device = text.substr(0, text.find_last_of('.'));
  const auto names = host.list(kSlots);
  if (!names) return std::nullopt;
  for (const std::string& name : *names) {
    if (host.read_attribute(std::filesystem::path(kSlots) / name / "address").value_or("") == device)
      return name;
  }
  return std::nullopt;
}

}  // namespace

DevicePlace read_place(const HostFs& host, const PciAddress& address) {
  DevicePlace place{.slot = slot_of(host, address), .above = {}};
  const std::filesystem::path target = host.link_target(sysfs_path(address)).value_or("");
  std::vector<std::string> parts;
  for (const auto& part : target.parent_path()) parts.push_back(part.string());
  const auto devices = std::ranges::find(parts, "devices");
  if (devices != parts.end()) place.above.assign(std::next(devices), parts.end());
  return place;
}

}  // namespace ferry
