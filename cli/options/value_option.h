// SPDX-License-Identifier: Apache-2.0
// Options that take a value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace ferry::cli {

/// An option or positional of `app`. `form` is its names, a blank, and the text of its value in help:
/// "-f,--file FILE". `value` must outlive the parsing.
template <typename Value>
CLI::Option* add_value(CLI::App& app, const std::string& form, Value& value, const std::string& description) {
  const auto blank = form.find(' ');
  return app.add_option(form.substr(0, blank), value, description)->option_text(form.substr(blank + 1));
}

/// The same for one of several words, each of which stands for a value. Rejects any other word with the list
/// of valid ones.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& form, Value& value,
                        const std::map<std::string, Value>& words, const std::string& description) {
  const auto blank = form.find(' ');
  std::vector<std::string> names;
  names.reserve(words.size());
  for (const auto& [name, meaning] : words) names.push_back(name);
  return app
      .add_option_function<std::string>(
          form.substr(0, blank), [&value, words](const std::string& word) { value = words.at(word); },
          description)
      ->option_text(form.substr(blank + 1))
      ->check(CLI::IsMember(names));
}

/// Refuses an option that earlier versions had, with a value or without, by its name. `instead`: a sentence
/// with the new way.
inline void refuse_option(CLI::App& app, const std::string& names, const std::string& instead) {
  const std::string name = names.substr(names.find("--"));
  app.add_option_function<std::vector<std::string>>(
         names,
         [name, instead](const std::vector<std::string>& /*values*/) {
           throw CLI::ValidationError(name, "it is gone; " + instead);
         })
      ->expected(0, 1)
      ->group("");
}

}  // namespace ferry::cli
