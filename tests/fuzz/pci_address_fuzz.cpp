// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "vfio/pci/pci_address.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto address = vfio::PciAddress::parse(text);
  if (!address) return require(address.error().code == Errc::usage, "a refusal is wrong usage");
  const auto again = vfio::PciAddress::parse(address->text());
  require(again && *again == *address, "an address reads back as itself");
  // A domain of five digits or more may be written with leading zeros.
  if (text.size() != address->text().size()) return;
  require(std::ranges::equal(text, address->text(), [](char a, char b) { return (a | 0x20) == (b | 0x20); }),
          "only letter case differs from what was read");
}
