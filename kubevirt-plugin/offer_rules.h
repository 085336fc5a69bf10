// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "vfio/inventory.h"

namespace ferry {

/// What is offered to the kubelet, and under which names. A value: another vendor's accelerators are other
/// rules, not other code.
struct OfferRules {
  /// The functions that users ask for. Their IOMMU groups go with them.
  AcceleratorRules accelerators = {.vendors = {0x10de}, .classes = {PciClass::vga, PciClass::display_3d}};
  /// The part of every resource name before the "/".
  std::string domain = "nvidia.com";
  /// Also offer the same vendors' other functions (a GPU's audio, USB) as resources of their own. They move
  /// with their GPU either way, and share its IOMMU group.
  bool companions = false;
};

}  // namespace ferry
