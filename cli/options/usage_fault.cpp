// SPDX-License-Identifier: Apache-2.0
#include "cli/options/usage_fault.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/command_model.h"
#include "common/text/text.h"

namespace ferry::cli {
namespace {

std::vector<std::string> options_at(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* with = &app; with != nullptr; with = with->get_parent())
    for (const CLI::Option* option : with->get_options())
      for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

// A folder that has the name of a verb is most likely that verb, behind an option without its value.
std::optional<std::string> swallowed_verb(const CLI::App& app) {
  const CLI::Option* const root = app.get_option_no_throw("--host-root");
  if (root == nullptr || root->results().empty()) return std::nullopt;
  const auto verbs = verbs_of(app);
  const std::string& folder = root->results().front();
  if (std::ranges::find(verbs, folder) == verbs.end()) return std::nullopt;
  return fmt::format("--host-root took '{}' as its folder", folder);
}

std::string of_a_missing_part(const CLI::App& app, const CLI::App& at, const CLI::ParseError& error,
                              const std::optional<std::string>& unread, const HelpFrame& frame) {
  const bool lacks_verb = at.get_require_subcommand_min() > 0;
  const auto verbs = verbs_of(at);
  if (unread && unread->starts_with('-')) {
    auto known = options_at(at);
    const std::string name = unread->substr(0, unread->find('='));
    std::string meant = did_you_mean(name, known);
    if (meant.empty()) meant = did_you_mean(name, verbs);
    return fmt::format("unknown option {}{}", name, meant);
  }
  if (unread && lacks_verb) {
    const std::string path = path_of(at);
    const auto other = std::ranges::find(frame.other_words, std::string_view(*unread), &OtherWord::word);
    return fmt::format("there is no verb '{}'{}", path.empty() ? *unread : path + " " + *unread,
                       other == frame.other_words.end() ? did_you_mean(*unread, verbs)
                                                        : fmt::format("; did you mean '{}'?", other->verb));
  }
  if (lacks_verb) return swallowed_verb(app).value_or("a verb is missing");
  // The positional that is missing, by its description: "name a device".
  for (const CLI::Option* option : at.get_options()) {
    if (!option->get_positional() || !option->get_required() || option->count() > 0) continue;
    const std::string& description = option->get_description();
    return "name " + description.substr(0, description.find_first_of(":,;"));
  }
  if (unread) {
    std::vector<std::string> known = options_at(at);
    return fmt::format("unexpected word '{}'{}", *unread, did_you_mean(*unread, known));
  }
  return error.what();
}

/// The value that an option takes, as its help has it: "ADDRESS"; empty: help has none.
std::string value_of(const CLI::App& at, const std::string& name) {
  for (const CLI::App* with = &at; with != nullptr; with = with->get_parent()) {
    const CLI::Option* const option = with->get_option_no_throw(name);
    if (option == nullptr) continue;
    const std::string& value = option->get_option_text();
    return value.substr(0, value.find(' '));
  }
  return {};
}

std::string of_a_value(const CLI::App& app, const CLI::App& at, std::string text) {
  // "--output: jsn not in {json,table,yaml}"
  constexpr std::string_view kNotIn = " not in {";
  constexpr std::string_view kNoFolder = "Directory does not exist: ";
  const auto colon = text.find(": ");
  if (colon == std::string::npos) return text;
  const std::string option = text.substr(0, colon);
  const std::string rest = text.substr(colon + 2);
  // "--device: 1 required TEXT missing"
  if (rest.find(" required ") != std::string::npos && rest.ends_with(" missing")) {
    const std::string value = value_of(at, option);
    return fmt::format("{} needs a value{}{}", option, value.empty() ? "" : ": ", value);
  }
  if (const auto list = rest.find(kNotIn); list != std::string::npos && rest.ends_with('}')) {
    const std::string given = rest.substr(0, list);
    const std::size_t begin = list + kNotIn.size();
    const auto words = words_between(std::string_view(rest).substr(begin, rest.size() - begin - 1), ',');
    return fmt::format("{}: '{}' is none of {}{}", option, given, fmt::join(words, ", "),
                       did_you_mean(given, words));
  }
  if (rest.starts_with(kNoFolder)) {
    if (auto swallowed = swallowed_verb(app)) return *swallowed;
    return fmt::format("{}: there is no folder '{}'", option, rest.substr(kNoFolder.size()));
  }
  return text;
}

}  // namespace

Error usage_fault(const CLI::App& app, const CLI::ParseError& error, std::span<char* const> words,
                  const HelpFrame& frame) {
  const CLI::App& at = parsed_command(app);
  const std::string path = path_of(at);
  // The first word that no option and no command takes. The parser keeps such words in another order.
  const auto remaining = app.remaining(true);
  const auto first = std::ranges::find_if(
      words.subspan(std::min<std::size_t>(words.size(), 1)),
      [&](const char* word) { return std::ranges::find(remaining, std::string(word)) != remaining.end(); });
  const auto unread = first == words.end() ? std::nullopt : std::optional<std::string>(*first);
  const auto former = std::ranges::find_if(frame.former_words, [&](const FormerWord& known) {
    return known.command == path && unread && unread->substr(0, unread->find('=')) == known.word;
  });
  if (former != frame.former_words.end())
    return {.code = make_error_code(Errc::usage),
            .message = fmt::format("`{}{}{} {}` was removed", frame.program, path.empty() ? "" : " ", path,
                                   former->word),
            .hint = std::string(former->instead)};

  const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                     dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const std::string message =
      lacks ? of_a_missing_part(app, at, error, unread, frame) : of_a_value(app, at, error.what());
  std::string hint =
      fmt::format("`{}{}{} --help` lists what there is", frame.program, path.empty() ? "" : " ", path);
  const auto example = std::ranges::find(frame.examples, std::string_view(path), &Example::command);
  if (!path.empty() && example != frame.examples.end())
    hint = fmt::format("for example `{}`; {}", example->line, hint);
  return {.code = make_error_code(Errc::usage), .message = message, .hint = hint};
}

}  // namespace ferry::cli
