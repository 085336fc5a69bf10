// SPDX-License-Identifier: Apache-2.0
#include "cli/help_text.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include <CLI/CLI.hpp>

namespace ferry {
namespace {

constexpr std::size_t kDescriptions = 30;  // the column where CLI11 begins them
constexpr std::size_t kNarrowest = 20;     // of a description's column

// True: the line has a description, beside its option's name or below a name that has its own line.
bool has_description(std::string_view line) {
  return line.size() > kDescriptions && line.starts_with("  ") && line[kDescriptions - 1] == ' ' &&
         line[kDescriptions] != ' ';
}

}  // namespace

std::string fitted_help(std::string_view help, const Canvas& canvas) {
  if (!canvas.columns) return std::string(help);
  std::string out;
  while (!help.empty()) {
    const auto end = std::min(help.find('\n'), help.size());
    const std::string_view line = help.substr(0, end);
    help.remove_prefix(std::min(end + 1, help.size()));
    if (width_of(line) <= *canvas.columns) {
      (out += line) += '\n';
      continue;
    }
    const std::size_t begin = has_description(line) ? kDescriptions : 0;
    std::string before(line.substr(0, begin));
    const std::size_t width = std::max(*canvas.columns, begin + kNarrowest) - begin;
    for (const std::string& part : wrapped(line.substr(begin), width)) {
      out += before + part + '\n';
      before.assign(begin, ' ');
    }
  }
  return out;
}

int print_help(const CLI::App& app, const CLI::Success& asked) {
  std::ostringstream text;
  const int status = app.exit(asked, text, text);
  std::cout << fitted_help(text.str(), canvas_of(stdout));
  return status;
}

}  // namespace ferry
