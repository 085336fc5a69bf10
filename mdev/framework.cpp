// SPDX-License-Identifier: Apache-2.0
#include "mdev/framework.h"

#include <array>

namespace ferry::mdev {
namespace {

/// All frameworks, in the order in which a function is asked for them.
auto all() {
  return std::to_array<const Framework*>({
      &mediated_on_functions(),
      &vendor_vfio(),
      &whole_functions(),
      &mediated_on_gpu(),
  });
}

const Framework* framework_on(const HostScan& scan, const vfio::PciAddress& function, bool virtual_one) {
  for (const Framework* framework : all())
    if (framework->on_virtual_functions() == virtual_one && framework->is_parent(scan, function))
      return framework;
  return nullptr;
}

}  // namespace

// Virtual functions are checked first: once they are enabled, the GPU itself offers nothing, though its
// directory may stay.
const Framework& framework_of(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions) {
  for (const vfio::PciFunction* function : functions)
    if (const Framework* found = framework_on(scan, function->address, true)) return *found;
  const Framework* found = framework_on(scan, gpu, false);
  return found == nullptr ? no_framework() : *found;
}

}  // namespace ferry::mdev
