// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "kata-manager/classes/kubernetes_words.h"
#include "kata-manager/configuration/kata_checks.h"
#include "tests/fuzz/fuzz.h"

// Words that the API takes hold nothing that would end one: no blank, no quote, no line's end.
void ferry::fuzz::one_input(std::string_view text) {
  const bool is_word = kata::is_object_name(text) || kata::is_label_key(text) || kata::is_label_value(text);
  constexpr std::string_view kEnds = " \t\r\n\"'\\:#{}[],";
  require(!is_word || text.find_first_of(kEnds) == std::string_view::npos, "a name is one word");
  if (const auto amount = kata::parse_quantity(text)) {
    require(kata::parse_quantity(std::to_string(*amount)) == amount, "an amount is a quantity");
    require(text.find_first_of(kEnds) == std::string_view::npos, "a quantity is one word");
  }
  if (const auto duration = kata::parse_go_duration(text)) {
    require(duration->count() >= 0, "nobody waits for less than no time");
    require(kata::parse_go_duration(std::to_string(duration->count()) + "s") == duration,
            "seconds are a duration");
  }
}
