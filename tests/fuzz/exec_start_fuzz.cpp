// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_start.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto command = kata::command_words(text);
  if (!command) return;
  require(!command->words.empty() && !command->words.front().empty(), "a command has a program");
  const kata::ContainerdStart start = kata::containerd_start(*command);
  if (start.configuration) require(start.configuration->is_absolute(), "a file is named from the root");
  if (start.socket) require(start.socket->is_absolute(), "a socket is named from the root");
  require(start.program || !start.configuration, "of another program nothing is known");
}
