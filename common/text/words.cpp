// SPDX-License-Identifier: Apache-2.0
#include "common/text/words.h"

#include <algorithm>

namespace ferry {

std::vector<std::string> words_between(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace ferry
