// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kubevirt-plugin/discovery/offer_rules.h"

namespace ferry::test {

/// What `ferry plugin` offers.
inline OfferRules nvidia_rules() {
  return {.accelerators = {.vendors = {0x10de}, .classes = {PciClass::vga, PciClass::display_3d}},
          .domain = "nvidia.com"};
}

}  // namespace ferry::test
