// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "vfio/pci/inventory.h"

namespace ferry::policy {

/// Accelerators are NVIDIA's display and 3D controllers. If they are named, NVIDIA's NVSwitches and other
/// vendors' display functions and processing accelerators count too. NVSwitches join GPUs to each other, and
/// stay with the host unless a VM gets all of it.
vfio::AcceleratorRules default_accelerator_rules();

/// The domain, before the "/", of the resource names by which pods ask for accelerators.
inline constexpr std::string_view kResourceDomain = "nvidia.com";

/// A vendor that users may call by a name.
struct NamedVendor {
  std::string_view name;
  std::uint16_t id = 0;
};
std::span<const NamedVendor> named_vendors();

/// A class that users may call by a word.
struct NamedClass {
  std::string_view name;
  vfio::PciClass pci_class = vfio::PciClass::vga;
};
std::span<const NamedClass> named_classes();

}  // namespace ferry::policy
