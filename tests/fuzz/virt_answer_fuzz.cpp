// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "virt/virt_client.h"

void ferry::fuzz::one_input(std::string_view text) {
  if (const auto domains = virt::read_domains_answer(text)) {
    const auto again = virt::read_domains_answer(virt::answer_text(*domains));
    require(again && *again == *domains, "domains read back as themselves");
  } else {
    const auto again = virt::read_domains_answer(virt::answer_text(domains.error()));
    require(!again && again.error().code == domains.error().code, "an error reads back as that error");
  }
}
