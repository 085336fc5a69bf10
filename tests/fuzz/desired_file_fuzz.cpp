// SPDX-License-Identifier: Apache-2.0
#include "api/desired_state.h"
#include "tests/fuzz/fuzz.h"

// A file that can be read is written and read again with the same values.
void ferry::fuzz::one_input(std::string_view text) {
  const auto read = api::read_desired_file({.file = "desired.json", .text = std::string(text)});
  if (!read) {
    require(read.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
    return require(read.error().message.starts_with("desired.json"), "a refusal says where");
  }
  require(!read->policy.empty(), "a policy is named");
  const std::string written = api::desired_file_text(*read);
  const auto again = api::read_desired_file({.file = "again.json", .text = written});
  require(again.has_value(), "what we write we can read");
  require(api::desired_file_text(*again) == written, "and write again");
}
