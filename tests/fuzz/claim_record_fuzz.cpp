// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_record.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  auto record = host::read_claim_record(text);
  if (!record) {
    require(record.error().code == Errc::malformed_host, "what cannot be read is said to be");
    return require(record.error().message.starts_with("/run/ferry/hostd/claims.json: "),
                   "a refusal says where");
  }
  const auto again = host::read_claim_record(host::claim_record_text(*record));
  require(again && *again == *record, "a record reads back as itself");
  for (const host::Claim& claim : again->claims) {
    require(record->find(claim.uid) != nullptr, "each claim is found by its UID");
    record->remove(claim.uid);
  }
  require(record->claims.empty() && record->gpus().empty(), "without its claims a record has no GPU");
}
