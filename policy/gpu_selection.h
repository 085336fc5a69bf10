// SPDX-License-Identifier: Apache-2.0
// Selects the GPUs of a policy's item by model, address, NUMA node and vendor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "vfio/pci/inventory.h"

namespace ferry::policy {

/// Gives the name of a model as users see it; empty: unknown. A higher layer passes the table of names in.
using ModelNames = std::function<std::string(const vfio::PciFunction&)>;

/// True if a pattern is `text`, or a glob(7) on it, ignoring case.
bool fits_glob(const std::string& pattern, const std::string& text);

/// True if a pattern is a model's name or IDs ("10de:26b9"), or a glob(7) on one of them, ignoring case.
bool fits_model(const std::string& pattern, const std::string& name, const vfio::PciFunction& gpu);

/// An empty field matches any GPU. Each other field must match with one of its values.
struct GpuSelection {
  std::vector<std::string> models;  ///< for fits_model()
  std::vector<vfio::PciAddress> addresses;
  std::vector<int> numa_nodes;
  std::vector<std::uint16_t> vendors;

  bool matches(const vfio::PciFunction& function, const ModelNames& models_of) const;
  /// True if it matches any GPU.
  bool empty() const { return models.empty() && addresses.empty() && numa_nodes.empty() && vendors.empty(); }
};

// Model names as users write and see them.

/// The short name of a model, which stands in the brackets of its name: "GeForce RTX 4090" of "AD102 [GeForce
/// RTX 4090]". The whole name if it has no brackets.
std::string short_model(const std::string& name);

/// The reason why a pattern is no glob(7), as a clause ("has a [ without its ]"); empty: it is one. A faulty
/// pattern matches no name.
std::string glob_fault(std::string_view pattern);

}  // namespace ferry::policy
