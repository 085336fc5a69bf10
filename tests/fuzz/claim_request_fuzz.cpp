// SPDX-License-Identifier: Apache-2.0
#include "api/claim_request.h"
#include "tests/fuzz/fuzz.h"

// hostd reads requests of a process with fewer rights, and that process reads hostd's answers.
void ferry::fuzz::one_input(std::string_view text) {
  constexpr std::size_t kShort = 1000;
  if (const auto request = api::read_claim_request(text)) {
    const auto again = api::read_claim_request(api::claim_request_text(*request));
    require(again && *again == *request, "a request reads back as itself");
  } else {
    require(request.error().code == Errc::malformed_host, "a refusal is of the message");
    require(request.error().message.starts_with("the request: "), "a refusal says where");
  }
  const auto answer = api::read_claim_answer(text);
  const std::string written = api::claim_answer_text(answer);
  require(written.size() <= api::kLongestClaimMessage || answer.has_value(), "an error fits into an answer");
  if (written.size() > api::kLongestClaimMessage) return;  // "mode": null was left out of many nodes
  if (!answer && answer.error().text().size() > kShort) return;
  const auto again = api::read_claim_answer(written);
  require(again.has_value() == answer.has_value(), "an answer reads back as one");
  if (answer) return require(*again == *answer, "devices read back as they are");
  require(again.error().code == answer.error().code, "a code reads back as itself");
  require(again.error().text() == answer.error().text(), "a text reads back as itself");
}
