// SPDX-License-Identifier: Apache-2.0
#include "common/plugin_files.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto read = read_withdrawals(text);
  if (!read) return require(read.error().code == Errc::malformed_host, "what cannot be read is said to be");
  for (const Withdrawal& device : read->devices) require(!device.id.empty(), "each device has a name");
}
