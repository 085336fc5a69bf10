// SPDX-License-Identifier: Apache-2.0
#include "policy/accelerators.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "policy/gpu_models.h"

namespace ferry::policy {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::array kVendors = {NamedVendor{.name = "nvidia", .id = kNvidia},
                                 NamedVendor{.name = "amd", .id = 0x1002},
                                 NamedVendor{.name = "intel", .id = 0x8086}};
constexpr std::array kClasses = {NamedClass{.name = "vga", .pci_class = vfio::PciClass::vga},
                                 NamedClass{.name = "3d", .pci_class = vfio::PciClass::display_3d},
                                 NamedClass{.name = "nvswitch", .pci_class = vfio::PciClass::bridge_other}};

/// vGPUs on virtual functions came with Ampere. A Turing board may have an SR-IOV capability (a T4: 16), but
/// its driver never switches it on.
constexpr std::array<std::string_view, 5> kWithoutVirtualFunctions = {"kepler", "maxwell", "pascal", "volta",
                                                                      "turing"};

bool never_has_virtual_functions(const vfio::PciFunction& function) {
  const std::string subsystem =
      function.subsystem_vendor && function.subsystem_device
          ? fmt::format("{:04x}:{:04x}", *function.subsystem_vendor, *function.subsystem_device)
          : std::string();
  const std::string_view family = gpu_model(function.ids(), subsystem).family;
  return std::ranges::find(kWithoutVirtualFunctions, family) != kWithoutVirtualFunctions.end();
}

}  // namespace

vfio::AcceleratorRules default_accelerator_rules() {
  return {.vendors = {kNvidia},
          .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d},
          .on_request = {vfio::PciClass::bridge_other},
          .of_other_vendors = {vfio::PciClass::vga, vfio::PciClass::xga, vfio::PciClass::display_3d,
                               vfio::PciClass::display_other, vfio::PciClass::processing_accelerator},
          .never_has_virtual_functions = never_has_virtual_functions,
          .whose = "NVIDIA"};
}

std::span<const NamedVendor> named_vendors() {
  return kVendors;
}

std::span<const NamedClass> named_classes() {
  return kClasses;
}

}  // namespace ferry::policy
