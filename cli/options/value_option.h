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

}  // namespace ferry::cli
