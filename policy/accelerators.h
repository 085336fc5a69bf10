// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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

// Public facts about a GPU by its IDs alone, for nodes where no driver can be asked. Only a table tells the
// size of the memory: a BAR has another size (a T4 with 16 GB has a BAR of 256 MiB). Source:
// configs/gpu-models.tsv, which names the origin of each figure.

/// Texts point into the table, which is part of the program.
struct GpuModel {
  /// Name of a board that shares its device ID, "A16"; empty: the name of the device ID is enough.
  std::string_view product;
  std::optional<std::uint32_t> memory_mib;  ///< GB in its name times 1024; absent: unknown
  std::string_view family;  ///< its name in NVIDIA's GPU feature discovery, "ada-lovelace"; or empty
};

/// Looks a GPU up by PCI vendor and device ID and by its subsystem IDs, "10de:25b6" and "10de:14a9". An
/// unlisted board has the facts that the table gives for the device ID alone. Empty: an unknown device.
GpuModel gpu_model(std::string_view ids, std::string_view subsystem_ids);

/// Text of configs/gpu-models.tsv.
std::string_view gpu_models_text();

}  // namespace ferry::policy
