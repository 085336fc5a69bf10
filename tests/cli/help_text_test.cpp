// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "cli/completion/command_model.h"
#include "tests/cli/run_program.h"

namespace ferry::cli {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::size_t widest(const std::string& text) {
  std::istringstream in(text);
  std::size_t width = 0;
  for (std::string line; std::getline(in, line);) width = std::max(width, width_of(line));
  return width;
}

TEST(HelpText, HasDescriptionsBelowTheirBeginning) {
  constexpr const char* kWide =
      "Options:\n"
      "  --with TEXT ...             also move this foreign member of a group; may be repeated\n"
      "  --force                     short\n"
      "\n"
      "Exit status: 0 done or already so, 1 failed, 2 wrong usage or invalid file\n";
  EXPECT_EQ(fitted_help(kWide, {.columns = 60}),
            "Options:\n"
            "  --with TEXT ...             also move this foreign member\n"
            "                              of a group; may be repeated\n"
            "  --force                     short\n"
            "\n"
            "Exit status: 0 done or already so, 1 failed, 2 wrong usage\n"
            "or invalid file\n");
  EXPECT_EQ(fitted_help(kWide, {}), kWide) << "into a file";
}

TEST(HelpText, FitsTheTerminalWhateverTheCommand) {
  const CommandModel ferry = ferry_commands();
  for (const CommandModel* command : all_commands(ferry)) {
    std::vector<std::string> arguments = command->path;
    arguments.emplace_back("--help");
    const auto whole = test::run_ferry_as("ferry", arguments);
    const auto fitted = test::run_ferry_as("ferry", arguments, {"COLUMNS=80"});
    EXPECT_LE(widest(fitted.out), 80U) << command->words();
    EXPECT_EQ(words(fitted.out), words(whole.out)) << command->words();
  }
}

}  // namespace
}  // namespace ferry::cli
