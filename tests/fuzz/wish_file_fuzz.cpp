// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/wish_file.h"
#include "tests/fuzz/fuzz.h"

// Any wanted.json that the agent finds: what it takes for its own is read back as itself.
void ferry::fuzz::one_input(std::string_view text) {
  const auto wish = agent::read_wish_file(text);
  if (!wish) return;
  const auto again = agent::read_wish_file(agent::wish_file_text(*wish));
  require(again && *again == *wish, "reads back as itself");
}
