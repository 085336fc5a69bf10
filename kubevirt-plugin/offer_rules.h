// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {

/// Which PCI functions become resources. A value, so that other vendors' accelerators are a row and not code.
struct OfferRules {
  /// The PCI vendor whose functions are offered.
  std::uint16_t vendor = 0x10de;
  /// PCI class and subclass (the upper 16 bits of sysfs's 24-bit `class`): VGA and 3D controllers.
  std::vector<std::uint16_t> classes = {0x0300, 0x0302};
  /// The part of every resource name before the "/".
  std::string domain = "nvidia.com";
  /// Also offer the other functions of that vendor (a GPU's audio, USB) as resources of their own. They move
  /// with their GPU either way, and share its IOMMU group.
  bool companions = false;
};

}  // namespace ferry
