// SPDX-License-Identifier: Apache-2.0
#include "host/desired_file.h"
#include "tests/fuzz/fuzz.h"

// A file that can be read is written and read again with the same values.
void ferry::fuzz::one_input(std::string_view text) {
  const auto read = host::read_desired_file({.file = "desired.json", .text = std::string(text)});
  if (!read) {
    require(read.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
    return require(read.error().message.starts_with("desired.json"), "a refusal says where");
  }
  require(!read->policy.empty(), "a policy is named");
  const std::string written = host::desired_file_text(*read);
  const auto again = host::read_desired_file({.file = "again.json", .text = written});
  require(again.has_value(), "what we write we can read");
  require(host::desired_file_text(*again) == written, "and write again");
}
