// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completion.h"

#include <algorithm>

namespace ferry::cli {

std::string shell_quoted(const std::string& text) {
  return "'" + replaced(text, "'", R"('\'')") + "'";
}

std::string function_name(const std::string& program) {
  std::string out = program;
  std::ranges::replace(out, '-', '_');
  return out;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace ferry::cli
