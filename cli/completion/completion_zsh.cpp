// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/completed_names.h"
#include "cli/completion/completion.h"

namespace ferry::cli {
namespace {

std::string with_backslashes(const std::string& text, std::string_view before) {
  std::string out;
  for (const char c : text) {
    if (before.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Characters that _arguments and _describe interpret. Outside of brackets these are only the backslash and
// the colon.
constexpr std::string_view kInBrackets = R"(\[]:)";
constexpr std::string_view kBetweenColons = R"(\:)";

// An option's value or a positional, as ":NAME:ACTION".
std::string value_spec(const OptionModel& option) {
  std::string action = " ";  // the name is shown, and nothing offered
  if (!option.words.empty()) {
    std::vector<std::string> words;
    words.reserve(option.words.size());
    for (const std::string& word : option.words) words.push_back(with_backslashes(word, R"(\ :()'"$`)"));
    action = fmt::format("({})", fmt::join(words, " "));
  } else if (option.value == "FILE") {
    action = "_files";
  } else if (option.value == "DIR") {
    action = "_files -/";
  } else if (const std::string_view names = name_kind(option); !names.empty()) {
    action = fmt::format("_@_names {}", names);
  }
  return ":" + with_backslashes(option.value, kBetweenColons) + ":" + action;
}

// Adds a spec for each name. The names exclude each other unless the option may be repeated.
void add_specs(const OptionModel& option, std::vector<std::string>& out) {
  const std::string before = option.repeats ? "*" : fmt::format("({})", fmt::join(option.names, " "));
  for (const std::string& name : option.names) {
    const char* const takes = !option.takes_value() ? "" : name.starts_with("--") ? "=" : "+";
    out.push_back(shell_quoted(fmt::format("{}{}{}[{}]{}", before, name, takes,
                                           with_backslashes(option.description, kInBrackets),
                                           option.takes_value() ? value_spec(option) : "")));
  }
}

std::string function_of(const CommandModel& command) {
  std::string out = "_@";
  for (const std::string& word : command.path) out += "__" + function_name(word);
  return out;
}

std::string function_text(const CommandModel& command) {
  std::vector<std::string> specs;
  for (const OptionModel& option : command.all_options()) add_specs(option, specs);
  for (const OptionModel& positional : command.positionals)
    specs.push_back(shell_quoted((positional.repeats ? "*" : "") + value_spec(positional)));
  if (command.commands.empty()) {
    return fmt::format("{}() {{\n    _arguments -S \\\n        {}\n}}\n\n", function_of(command),
                       fmt::join(specs, " \\\n        "));
  }
  specs.emplace_back("': :->command'");
  specs.emplace_back("'*:: :->rest'");
  // _arguments leaves only a command and the words behind it in $words.
  const char* const saved = command.path.empty() ? "    local -a _@_line\n    _@_line=($words)\n" : "";
  std::string out = fmt::format(
      "{}() {{\n    local curcontext=$curcontext state line\n    local -A opt_args\n    local -a commands\n{}"
      "    _arguments -C -S \\\n        {}\n",
      function_of(command), saved, fmt::join(specs, " \\\n        "));
  out += "    case $state in\n    (command)\n        commands=(\n";
  for (const CommandModel& below : command.commands) {
    out += "            " +
           shell_quoted(with_backslashes(below.path.back(), kBetweenColons) + ":" +
                        with_backslashes(below.description, R"(\)")) +
           "\n";
  }
  out +=
      "        )\n        _describe -t commands command commands\n        ;;\n    (rest)\n"
      "        case $words[1] in\n";
  for (const CommandModel& below : command.commands)
    out += fmt::format("        ({}) {} ;;\n", below.path.back(), function_of(below));
  return out + "        esac\n        ;;\n    esac\n}\n\n";
}

// Offers names of the host. Its last argument is their kind, and those before it are for compadd.
constexpr const char* kNames = R"zsh(_@_names() {
    local found
    local -a names texts
    for found in ${(f)"$(PROGRAM complete-names $argv[-1] ${_@_line[2,-1]} 2> /dev/null)"}; do
        names+=("${found%%$'\t'*}")
        texts+=("${found/$'\t'/  }")
    done
    compadd "${(@)argv[1,-2]}" -d texts -a names
}

)zsh";

}  // namespace

std::string zsh_completion(const CommandModel& root, const std::string& program) {
  std::string out = fmt::format("#compdef {0}\n# Completion of {0} for zsh.\n\n", program);
  for (const CommandModel* command : all_commands(root)) out += function_text(*command);
  out += replaced(kNames, "PROGRAM", program);
  // zsh runs a file of its own folders as the function's body. A script that is read in any other way only
  // defines the function.
  out += fmt::format("if [[ $funcstack[1] == _@ ]]; then\n    _@ \"$@\"\nelse\n    compdef _@ {}\nfi\n",
                     program);
  return replaced(std::move(out), "_@", "_" + function_name(program));
}

}  // namespace ferry::cli
