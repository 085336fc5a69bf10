// SPDX-License-Identifier: Apache-2.0
#include "cli/output/help_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "cli/completion/command_model.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"

namespace ferry::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

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

/// A command with one of each kind of thing.
CommandModel composed_command() {
  CommandModel out;
  out.path = {"make"};
  out.description = "make it";
  out.positionals = {
      {.description = "a device: its address", .value = "ADDRESS", .required = true, .group = "Options"}};
  out.options = {{.names = {"-h", "--help"}, .description = "print this help", .group = "Options"},
                 {.names = {"--with"},
                  .description = "include this device, which shares the group; may be repeated",
                  .value = "ADDRESS",
                  .repeats = true,
                  .group = "Options",
                  .excludes = {"--all"}},
                 {.names = {"--a-name-that-is-longer-than-the-column"},
                  .description = "long",
                  .value = "NAME",
                  .usual = "none",
                  .group = "Resources"}};
  out.inherited = {{.names = {"-o", "--output"}, .description = "the format", .value = "FORMAT"}};
  out.notes = "One note.\nAnother note.";
  return out;
}

TEST(HelpText, HasTwoColumnsThatNeverRunTogether) {
  constexpr std::array kExamples = {Example{"make", "Make it", "ferry make 0000:3b:00.0"},
                                    Example{"other", "Not this", "ferry other"}};
  constexpr std::array kStatuses = {StatusMeaning{"0", "done"}};
  const HelpFrame frame{.program = "ferry", .examples = kExamples, .statuses = kStatuses};
  EXPECT_EQ(help_text(composed_command(), frame, {.columns = 60}),
            "Usage: ferry make ADDRESS [OPTION ...]\n"
            "\n"
            "Make it.\n"
            "\n"
            "Arguments:\n"
            "  ADDRESS  a device: its address\n"
            "\n"
            "Options:\n"
            "  -h, --help      print this help\n"
            "  --with ADDRESS  include this device, which shares the\n"
            "                  group; may be repeated (not with --all)\n"
            "\n"
            "Resources:\n"
            "  --a-name-that-is-longer-than-the-column NAME\n"
            "    long (default: none)\n"
            "\n"
            "Options of every command: -o FORMAT. `ferry --help`\n"
            "describes them.\n"
            "\n"
            "One note.\n"
            "\n"
            "Another note.\n"
            "\n"
            "Examples:\n"
            "  Make it:\n"
            "    ferry make 0000:3b:00.0\n"
            "\n"
            "Exit status:\n"
            "  0  done\n");
}

TEST(HelpText, NamesAnEnvironmentVariableOnce) {
  CommandModel command;
  command.path = {"make"};
  command.description = "make it";
  command.options = {{.names = {"--node"},
                      .description = "the node; the default is $NODE_NAME",
                      .value = "NAME",
                      .required = true,
                      .group = "Options",
                      .variable = "NODE_NAME"},
                     {.names = {"--folder"},
                      .description = "the folder",
                      .value = "DIR",
                      .required = true,
                      .group = "Options",
                      .variable = "FOLDER"}};
  EXPECT_THAT(help_text(command, help_frame(), {}),
              AllOf(HasSubstr("--node NAME   the node; the default is $NODE_NAME\n"),
                    HasSubstr("--folder DIR  the folder (or environment variable FOLDER; required)\n")));
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

TEST(HelpText, IsInPlainEnglish) {
  EXPECT_THAT(test::faults_of("It is one. It shall be one. `shall`"), testing::SizeIs(1));
  EXPECT_THAT(
      test::faults_of("one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
                      "fifteen sixteen seventeen eighteen nineteen twenty one two three four five six "
                      "seven eight nine thirty one two three four five six"),
      testing::SizeIs(1));
  EXPECT_THAT(test::faults_of_help(ferry_commands()), IsEmpty());
  for (const Example& example : help_frame().examples)
    EXPECT_THAT(test::faults_of(std::string(example.does)), IsEmpty());
  for (const StatusMeaning& status : help_frame().statuses)
    EXPECT_THAT(test::faults_of(std::string(status.meaning)), IsEmpty());
}

TEST(HelpText, EndsWithExamplesThatAreUnderstood) {
  const CommandModel root = ferry_commands();
  std::set<std::string> with_examples;
  for (const Example& example : help_frame().examples) {
    with_examples.insert(std::string(example.command));
    const auto commands = test::commands_in(std::string(example.line));
    ASSERT_EQ(commands.size(), 1U) << example.line;
    EXPECT_THAT(test::problem_with(root, commands.front()), IsEmpty()) << example.line;
    EXPECT_THAT(std::string(example.line), HasSubstr("ferry " + std::string(example.command)));
  }
  for (const CommandModel* command : all_commands(root)) {
    if (command->commands.empty()) {
      EXPECT_TRUE(with_examples.contains(command->words())) << command->words();
    }
    EXPECT_THAT(help_text(*command, help_frame(), {}), HasSubstr("\nExamples:\n  ")) << command->words();
  }
}

}  // namespace
}  // namespace ferry::cli
