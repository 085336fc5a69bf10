// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "virt/guest_console.h"

void ferry::fuzz::one_input(std::string_view text) {
  virt::GuestConsole whole;
  whole.feed(text);
  virt::GuestConsole cut;
  for (std::size_t i = 0; i < text.size(); ++i) cut.feed(text.substr(i, 1));
  require(whole.ready() == cut.ready() && whole.devices() == cut.devices() && whole.tail() == cut.tail(),
          "where the bytes are cut changes nothing");
}
