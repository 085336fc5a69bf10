// SPDX-License-Identifier: Apache-2.0
#include "vfio/uevent.h"

#include <algorithm>
#include <array>

namespace ferry {
namespace {

constexpr std::array<std::string_view, 4> kSubsystems = {"pci", "mdev", "vfio", "vfio-dev"};

}  // namespace

Uevent parse_uevent(std::string_view message) {
  std::string_view action;
  std::string_view subsystem;
  std::string_view slot;
  bool made_up = false;  // somebody wrote to the device's "uevent" file: nothing has happened
  while (!message.empty()) {
    const auto field = message.substr(0, message.find('\0'));
    message.remove_prefix(std::min(field.size() + 1, message.size()));
    const auto sign = field.find('=');
    if (sign == std::string_view::npos) continue;
    const auto key = field.substr(0, sign);
    const auto value = field.substr(sign + 1);
    if (key == "ACTION") action = value;
    if (key == "SUBSYSTEM") subsystem = value;
    if (key == "PCI_SLOT_NAME") slot = value;
    if (key == "SYNTH_UUID") made_up = true;
  }
  Uevent event{.concerns_us = std::ranges::find(kSubsystems, subsystem) != kSubsystems.end(), .bound = {}};
  if (action == "bind" && subsystem == "pci" && !made_up)
    if (const auto address = PciAddress::parse(slot)) event.bound = *address;
  return event;
}

}  // namespace ferry
