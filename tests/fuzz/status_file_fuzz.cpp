// SPDX-License-Identifier: Apache-2.0
#include "host/status_file.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto read = host::read_status_file(text);
  if (!read) return require(read.error().code == Errc::malformed_host, "what cannot be read is said to be");
  const auto again = host::read_status_file(host::status_file_text(*read));
  require(again && *again == *read, "a state reads back as itself");
  const auto withdrawals = read_withdrawals(text);
  require(!withdrawals || withdrawals->devices == read->withdraw, "the plugin reads the same");
}
