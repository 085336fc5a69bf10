// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/pci/kernel_options.h"

void ferry::fuzz::one_input(std::string_view text) {
  for (const vfio::ModprobeLine& line : vfio::parse_modprobe_config(text)) {
    require(!line.words.empty(), "a line has a word");
    require(!line.words.front().starts_with('#'), "a comment is no command");
    for (const std::string& word : line.words) {
      require(!word.empty() && word.find_first_of(" \t\n") == std::string::npos, "a word has no blanks");
    }
  }
}
