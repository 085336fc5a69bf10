// SPDX-License-Identifier: Apache-2.0
#include "mdev/framework.h"

#include <algorithm>
#include <array>
#include <set>

namespace ferry::mdev {
namespace {

/// All frameworks, in the order in which a GPU is asked for them.
auto all() {
  return std::to_array<const Framework*>({
      &mediated_on_functions(),
      &vendor_vfio(),
      &mediated_on_gpu(),
      &whole_functions(),
  });
}

}  // namespace

bool Framework::is_on(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions) const {
  if (!on_virtual_functions()) return is_parent(scan, gpu);
  return std::ranges::any_of(
      functions, [&](const vfio::PciFunction* function) { return is_parent(scan, function->address); });
}

Result<> Framework::enable_functions(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t number,
                                     bool /*for_host*/) const {
  return enable_vfs(on, gpu, number);
}

Result<> Framework::disable_functions(const VfSwitch& on, const vfio::PciAddress& gpu) const {
  return disable_vfs(on, gpu);
}

// Virtual functions with vGPUs are checked first: once they are enabled, the GPU itself offers nothing,
// though its directory may stay. Virtual functions that VMs get whole come last: the GPU may make vGPUs
// beside them.
const Framework& framework_of(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions) {
  for (const Framework* framework : all())
    if (framework->is_on(scan, gpu, functions)) return *framework;
  return no_framework();
}

vfio::AcceleratorRules naming_vgpu_vendors(const vfio::Inventory& inventory, vfio::AcceleratorRules rules) {
  std::set<std::uint16_t> vendors;
  for (const auto& [address, function] : inventory.functions) {
    if (!rules.only_by_name(function)) continue;
    for (const Framework* framework : all())
      if (framework->is_shown_by_driver(function)) vendors.insert(function.vendor);
  }
  rules.named_vendors.merge(vendors);
  return rules;
}

}  // namespace ferry::mdev
