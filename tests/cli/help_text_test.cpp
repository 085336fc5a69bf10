// SPDX-License-Identifier: Apache-2.0
#include "cli/output/help_text.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "cli/commands/command_tree.h"
#include "cli/completion/command_model.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/support/must.h"

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

/// A program with a command that has one of each kind of thing.
class ComposedHelp : public testing::Test {
 protected:
  ComposedHelp() : app_("all of it", "ferry"), make_(*app_.add_subcommand("make", "make it")) {
    app_.add_option("-o,--output", word_, "the format")->option_text("FORMAT");
    make_.fallthrough();
    make_.add_option("device", word_, "a device: its address")->option_text("ADDRESS")->required();
    CLI::Option* const all = make_.add_flag("--all", flag_, "all of them");
    make_.add_option("--with", list_, "include this device, which shares the group; may be repeated")
        ->option_text("ADDRESS ...")
        ->excludes(all);
    make_.add_option("--a-name-that-is-longer-than-the-column", word_, "long")
        ->option_text("NAME [none]")
        ->group("Resources");
    make_.footer("One note.\nAnother note.");
  }
  CLI::App app_;
  CLI::App& make_;
  std::string word_;
  bool flag_ = false;
  std::vector<std::string> list_;
};

TEST_F(ComposedHelp, HasTwoColumnsThatNeverRunTogether) {
  constexpr std::array kExamples = {Example{"make", "Make it", "ferry make 0000:3b:00.0"},
                                    Example{"other", "Not this", "ferry other"}};
  constexpr std::array kStatuses = {StatusMeaning{"0", "done"}};
  const HelpFrame frame{.program = "ferry", .examples = kExamples, .statuses = kStatuses};
  EXPECT_EQ(help_text(make_, frame, {.columns = 60}),
            "Make it.\n"
            "\n"
            "Usage: ferry make [OPTION ...] ADDRESS\n"
            "\n"
            "Arguments:\n"
            "  ADDRESS                     a device: its address\n"
            "\n"
            "Options:\n"
            "  -h,--help                   Print this help message and\n"
            "                              exit\n"
            "  --all                       all of them (not with --with)\n"
            "  --with ADDRESS              include this device, which\n"
            "                              shares the group; may be\n"
            "                              repeated (not with --all)\n"
            "\n"
            "Resources:\n"
            "  --a-name-that-is-longer-than-the-column NAME\n"
            "                              long (default: none)\n"
            "\n"
            "`ferry --help` describes the options of every command, such\n"
            "as -o.\n"
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

TEST_F(ComposedHelp, NamesAnEnvironmentVariableOnce) {
  make_.add_option("--node", word_, "the node; the default is $NODE_NAME")
      ->option_text("NAME")
      ->required()
      ->envname("NODE_NAME");
  make_.add_option("--folder", word_, "the folder")->option_text("DIR")->required()->envname("FOLDER");
  EXPECT_THAT(help_text(make_, help_frame(), {}),
              AllOf(HasSubstr("  --node NAME                 the node; the default is $NODE_NAME\n"),
                    HasSubstr("the folder (or environment variable FOLDER; required)\n")));
}

TEST_F(ComposedHelp, IsFoundByTheWordsOfACommand) {
  const HelpFrame frame{.program = "ferry"};
  EXPECT_THAT(test::must(help_of(app_, {"make"}, frame, {})), HasSubstr("Usage: ferry make"));
  EXPECT_THAT(test::must(help_of(app_, {}, frame, {})), HasSubstr("Usage: ferry [OPTION ...] [COMMAND]"));
  EXPECT_EQ(help_of(app_, {"mkae"}, frame, {}).error().message,
            "there is no verb 'mkae'; did you mean 'make'?");
}

TEST(HelpText, FitsTheTerminalWhateverTheCommand) {
  const CommandModel ferry = ferry_commands();
  for (const CommandModel* command : test::all_commands(ferry)) {
    std::vector<std::string> arguments = command->path;
    arguments.emplace_back("--help");
    const auto whole = test::run_ferry_as("ferry", arguments);
    const auto fitted = test::run_ferry_as("ferry", arguments, {"COLUMNS=80"});
    EXPECT_LE(widest(fitted.out), 80U) << test::path_words(*command);
    EXPECT_EQ(words(fitted.out), words(whole.out)) << test::path_words(*command);
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
  const CommandTree tree([](std::string_view /*verb*/) { return true; });
  std::set<std::string> with_examples;
  for (const Example& example : help_frame().examples) {
    with_examples.insert(std::string(example.command));
    const auto commands = test::commands_in(std::string(example.line));
    ASSERT_EQ(commands.size(), 1U) << example.line;
    EXPECT_THAT(test::problem_with(root, commands.front()), IsEmpty()) << example.line;
    EXPECT_THAT(std::string(example.line), HasSubstr("ferry " + std::string(example.command)));
  }
  for (const CommandModel* command : test::all_commands(root)) {
    if (command->commands.empty()) {
      EXPECT_TRUE(with_examples.contains(test::path_words(*command))) << test::path_words(*command);
    }
    EXPECT_THAT(test::must(help_of(tree.app, command->path, help_frame(), {})), HasSubstr("\nExamples:\n  "))
        << test::path_words(*command);
  }
}

}  // namespace
}  // namespace ferry::cli
