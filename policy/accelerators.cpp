// SPDX-License-Identifier: Apache-2.0
#include "policy/accelerators.h"

#include <array>

namespace ferry {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::array kVendors = {NamedVendor{.name = "nvidia", .id = kNvidia}};
constexpr std::array kClasses = {NamedClass{.name = "vga", .pci_class = PciClass::vga},
                                 NamedClass{.name = "3d", .pci_class = PciClass::display_3d},
                                 NamedClass{.name = "nvswitch", .pci_class = PciClass::bridge_other}};

}  // namespace

AcceleratorRules default_accelerator_rules() {
  return {.vendors = {kNvidia},
          .classes = {PciClass::vga, PciClass::display_3d},
          .on_request = {PciClass::bridge_other}};
}

std::span<const NamedVendor> named_vendors() {
  return kVendors;
}

std::span<const NamedClass> named_classes() {
  return kClasses;
}

}  // namespace ferry
