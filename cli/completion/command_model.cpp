// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/command_model.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"

namespace ferry::cli {
namespace {

// Parses "TEXT:{pack,spread}". CLI11 describes the words of a checked option only by such a type.
std::vector<std::string> words_of(std::string_view type) {
  constexpr std::string_view kBegin = ":{";
  const auto start = type.find(kBegin);
  if (start == std::string_view::npos) return {};
  const std::string_view list = type.substr(start + kBegin.size());
  return words_between(list.substr(0, list.find('}')), ',');
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

}  // namespace

std::vector<std::string> CommandModel::names() const {
  std::vector<std::string> out = aliases;
  if (!path.empty()) out.insert(out.begin(), path.back());
  return out;
}

OptionModel option_model(const CLI::Option& option) {
  OptionModel out{.description = option.get_description(),
                  .value = value_name(option),
                  .words = words_of(option.get_type_name()),
                  .repeats = option.get_items_expected_max() > 1,
                  .required = option.get_required(),
                  .usual = usual_value(option),
                  .needs = names_of(option.get_needs()),
                  .excludes = names_of(option.get_excludes()),
                  .variable = option.get_envname()};
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  return out;
}

CommandModel command_model(const CLI::App& app) {
  CommandModel out{.aliases = app.get_aliases(), .description = app.get_description()};
  for (const CLI::App* at = &app; at->get_parent() != nullptr; at = at->get_parent())
    out.path.insert(out.path.begin(), at->get_name());
  // A command has the notes of the one above until it gets its own.
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr || parent->get_footer() != app.get_footer()) out.notes = app.get_footer();
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? out.options : out.positionals).push_back(option_model(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) out.commands.push_back(command_model(*command));
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
    out = out.empty() ? at->get_name() : fmt::format("{} {}", at->get_name(), out);
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
