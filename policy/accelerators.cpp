// SPDX-License-Identifier: Apache-2.0
#include "policy/accelerators.h"

namespace ferry {

AcceleratorRules default_accelerator_rules() {
  constexpr std::uint16_t kNvidia = 0x10de;
  return {.vendors = {kNvidia}, .classes = {PciClass::vga, PciClass::display_3d}};
}

}  // namespace ferry
