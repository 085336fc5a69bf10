// SPDX-License-Identifier: Apache-2.0
// What `crio config` prints: no line is lost, and what is no comment stays as it is.
#include <algorithm>

#include "kata-manager/runtimes/crio.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const std::string read = kata::with_built_in_runtimes(text);
  const auto lines = std::ranges::count(text, '\n') + (!text.empty() && !text.ends_with('\n') ? 1 : 0);
  require(std::ranges::count(read, '\n') == lines, "each line is one line");
  require(kata::with_built_in_runtimes(read) == read, "twice is nothing");
  if (text.find("# ") == std::string_view::npos && (text.empty() || text.ends_with('\n')))
    require(read == text, "without comments nothing is changed");
  (void)kata::parse_toml(read, "crio config");
}
