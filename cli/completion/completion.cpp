// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completion.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ferry::cli {
namespace {

// The values of Cobra's ShellCompDirective.
enum class Directive { files = 0, nothing_else = 4, folders = 16 };

class Answer {
 public:
  explicit Answer(std::string begun) : begun_(std::move(begun)) {}

  void offer(const std::string& word, const std::string& description = {}) {
    if (!word.starts_with(begun_)) return;
    text_ += description.empty() ? word + "\n" : fmt::format("{}\t{}\n", word, description);
  }
  void offer_value_of(const OptionModel& option, const WordsBefore& before, const FindNames& find) {
    if (option.value == "FILE") directive_ = Directive::files;
    if (option.value == "DIR") directive_ = Directive::folders;
    for (const std::string& word : option.words) offer(word);
    for (const auto& [name, description] : find(option, before)) offer(name, description);
  }
  std::string text() const { return fmt::format("{}:{}\n", text_, static_cast<int>(directive_)); }

 private:
  const std::string begun_;
  std::string text_;
  Directive directive_ = Directive::nothing_else;
};

const OptionModel* find_option(const CommandModel& command, std::string_view name) {
  for (const auto* some : {&command.options, &command.inherited})
    for (const OptionModel& option : *some)
      if (std::ranges::find(option.names, name) != option.names.end()) return &option;
  return nullptr;
}

/// The place of the last word.
struct Place {
  const CommandModel* command = nullptr;
  const OptionModel* value_of = nullptr;  ///< an option that takes the word as its value
  bool only_positionals = false;          ///< "--" stands before the word
  WordsBefore before = {};
};

Place place_behind(const CommandModel& root, const std::vector<std::string>& words) {
  Place place{.command = &root};
  for (const std::string& word : words) {
    if (place.value_of != nullptr) {
      place.before.values[place.value_of->names.back()] = word;
      place.value_of = nullptr;
      continue;
    }
    if (!place.only_positionals && word.starts_with('-') && word != "-") {
      place.only_positionals = word == "--";
      // An option that is unknown or has its value after '=' takes no word of its own.
      const auto equals = word.find('=');
      const OptionModel* const option = find_option(*place.command, word.substr(0, equals));
      if (option == nullptr || !option->takes_value()) continue;
      if (equals == std::string::npos) {
        place.value_of = option;
      } else {
        place.before.values[option->names.back()] = word.substr(equals + 1);
      }
      continue;
    }
    const auto& below = place.command->commands;
    const auto named =
        std::ranges::find_if(below, [&](const CommandModel& one) { return one.is_called(word); });
    if (named == below.end()) {
      place.before.positionals.push_back(word);
    } else {
      place.command = &*named;
    }
  }
  return place;
}

const OptionModel* positional_at(const CommandModel& command, std::size_t at) {
  if (at < command.positionals.size()) return &command.positionals[at];
  if (command.positionals.empty() || !command.positionals.back().repeats) return nullptr;
  return &command.positionals.back();
}

}  // namespace

std::string completions(const CommandModel& root, const std::vector<std::string>& words,
                        const FindNames& find) {
  const std::string typed = words.empty() ? std::string() : words.back();
  const Place place = place_behind(root, {words.begin(), words.empty() ? words.end() : words.end() - 1});
  const CommandModel& command = *place.command;
  const auto equals = typed.find('=');
  const bool is_option = !place.only_positionals && typed.starts_with('-');
  if (place.value_of == nullptr && is_option && equals != std::string::npos) {
    Answer answer(typed.substr(equals + 1));
    if (const OptionModel* const option = find_option(command, typed.substr(0, equals)))
      answer.offer_value_of(*option, place.before, find);
    return answer.text();
  }
  Answer answer(typed);
  if (place.value_of != nullptr) {
    answer.offer_value_of(*place.value_of, place.before, find);
    return answer.text();
  }
  for (const CommandModel& below : command.commands) {
    answer.offer(below.path.back(), below.description);
    for (const std::string& alias : below.aliases) answer.offer(alias, below.description);
  }
  const OptionModel* const positional = positional_at(command, place.before.positionals.size());
  if (is_option || (command.commands.empty() && positional == nullptr)) {
    for (const OptionModel& option : command.all_options())
      for (const std::string& name : option.names) answer.offer(name, option.description);
  } else if (positional != nullptr) {
    answer.offer_value_of(*positional, place.before, find);
  }
  return answer.text();
}

}  // namespace ferry::cli
