// SPDX-License-Identifier: Apache-2.0
// An option that takes one of several words, each of which stands for a value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace ferry {

/// Rejects any other word with the list of valid ones. `value` must outlive the parsing.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& flags, Value& value,
                        const std::map<std::string, Value>& words, const std::string& description) {
  std::vector<std::string> names;
  names.reserve(words.size());
  for (const auto& [name, meaning] : words) names.push_back(name);
  return app
      .add_option_function<std::string>(
          flags, [&value, words](const std::string& word) { value = words.at(word); }, description)
      ->check(CLI::IsMember(names));
}

}  // namespace ferry
