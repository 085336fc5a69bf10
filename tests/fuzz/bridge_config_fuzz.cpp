// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/pci/bridge_config.h"

void ferry::fuzz::one_input(std::string_view text) {
  if (const auto found = vfio::port_isolation(text)) {
    const bool off = found->kind == vfio::PortIsolation::Kind::bits_off;
    require(text.size() >= 256, "no answer from a header alone");
    require(off == (found->missing != 0), "bits that are off are named");
    require((found->missing & ~0x1dU) == 0 && (found->missing & found->control) == 0,
            "only bits that are off");
    require(!off || (found->control_at > 0x100 && found->control_at + 2 <= text.size()),
            "the register is there");
    require(off == !vfio::acs_bits_text(found->missing).empty(), "each of them has a name");
  } else {
    require(!found.error().message.empty(), "what is wrong is said");
  }
  if (const auto window = vfio::prefetchable_window(text)) {
    require(text.size() >= 64, "no window without a header");
    require(window->size % (1U << 20U) == 0, "a window is whole MiB");
    require(window->size == 0 || window->start + (window->size - 1) >= window->start,
            "it ends after it begins");
  }
}
