// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kubevirt-plugin/discovery/resource_rules.h"

namespace ferry::test {

/// What `ferry plugin` offers.
inline plugin::ResourceRules nvidia_rules() {
  return {.accelerators = {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}},
          .domain = "nvidia.com"};
}

}  // namespace ferry::test
