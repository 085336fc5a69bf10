// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <filesystem>

#include <fmt/format.h>

#include "kubectl/kubectl_program.h"

namespace ferry::kubectl {
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
  void offer_value_of(const cli::OptionModel& option) {
    if (option.value == "FILE") directive_ = Directive::files;
    if (option.value == "DIR") directive_ = Directive::folders;
    for (const std::string& word : option.words) offer(word);
  }
  std::string text() const { return fmt::format("{}:{}\n", text_, static_cast<int>(directive_)); }

 private:
  const std::string begun_;
  std::string text_;
  Directive directive_ = Directive::nothing_else;
};

const cli::OptionModel* find_option(const cli::CommandModel& command, std::string_view name) {
  for (const auto* some : {&command.options, &command.inherited})
    for (const cli::OptionModel& option : *some)
      if (std::ranges::find(option.names, name) != option.names.end()) return &option;
  return nullptr;
}

/// The place of the last word.
struct Place {
  const cli::CommandModel* command = nullptr;
  const cli::OptionModel* value_of = nullptr;  ///< an option that takes the word as its value
  std::size_t positional = 0;                  ///< number among the command's positionals
  std::string last_positional = {};            ///< the one before the word; empty: none
  bool only_positionals = false;               ///< "--" stands before the word
  NameQuestion question = {};                  ///< the cluster that the words before name
};

void take_value(NameQuestion& question, std::string_view option, std::string_view value) {
  if (option == "--kubeconfig") question.kubeconfig = value;
  if (option == "--context") question.context = value;
}

Place place_behind(const cli::CommandModel& root, const std::vector<std::string>& before) {
  Place place{.command = &root};
  for (const std::string& word : before) {
    if (place.value_of != nullptr) {
      take_value(place.question, place.value_of->names.back(), word);
      place.value_of = nullptr;
      continue;
    }
    if (!place.only_positionals && word.starts_with('-') && word != "-") {
      place.only_positionals = word == "--";
      // An option that is unknown or has its value after '=' takes no word of its own.
      const cli::OptionModel* const option = find_option(*place.command, word);
      if (option != nullptr && option->takes_value()) place.value_of = option;
      if (const auto equals = word.find('='); equals != std::string::npos)
        take_value(place.question, word.substr(0, equals), word.substr(equals + 1));
      continue;
    }
    const auto& below = place.command->commands;
    const auto named =
        std::ranges::find_if(below, [&](const cli::CommandModel& one) { return one.is_called(word); });
    if (named == below.end()) {
      ++place.positional;
      place.last_positional = word;
    } else {
      place.command = &*named;
    }
  }
  return place;
}

const cli::OptionModel* positional_at(const cli::CommandModel& command, std::size_t at) {
  if (at < command.positionals.size()) return &command.positionals[at];
  if (command.positionals.empty() || !command.positionals.back().repeats) return nullptr;
  return &command.positionals.back();
}

/// Offers the names that the positional takes: NODE, NODE..., or NODE|vm... of `doctor`.
void offer_names(const cli::OptionModel& positional, Place place, const AskForNames& ask, Answer& answer) {
  const bool is_target = positional.value.starts_with("NODE|vm");
  const bool is_vm = is_target && place.positional == 1 && place.last_positional == "vm";
  const bool is_node = positional.value.starts_with("NODE") && (!is_target || place.positional == 0);
  if (!is_node && !is_vm) return;
  if (is_target && is_node) answer.offer("vm", "a VM, as NAMESPACE/NAME");
  place.question.kind = is_vm ? NameQuestion::Kind::vms : NameQuestion::Kind::nodes;
  for (const std::string& name : ask(place.question)) answer.offer(name);
}

void offer_options(const cli::CommandModel& command, Answer& answer) {
  for (const cli::OptionModel& option : command.all_options())
    for (const std::string& name : option.names) answer.offer(name, option.description);
}

}  // namespace

bool is_kubectl_completion(std::string_view name) {
  return std::filesystem::path(name).filename() == "kubectl_complete-ferry";
}

std::string kubectl_completion(const cli::CommandModel& root, const std::vector<std::string>& words,
                               const AskForNames& ask) {
  const std::string typed = words.empty() ? std::string() : words.back();
  const std::vector<std::string> before(words.begin(), words.empty() ? words.end() : words.end() - 1);
  const Place place = place_behind(root, before);
  const auto equals = typed.find('=');
  const bool is_option = !place.only_positionals && typed.starts_with('-');
  if (place.value_of == nullptr && is_option && equals != std::string::npos) {
    // The shells put "--output=" before each offered word.
    Answer answer(typed.substr(equals + 1));
    if (const cli::OptionModel* const option = find_option(*place.command, typed.substr(0, equals)))
      answer.offer_value_of(*option);
    return answer.text();
  }
  Answer answer(typed);
  if (place.value_of != nullptr) {
    answer.offer_value_of(*place.value_of);
  } else if (is_option) {
    offer_options(*place.command, answer);
  } else if (!place.command->commands.empty()) {
    for (const cli::CommandModel& below : place.command->commands) {
      answer.offer(below.path.back(), below.description);
      for (const std::string& alias : below.aliases) answer.offer(alias, below.description);
    }
  } else if (const cli::OptionModel* const positional = positional_at(*place.command, place.positional)) {
    answer.offer_value_of(*positional);
    offer_names(*positional, place, ask, answer);
  }
  return answer.text();
}

}  // namespace ferry::kubectl
