// SPDX-License-Identifier: Apache-2.0
#include "mdev/framework.h"

#include <algorithm>
#include <array>

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

bool is_on(const Framework& framework, const HostScan& scan, const vfio::PciAddress& gpu,
           VirtualFunctions functions) {
  if (!framework.on_virtual_functions()) return framework.is_parent(scan, gpu);
  return std::ranges::any_of(functions, [&](const vfio::PciFunction* function) {
    return framework.is_parent(scan, function->address);
  });
}

}  // namespace

// Virtual functions with vGPUs are checked first: once they are enabled, the GPU itself offers nothing,
// though its directory may stay. Virtual functions that VMs get whole come last: the GPU may make vGPUs
// beside them.
const Framework& framework_of(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions) {
  for (const Framework* framework : all())
    if (is_on(*framework, scan, gpu, functions)) return *framework;
  return no_framework();
}

}  // namespace ferry::mdev
