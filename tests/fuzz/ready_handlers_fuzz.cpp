// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/ready_handlers.h"
#include "tests/fuzz/fuzz.h"

// What hostd says of Kata's handlers, as the agent reads it.
void ferry::fuzz::one_input(std::string_view text) {
  const auto ready = kata::read_ready_handlers(text);
  const auto file = kata::read_handlers_file(text);
  require(ready || !file, "who reads what is ready reads it wherever the rest is read too");
  if (!file)
    return require(file.error().message.starts_with("/run/ferry/kata.json: "), "a refusal says where");
  require(file->ready == *ready, "both read the same of what is ready");
  const std::string written = kata::handlers_file_text(*file);
  const auto again = kata::read_handlers_file(written);
  require(again && again->ready == file->ready && again->others.size() == file->others.size(),
          "what is written is read");
  require(kata::handlers_file_text(*again) == written, "and written again");
}
