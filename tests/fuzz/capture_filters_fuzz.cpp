// SPDX-License-Identifier: Apache-2.0
// What a capture lets through of texts with other things in them.
#include <string>

#include "cli/verbs/capture.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const std::string words = cli::without_private_words(text);
  require(words.ends_with('\n') && words.find('\n') + 1 == words.size(), "a command line is one line");
  require(cli::without_private_words(words) == words, "what was let through once is let through again");

  const std::string ids = cli::only_these_ids(text, {"10de:2684"});
  require(ids.empty() || ids.find("\t2684") != std::string::npos, "a vendor has its device");
  require(cli::only_these_ids(ids, {"10de:2684"}) == ids, "lines that were kept once are kept again");

  const std::string config = cli::without_serial_numbers(std::string(text));
  require(config.size() == text.size() && config.substr(0, 64) == text.substr(0, 64),
          "everything keeps its place, and a header is no secret");
}
