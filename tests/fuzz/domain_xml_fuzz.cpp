// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "virt/domain.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto domain = virt::read_domain_xml(text);
  if (!domain) {
    require(domain.error().code == Errc::malformed_host, "what cannot be read is said to be");
    return require(domain.error().message.starts_with("domain XML"), "a refusal says what it is about");
  }
  require(!domain->name.empty(), "a domain has a name");
  for (const vfio::PciAddress& address : domain->pci) {
    require(vfio::PciAddress::parse(address.text()).has_value(), "an address is one");
  }
}
