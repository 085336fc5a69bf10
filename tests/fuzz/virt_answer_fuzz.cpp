// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "virt/answer.h"

void ferry::fuzz::one_input(std::string_view text) {
  if (const auto domains = virt::read_domains_answer(text)) {
    const auto again = virt::read_domains_answer(virt::answer_text(*domains));
    require(again && *again == *domains, "domains read back as themselves");
  }
  if (const auto report = virt::read_selftest_answer(text)) {
    const auto again = virt::read_selftest_answer(virt::answer_text(*report));
    require(again && *again == *report, "a report reads back as itself");
  } else {
    const auto again = virt::read_selftest_answer(virt::answer_text(report.error()));
    require(!again && again.error().code == report.error().code, "an error reads back as that error");
  }
}
