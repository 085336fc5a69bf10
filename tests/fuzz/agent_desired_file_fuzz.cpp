// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/desired_file.h"
#include "tests/fuzz/fuzz.h"

// Any desired.json that the agent finds: what it takes for its own is read back as itself.
void ferry::fuzz::one_input(std::string_view text) {
  const auto desired_state = agent::read_desired_file(text);
  if (!desired_state) return;
  const auto again = agent::read_desired_file(agent::desired_file_text(*desired_state));
  require(again && *again == *desired_state, "reads back as itself");
}
