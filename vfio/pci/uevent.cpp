// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/uevent.h"

#include <algorithm>
#include <array>

namespace ferry::vfio {
namespace {

constexpr std::array<std::string_view, 4> kSubsystems = {"pci", "mdev", "vfio", "vfio-dev"};

}  // namespace

bool concerns_us(std::string_view uevent) {
  std::string_view subsystem;
  while (!uevent.empty()) {
    const auto field = uevent.substr(0, uevent.find('\0'));
    uevent.remove_prefix(std::min(field.size() + 1, uevent.size()));
    constexpr std::string_view kKey = "SUBSYSTEM=";
    if (field.starts_with(kKey)) subsystem = field.substr(kKey.size());
  }
  return std::ranges::find(kSubsystems, subsystem) != kSubsystems.end();
}

}  // namespace ferry::vfio
