// SPDX-License-Identifier: Apache-2.0
#include "api/serving.h"
#include "tests/fuzz/fuzz.h"

// The agent writes the file, and hostd, which is root, reads it.
void ferry::fuzz::one_input(std::string_view text) {
  (void)api::is_of_the_agent(text);
  const auto standby = api::read_serving_file(text);
  if (!standby)
    return require(standby.error().code == Errc::malformed_host, "what cannot be read is said to be");
  if (standby->empty()) return;
  const std::string written = api::serving_file_text(*standby);
  require(api::is_of_the_agent(written), "the agent's file is the agent's");
  require(api::read_serving_file(written).value_or("") == *standby, "a reason reads back as itself");
}
