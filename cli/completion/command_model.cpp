// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/command_model.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <set>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry::cli {
namespace {

// Parses "TEXT:{pack,spread}" or "ENUM:value in {json->1,table->0} OR {1,0}". CLI11 describes the words of a
// checked option only by such a type.
std::vector<std::string> words_of(std::string_view type) {
  constexpr std::string_view kMember = ":{";
  constexpr std::string_view kTransformed = ":value in {";
  auto start = type.find(kMember);
  if (start != std::string_view::npos) {
    start += kMember.size();
  } else if (start = type.find(kTransformed); start != std::string_view::npos) {
    start += kTransformed.size();
  } else {
    return {};
  }
  std::string_view list = type.substr(start, type.find('}', start) - start);
  std::vector<std::string> out;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    const std::string_view entry = list.substr(0, end);
    out.emplace_back(entry.substr(0, entry.find("->")));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

// The first word of the text that help shows for a value ("FILE [/run/ferry/status.json]"), else of its type.
std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string& text = option.get_option_text();
  if (!text.empty()) return text.substr(0, text.find(' '));
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

OptionModel option_model(const CLI::Option& option) {
  OptionModel out{.description = option.get_description(),
                  .value = value_name(option),
                  .words = words_of(option.get_type_name()),
                  .repeats = option.get_items_expected_max() > 1};
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  return out;
}

bool is_named_in(const OptionModel& option, const std::vector<OptionModel>& others) {
  return std::ranges::any_of(others, [&](const OptionModel& other) {
    return std::ranges::find_first_of(option.names, other.names) != option.names.end();
  });
}

CommandModel model_below(const CLI::App& app, std::vector<std::string> path,
                         const std::vector<OptionModel>& above) {
  CommandModel out{.path = std::move(path), .description = app.get_description()};
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? out.options : out.positionals).push_back(option_model(*option));
  }
  if (app.get_fallthrough()) {
    std::ranges::copy_if(above, std::back_inserter(out.inherited),
                         [&](const OptionModel& option) { return !is_named_in(option, out.options); });
  }
  std::vector<OptionModel> to_all = out.inherited;
  std::ranges::copy_if(out.options, std::back_inserter(to_all), [](const OptionModel& option) {
    return !is_named_in(option, {{.names = {"--help"}}, {.names = {"--version"}}});
  });
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;
    std::vector<std::string> below = out.path;
    below.push_back(command->get_name());
    out.commands.push_back(model_below(*command, std::move(below), to_all));
  }
  return out;
}

}  // namespace

std::string CommandModel::words() const {
  return fmt::format("{}", fmt::join(path, " "));
}

CommandModel command_model(const CLI::App& app) {
  return model_below(app, {}, {});
}

std::vector<const CommandModel*> all_commands(const CommandModel& root) {
  std::vector<const CommandModel*> out = {&root};
  for (const CommandModel& command : root.commands) {
    const auto below = all_commands(command);
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

CLI::Option* suggest_words(CLI::Option* option, const std::vector<std::string>& words) {
  return option->check(CLI::Validator([](std::string& /*value*/) { return std::string(); },
                                      fmt::format("{{{}}}", fmt::join(words, ","))));
}

namespace {

constexpr std::size_t kDescriptions = 30;  // the column where CLI11 begins them
constexpr std::size_t kNarrowest = 20;     // of a description's column

// True: the line has a description, beside its option's name or below a name that has its own line.
bool has_description(std::string_view line) {
  return line.size() > kDescriptions && line.starts_with("  ") && line[kDescriptions - 1] == ' ' &&
         line[kDescriptions] != ' ';
}

}  // namespace

std::string fitted_help(std::string_view help, const TextOutput& output) {
  if (!output.columns) return std::string(help);
  std::string out;
  while (!help.empty()) {
    const auto end = std::min(help.find('\n'), help.size());
    const std::string_view line = help.substr(0, end);
    help.remove_prefix(std::min(end + 1, help.size()));
    if (width_of(line) <= *output.columns) {
      (out += line) += '\n';
      continue;
    }
    const std::size_t begin = has_description(line) ? kDescriptions : 0;
    std::string before(line.substr(0, begin));
    const std::size_t width = std::max(*output.columns, begin + kNarrowest) - begin;
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
  std::cout << fitted_help(text.str(), text_output_of(stdout));
  return status;
}

}  // namespace ferry::cli
