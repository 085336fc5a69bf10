// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/uevent.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto event = parse_uevent(text);
  if (!event.bound) return;
  require(event.concerns_us, "a function that was bound concerns us");
  require(text.find("ACTION=bind") != std::string_view::npos, "only a bind binds");
  require(PciAddress::parse(event.bound->text()).has_value(), "an address stays one");
}
