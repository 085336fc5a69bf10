// SPDX-License-Identifier: Apache-2.0
#include "cli/output/help_text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <set>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/exit_status.h"
#include "common/text/text.h"

namespace ferry::cli {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kGap = 2;
constexpr std::size_t kMostLeft = 28;    // a longer left part has a line of its own
constexpr std::size_t kLeastRight = 20;  // the right column is never narrower
constexpr std::size_t kMostOfAll = 4;    // examples in the help of the program itself

/// The two columns of one row.
struct HelpRow {
  std::string left;
  std::string right;
};

class HelpWriter {
 public:
  explicit HelpWriter(const TextOutput& output) : output_(output) {}

  void heading(std::string_view text) { out_ += fmt::format("\n{}:\n", text); }
  void blank() { out_ += "\n"; }
  /// `text` with `before` in front of its first line, and as many blanks in front of the others.
  void lines(const std::string& before, std::string_view text) {
    std::string head = before;
    const std::size_t start = width_of(before);
    for (const std::string& part : wrapped(text, width_behind(output_, start, kLeastRight))) {
      out_ += head + part + "\n";
      head.assign(start, ' ');
    }
  }
  void rows(const std::vector<HelpRow>& rows) {
    std::size_t left = 0;
    for (const HelpRow& row : rows)
      if (width_of(row.left) <= kMostLeft) left = std::max(left, width_of(row.left));
    for (const HelpRow& row : rows) {
      std::string before = std::string(kIndent, ' ') + row.left;
      const std::size_t start = kIndent + left + kGap;
      if (width_of(row.left) > left) {
        lines(std::string(kIndent, ' '), row.left);
        before.clear();
      }
      lines(padded(before, start), row.right);
    }
  }
  std::string text() && { return std::move(out_); }

 private:
  const TextOutput& output_;
  std::string out_;
};

// "-f, --file FILE"; of a positional "NODE".
std::string left_of(const OptionModel& option) {
  std::string out = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.takes_value()) return out;
  return out.empty() ? option.value : out + " " + option.value;
}

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

std::string words_of(const std::string& program, const CommandModel& command) {
  return command.path.empty() ? program : program + " " + command.words();
}

std::string usage_of(const std::string& program, const CommandModel& command) {
  std::string out = words_of(program, command);
  if (!command.commands.empty()) return out + " COMMAND [OPTION ...]";
  for (const OptionModel& option : command.options)
    if (option.required) out += fmt::format(" {} {}", option.names.front(), option.value);
  for (const OptionModel& positional : command.positionals) {
    const bool repeats = positional.repeats && !positional.value.ends_with("...");
    const std::string value = positional.value + (repeats ? "..." : "");
    out += positional.required ? " " + value : " [" + value + "]";
  }
  return out + " [OPTION ...]";
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (!text.ends_with('.') && !text.ends_with('?')) text += '.';
  return text;
}

void add_options(HelpWriter& out, const std::vector<OptionModel>& options) {
  std::vector<std::string> groups;
  for (const OptionModel& option : options)
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  for (const std::string& group : groups) {
    std::vector<HelpRow> rows;
    for (const OptionModel& option : options)
      if (option.group == group) rows.push_back({.left = left_of(option), .right = right_of(option)});
    out.heading(group);
    out.rows(rows);
  }
}

// "-o FORMAT, --log-level LEVEL": each by its first name.
std::string inherited_text(const std::vector<OptionModel>& options) {
  std::vector<std::string> parts;
  for (const OptionModel& option : options)
    parts.push_back(option.names.front() + (option.takes_value() ? " " + option.value : ""));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool is_at_or_below(std::string_view command, const std::string& words) {
  return command == words ||
         (command.starts_with(words) && command.size() > words.size() && command[words.size()] == ' ');
}

std::vector<Example> examples_of(const CommandModel& command, std::span<const Example> all) {
  std::vector<Example> out;
  std::set<std::string_view> seen;  // the first words of commands
  for (const Example& example : all) {
    const std::string_view first = example.command.substr(0, example.command.find(' '));
    if (command.path.empty() && out.size() == kMostOfAll) break;
    const bool is_of_it =
        command.path.empty() ? seen.insert(first).second : is_at_or_below(example.command, command.words());
    if (is_of_it) out.push_back(example);
  }
  return out;
}

}  // namespace

std::string help_text(const CommandModel& command, const HelpFrame& frame, const TextOutput& output) {
  HelpWriter out(output);
  out.lines("Usage: ", usage_of(frame.program, command));
  if (!command.description.empty()) {
    out.blank();
    out.lines("", sentence(command.description));
  }
  if (!command.positionals.empty()) {
    std::vector<HelpRow> rows;
    for (const OptionModel& positional : command.positionals)
      rows.push_back({.left = left_of(positional), .right = right_of(positional)});
    out.heading("Arguments");
    out.rows(rows);
  }
  add_options(out, command.options);
  if (!command.inherited.empty()) {
    out.blank();
    out.lines("", fmt::format("Options of every command: {}. `{} --help` describes them.",
                              inherited_text(command.inherited), frame.program));
  }
  if (!command.commands.empty()) {
    std::vector<HelpRow> rows;
    for (const CommandModel& below : command.commands)
      rows.push_back({.left = below.path.back(), .right = below.description});
    out.heading("Commands");
    out.rows(rows);
  }
  for (const std::string& note : words_between(command.notes, '\n')) {
    out.blank();
    out.lines("", note);
  }
  const auto examples = examples_of(command, frame.examples);
  if (!examples.empty()) out.heading("Examples");
  for (const Example& example : examples) {
    out.lines("  ", fmt::format("{}:", example.does));
    out.lines("    ", example.line);
  }
  if (!frame.statuses.empty()) {
    std::vector<HelpRow> rows;
    for (const StatusMeaning& one : frame.statuses)
      rows.push_back({.left = std::string(one.status), .right = std::string(one.meaning)});
    out.heading("Exit status");
    out.rows(rows);
  }
  return std::move(out).text();
}

Result<std::string> help_of(const CommandModel& root, const std::vector<std::string>& words,
                            const HelpFrame& frame, const TextOutput& output) {
  const CommandModel* at = &root;
  for (const std::string& word : words) {
    std::vector<std::string> known;
    const CommandModel* next = nullptr;
    for (const CommandModel& below : at->commands) {
      known.push_back(below.path.back());
      if (below.is_called(word)) next = &below;
    }
    if (next == nullptr) {
      const std::string path = at->path.empty() ? word : at->words() + " " + word;
      return fail(Errc::usage, fmt::format("there is no verb '{}'{}", path, did_you_mean(word, known)),
                  fmt::format("`{} help` lists what there is", frame.program));
    }
    at = next;
  }
  return help_text(*at, frame, output);
}

int print_help(const CLI::App& app, const CLI::Success& asked, HelpFrame frame) {
  if (dynamic_cast<const CLI::CallForHelp*>(&asked) == nullptr) {
    std::cout << asked.what() << '\n';  // the version
    return static_cast<int>(ExitStatus::done);
  }
  if (frame.program.empty()) frame.program = app.get_name();
  std::vector<std::string> path;
  for (const CLI::App* at = &parsed_command(app); at != &app; at = at->get_parent())
    path.insert(path.begin(), at->get_name());
  const CommandModel root = command_model(app);
  const auto commands = all_commands(root);
  const auto found =
      std::ranges::find_if(commands, [&](const CommandModel* command) { return command->path == path; });
  const CommandModel& command = found == commands.end() ? root : **found;
  std::cout << help_text(command, frame, text_output_of(stdout));
  return static_cast<int>(ExitStatus::done);
}

}  // namespace ferry::cli
