// SPDX-License-Identifier: Apache-2.0
#include "dra/checkpoint.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto read = dra::read_checkpoint(text);
  if (!read) {
    require(read.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(read.error().message.starts_with("/run/ferry/dra/claims.json: "), "a refusal says where");
  }
  const auto again = dra::read_checkpoint(dra::checkpoint_text(*read));
  require(again && *again == *read, "a checkpoint reads back as itself");
  dra::Checkpoint steps = *read;
  for (const dra::CheckpointClaim& claim : read->claims) {
    require(read->find(claim.uid) != nullptr, "a claim is found");
    require(dra::begin_unprepare(steps, claim.uid), "a claim can be undone");
    dra::finish_unprepare(steps, claim.uid);
  }
  require(steps.claims.empty() && dra::held_devices(steps).empty(), "no claim is left");
}
