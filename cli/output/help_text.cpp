// SPDX-License-Identifier: Apache-2.0
#include "cli/output/help_text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <set>
#include <sstream>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/command_model.h"
#include "common/exit_status.h"
#include "common/text/text.h"

namespace ferry::cli {
namespace {

constexpr std::size_t kLeft = 30;        // columns of names and values
constexpr std::size_t kLeastRight = 20;  // the right column is never narrower
constexpr std::size_t kMostOfAll = 4;    // examples in the help of the program itself

std::string right_of(const OptionModel& option) {
  std::vector<std::string> more;
  if (!option.usual.empty()) more.push_back("default: " + option.usual);
  // "the default is $NODE_NAME" says both.
  const bool says_variable =
      !option.variable.empty() && option.description.find("$" + option.variable) != std::string::npos;
  if (!option.variable.empty() && !says_variable)
    more.push_back("or environment variable " + option.variable);
  if (option.required && !option.names.empty() && !says_variable) more.emplace_back("required");
  if (!option.needs.empty()) more.push_back(fmt::format("with {}", fmt::join(option.needs, ", ")));
  if (!option.excludes.empty()) more.push_back(fmt::format("not with {}", fmt::join(option.excludes, ", ")));
  return option.description + (more.empty() ? "" : fmt::format(" ({})", fmt::join(more, "; ")));
}

std::vector<Example> examples_of(const std::string& path, std::span<const Example> all) {
  std::vector<Example> out;
  std::set<std::string_view> seen;  // the first words of commands
  for (const Example& example : all) {
    const std::string_view first = example.command.substr(0, example.command.find(' '));
    if (path.empty() && out.size() == kMostOfAll) break;
    const bool is_below = example.command == path || example.command.starts_with(path + " ");
    if (path.empty() ? seen.insert(first).second : is_below) out.push_back(example);
  }
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter(const HelpFrame& frame, const TextOutput& output) : frame_(frame), output_(output) {
    column_width(kLeft);
    label("Positionals", "Arguments");
    label("OPTIONS", "OPTION ...");
    label("SUBCOMMAND", "COMMAND");
  }

  std::string make_description(const CLI::App* app) const override {
    std::string text = app->get_description();
    if (text.empty()) return text;
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    return indented(text + (text.ends_with('.') ? "" : "."), 0) + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return row(command->get_name(), command->get_description(), kLeft);
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string value = option_model(*option).value;
    return positional ? value.substr(0, value.find("...")) : option->get_name(false, true);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const OptionModel model = option_model(*option);
    return model.names.empty() || model.value.empty() ? "" : " " + model.value;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return beside(right_of(option_model(*option)), kLeft);
  }
  std::string make_footer(const CLI::App* app) const override {
    std::vector<std::string> paragraphs;
    const CLI::App* const parent = app->get_parent();
    if (parent != nullptr && app->get_fallthrough())
      paragraphs.push_back(indented(
          fmt::format("`{} --help` describes the options of every command, such as -o.", frame_.program), 0));
    // A command has the notes of the one above until it gets its own.
    if (parent == nullptr || parent->get_footer() != app->get_footer())
      for (const std::string& note : words_between(app->get_footer(), '\n'))
        if (!note.empty()) paragraphs.push_back(indented(note, 0));
    std::string examples;
    for (const Example& example : examples_of(path_of(*app), frame_.examples))
      examples += indented(fmt::format("{}:", example.does), 2) + indented(example.line, 4);
    if (!examples.empty()) paragraphs.push_back("Examples:\n" + examples);
    std::string statuses;
    for (const StatusMeaning& one : frame_.statuses)
      statuses += row(std::string(one.status), std::string(one.meaning), 5);
    if (!statuses.empty()) paragraphs.push_back("Exit status:\n" + statuses);
    return fmt::format("{}", fmt::join(paragraphs, "\n"));
  }

 private:
  /// `text` as the right column behind `left` columns.
  std::string beside(const std::string& text, std::size_t left) const {
    return fmt::format("{}", fmt::join(wrapped(text, width_behind(output_, left, kLeastRight)), "\n"));
  }
  std::string row(const std::string& name, const std::string& text, std::size_t left) const {
    std::ostringstream out;
    CLI::detail::format_help(out, name, beside(text, left), left);
    return out.str();
  }
  std::string indented(std::string_view text, std::size_t by) const {
    std::string out;
    for (const std::string& line : wrapped(text, width_behind(output_, by, kLeastRight)))
      out += std::string(by, ' ') + line + "\n";
    return out;
  }

  const HelpFrame& frame_;
  const TextOutput& output_;
};

}  // namespace

std::string help_text(const CLI::App& command, const HelpFrame& frame, const TextOutput& output) {
  const std::string path = path_of(command);
  const std::string name = path.empty() ? frame.program : frame.program + " " + path;
  const std::string text = HelpFormatter(frame, output).make_help(&command, name, CLI::AppFormatMode::Normal);
  return CLI::detail::find_and_replace(text, "\n\n\n", "\n\n");  // between groups of options
}

Result<std::string> help_of(const CLI::App& root, const std::vector<std::string>& words,
                            const HelpFrame& frame, const TextOutput& output) {
  const CLI::App* at = &root;
  for (const std::string& word : words) {
    const auto known = verbs_of(*at);
    if (std::ranges::find(known, word) == known.end()) {
      const std::string path = path_of(*at);
      return fail(Errc::usage,
                  fmt::format("there is no verb '{}{}{}'{}", path, path.empty() ? "" : " ", word,
                              did_you_mean(word, known)),
                  fmt::format("`{} help` lists what there is", frame.program));
    }
    at = at->get_subcommand(word);
  }
  return help_text(*at, frame, output);
}

int print_help(const CLI::App& app, const CLI::Success& asked, HelpFrame frame) {
  if (frame.program.empty()) frame.program = app.get_name();
  const bool is_help = dynamic_cast<const CLI::CallForHelp*>(&asked) != nullptr;
  // Else it is the version.
  std::cout << (is_help ? help_text(parsed_command(app), frame, text_output_of(stdout))
                        : fmt::format("{}\n", asked.what()));
  return static_cast<int>(ExitStatus::done);
}

}  // namespace ferry::cli
