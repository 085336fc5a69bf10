// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/device_names.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto name = plugin::find_in_pci_ids(text, 0x10de, 0x2684);
  if (!name) return;
  require(!name->empty() && name->find('\n') == std::string::npos, "a name is one line");
  require(text.find(*name) != std::string_view::npos, "a name stands in the text");
}
