// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "vfio/pci_address.h"

namespace ferry {

/// What one of the kernel's device events says to us.
struct Uevent {
  bool concerns_us = false;         ///< of PCI, mediated and VFIO devices
  std::optional<PciAddress> bound;  ///< the function that a driver has just taken
};

/// Reads "add@/devices/..." and the KEY=VALUE fields after it, each ended by a zero byte. What cannot be read
/// does not concern us. ABI: lib/kobject_uevent.c; bind is told since Linux 4.14 (drivers/base/dd.c), with
/// the address as PCI_SLOT_NAME (drivers/pci/pci-driver.c); what user space has made up carries SYNTH_UUID.
Uevent parse_uevent(std::string_view message);

}  // namespace ferry
