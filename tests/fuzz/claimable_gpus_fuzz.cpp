// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/claimable_gpus.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto read = api::read_claimable_gpus(text);
  if (!read) {
    require(read.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(read.error().message.starts_with("/run/ferry/claims/gpus.json: "), "a refusal says where");
  }
  auto sorted = *read;
  std::ranges::sort(sorted, {}, &api::ClaimableGpu::address);
  const auto again = api::read_claimable_gpus(api::claimable_gpus_text(*read));
  require(again && *again == sorted, "the GPUs read back as themselves, in order of address");
}
