// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/command_model.h"

#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "cli/options/value_option.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

enum class Colour { red, green };

/// A tree with one of each kind of thing.
class CommandModelTest : public testing::Test {
 protected:
  CommandModelTest() : app_("all of it", "program") {
    app_.set_version_flag("--version", "1");
    add_choice(app_, "-c,--colour COLOUR [red]", colour_, {{"red", Colour::red}, {"green", Colour::green}},
               "which");
    app_.add_flag("--hidden", flag_)->group("");
    CLI::App* outer = app_.add_subcommand("outer", "some");
    outer->fallthrough();
    CLI::App* inner = outer->add_subcommand("inner", "one");
    inner->fallthrough();
    inner->add_flag("--flag", flag_, "yes or no");
    inner->add_option("--file", file_, "what to read")->type_name("FILE");
    inner->add_option("--more", list_, "again")->option_text("DIR ...");
    inner->add_option("--colour", word_, "its own")->check(CLI::IsMember({"b", "a"}));
    inner->add_option("word", word_, "a word");
    app_.add_subcommand("alone", "takes nothing of the others");
    app_.add_subcommand("secret", "none of anybody's business")->group("");
  }
  CommandModel model() const { return command_model(app_); }
  CLI::App app_;
  Colour colour_ = Colour::red;
  bool flag_ = false;
  std::filesystem::path file_;
  std::vector<std::string> list_;
  std::string word_;
};

std::vector<std::string> names(const std::vector<OptionModel>& options) {
  std::vector<std::string> out;
  out.reserve(options.size());
  for (const OptionModel& option : options) out.push_back(option.names.empty() ? "" : option.names.back());
  return out;
}

TEST_F(CommandModelTest, HasWhatTheTreeParses) {
  const CommandModel root = model();
  EXPECT_THAT(names(root.options), ElementsAre("--help", "--version", "--colour"));
  const OptionModel& colour = root.options.back();
  EXPECT_THAT(colour.names, ElementsAre("-c", "--colour"));
  EXPECT_EQ(colour.description, "which");
  EXPECT_EQ(colour.value, "COLOUR");
  EXPECT_THAT(colour.words, ElementsAre("green", "red"));
  EXPECT_FALSE(colour.repeats);
  EXPECT_EQ(root.options.front().value, "");

  ASSERT_EQ(root.commands.size(), 2U) << "one is hidden";
  const CommandModel& inner = root.commands.front().commands.front();
  EXPECT_EQ(test::path_words(inner), "outer inner");
  EXPECT_EQ(inner.description, "one");
  EXPECT_THAT(names(inner.options), ElementsAre("--help", "--flag", "--file", "--more", "--colour"));
  EXPECT_EQ(inner.options[1].value, "");
  EXPECT_EQ(inner.options[2].value, "FILE");
  EXPECT_THAT(inner.options[2].words, IsEmpty());
  EXPECT_EQ(inner.options[3].value, "DIR");
  EXPECT_TRUE(inner.options[3].repeats);
  EXPECT_THAT(inner.options[4].words, ElementsAre("b", "a"));
  ASSERT_EQ(inner.positionals.size(), 1U);
  EXPECT_EQ(inner.positionals.front().description, "a word");
}

TEST_F(CommandModelTest, WordsThatAreSuggestedAreNotTheOnlyOnes) {
  suggest_words(app_.add_option("--level", word_), {"low", "high"});
  EXPECT_THAT(model().options.back().words, ElementsAre("low", "high"));
  std::vector<std::string> words = {"other", "--level"};  // as the library takes them
  app_.parse(words);
  EXPECT_EQ(word_, "other");
}

TEST_F(CommandModelTest, ListsEachCommand) {
  const CommandModel root = model();
  std::vector<std::string> all;
  const auto commands = test::all_commands(root);
  all.reserve(commands.size());
  for (const CommandModel* command : commands) all.push_back(test::path_words(*command));
  EXPECT_THAT(all, ElementsAre("", "outer", "outer inner", "alone"));
}

/// A word that an option suggests, where it stands.
struct Suggested {
  std::vector<std::string> command;
  std::string option;
  std::vector<std::string> beside;  ///< what the command needs beside the option
};

// What is suggested and checked by the verb itself.
TEST(CommandModelOfFerry, WhatIsSuggestedIsWhatIsTaken) {
  test::FakeKernel host;
  test::add_host_drivers(host);
  test::add_four_function_card(host);
  host.directory("proc/1/fd");
  const CommandModel root = ferry_commands();
  for (const auto& [command, option, beside] :
       {Suggested{{}, "--log-level", {"convert", "-f", "-"}}, Suggested{{"doctor"}, "--for", {}},
        Suggested{{"vfio", "plan"}, "--class", {}}, Suggested{{"kata", "status"}, "--runtime", {}},
        Suggested{{"vgpu", "choose"}, "--series", {"--memory", "1GiB"}}}) {
    SCOPED_TRACE(option);
    std::vector<std::string> words;
    for (const CommandModel* each : test::all_commands(root)) {
      if (each->path != command) continue;
      for (const OptionModel& known : each->options)
        if (known.names.back() == option) words = known.words;
    }
    const auto said_of = [&, &at = command, &name = option, &more = beside](const std::string& word) {
      std::vector<std::string> all = {"--host-root", host.root().string()};
      all.insert(all.end(), at.begin(), at.end());
      all.insert(all.end(), {name, word});
      all.insert(all.end(), more.begin(), more.end());
      return test::run_ferry(all).err;
    };
    ASSERT_THAT(words, testing::Not(IsEmpty()));
    const std::string refusal = said_of("nonsense");
    ASSERT_THAT(refusal, testing::HasSubstr("nonsense"));
    const std::string start = refusal.substr(0, refusal.find("nonsense"));
    for (const std::string& word : words) {
      EXPECT_THAT(refusal, testing::HasSubstr(word)) << "the hint lists what there is";
      EXPECT_THAT(said_of(word), testing::Not(testing::StartsWith(start)));
    }
  }
}

}  // namespace
}  // namespace ferry::cli
