// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/command_model.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

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

// The text in brackets behind the value's name ("DIR [/]"), else the value before parsing.
std::string usual_value(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string& text = option.get_option_text();
  const auto begin = text.find(" [");
  if (begin != std::string::npos && text.ends_with(']'))
    return text.substr(begin + 2, text.size() - begin - 3);
  const std::string given = option.get_default_str();
  const bool list = given.starts_with('[') && given.ends_with(']');
  return list ? given.substr(1, given.size() - 2) : given;
}

std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> out;
  std::ranges::transform(options, std::back_inserter(out),
                         [](const CLI::Option* option) { return option->get_name(); });
  std::ranges::sort(out);
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
  // A command has the notes of the one above until it gets its own.
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr || parent->get_footer() != app.get_footer()) out.notes = app.get_footer();
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
    out.commands.back().aliases = command->get_aliases();
  }
  return out;
}

}  // namespace

std::vector<OptionModel> CommandModel::all_options() const {
  std::vector<OptionModel> out = options;
  out.insert(out.end(), inherited.begin(), inherited.end());
  return out;
}

std::string CommandModel::words() const {
  return fmt::format("{}", fmt::join(path, " "));
}

std::vector<std::string> CommandModel::names() const {
  std::vector<std::string> out = aliases;
  if (!path.empty()) out.insert(out.begin(), path.back());
  return out;
}

bool CommandModel::is_called(std::string_view word) const {
  const auto all = names();
  return std::ranges::find(all, word) != all.end();
}

OptionModel option_model(const CLI::Option& option) {
  OptionModel out{.description = option.get_description(),
                  .value = value_name(option),
                  .words = words_of(option.get_type_name()),
                  .repeats = option.get_items_expected_max() > 1,
                  .required = option.get_required(),
                  .usual = usual_value(option),
                  .group = option.get_group(),
                  .needs = names_of(option.get_needs()),
                  .excludes = names_of(option.get_excludes()),
                  .variable = option.get_envname()};
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  return out;
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

const CLI::App& parsed_command(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
  return *at;
}

std::string path_of(const CLI::App& command) {
  std::string out;
  for (const CLI::App* at = &command; at->get_parent() != nullptr; at = at->get_parent())
    out = out.empty() ? at->get_name() : at->get_name() + " " + out;
  return out;
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    out.push_back(verb->get_name());
    out.insert(out.end(), verb->get_aliases().begin(), verb->get_aliases().end());
  }
  return out;
}

}  // namespace ferry::cli
