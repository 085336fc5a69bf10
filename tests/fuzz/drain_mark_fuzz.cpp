// SPDX-License-Identifier: Apache-2.0
#include "agent/drain/drain_mark.h"
#include "tests/fuzz/fuzz.h"

// Any annotation that a Node has under that name: what the agent takes for its own is read back as itself.
void ferry::fuzz::one_input(std::string_view text) {
  const auto mark = agent::read_drain_mark(text);
  if (!mark) return;
  require(!mark->since || mark->failed.empty(), "it goes on or has failed");
  const auto again = agent::read_drain_mark(agent::drain_mark_text(*mark));
  require(again && *again == *mark, "reads back as itself");
}
