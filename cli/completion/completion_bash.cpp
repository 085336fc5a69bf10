// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/completed_names.h"
#include "cli/completion/completion.h"

namespace ferry::cli {
namespace {

// The part of the script that is the same for every program; @ stands for its name. It uses no function of
// bash-completion, which may be absent. bash passes '=' as a word of its own, unless the user has removed it
// from COMP_WORDBREAKS. The same holds for ':': the script joins such words, and bash completes the part
// behind the last colon.
constexpr const char* kWalk = R"(
_@_is_among() {
    local word=$1 each
    shift
    for each; do [[ $each == "$word" ]] && return 0; done
    return 1
}

_@() {
    local cur path='' option='' prefix='' kind='' names='' colons='' place=0 word i last=0
    local -a commands options valued words=() line=("${COMP_WORDS[0]}")
    COMPREPLY=()
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((last > 0)) && [[ $word == :* || ${line[last]} == *: ]]; then
            line[last]+=$word
            colons=yes
        else
            line+=("$word")
            last=$((last + 1))
            colons=''
        fi
    done
    cur=${line[last]}
    _@_commands ''
    for ((i = 1; i < last; i++)); do
        word=${line[i]}
        if [[ $word == = ]]; then
            continue
        elif [[ -n $option ]]; then
            option=''
        elif [[ $word == -* ]]; then
            if _@_is_among "$word" "${valued[@]}"; then option=$word; fi
        elif _@_is_among "$word" "${commands[@]}"; then
            path+="${path:+ }$word"
            _@_commands "$path"
        else
            place=$((place + 1))
        fi
    done
    if [[ $cur == = ]]; then
        cur=''
    elif [[ -z $option && $cur == --*=* ]]; then
        option=${cur%%=*} prefix=${cur%%=*}= cur=${cur#*=}
    fi
    if [[ -n $option ]]; then
        _@_values "$path $option"
    elif [[ $cur == -* ]]; then
        words=("${options[@]}")
    elif ((${#commands[@]} > 0)); then
        words=("${commands[@]}")
    else
        _@_values "$path #$place"
        if [[ -z $kind ]]; then words=("${options[@]}"); fi
    fi
    if [[ -n $names ]]; then
        mapfile -t words < <("${line[0]}" complete-names "$names" "${line[@]:1}" 2> /dev/null)
        words=("${words[@]%%$'\t'*}")
    fi
    if [[ -n $colons ]]; then
        colons=$prefix$cur
        colons=${colons%"${colons##*:}"}
    fi
    case $kind in
    FILE) compopt -o default ;;
    DIR) compopt -o dirnames ;;
    *)
        for word in "${words[@]}"; do
            if [[ $word == "$cur"* ]]; then
                word=$prefix$word
                COMPREPLY+=("${word#"$colons"}")
            fi
        done
        ;;
    esac
}
)";

std::string list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  quoted.reserve(words.size());
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  return fmt::format("({})", fmt::join(quoted, " "));
}

std::string what_stands_behind(const CommandModel& command) {
  std::vector<std::string> commands;
  commands.reserve(command.commands.size());
  for (const CommandModel& below : command.commands) commands.push_back(below.path.back());
  std::vector<std::string> options;
  std::vector<std::string> valued;
  for (const OptionModel& option : command.all_options()) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.takes_value()) valued.insert(valued.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("    {})\n        commands={}\n        options={}\n        valued={}\n        ;;\n",
                     shell_quoted(command.words()), list(commands), list(options), list(valued));
}

// Shell assignments that describe an option's value; empty: the value is free.
std::string assignments(const OptionModel& option) {
  if (!option.words.empty()) return fmt::format("kind=words words={}", list(option.words));
  if (option.value == "FILE" || option.value == "DIR") return "kind=" + option.value;
  const std::string_view names = name_kind(option);
  return names.empty() ? std::string() : fmt::format("kind=names names={}", names);
}

/// Maps a description of values to the places that take such a value.
using Places = std::map<std::string, std::vector<std::string>>;

void add_places(const CommandModel& command, Places& places) {
  const auto add = [&](const OptionModel& option, const std::string& place) {
    if (const auto is = assignments(option); !is.empty())
      places[is].push_back(shell_quoted(command.words() + " " + place));
  };
  for (const OptionModel& option : command.all_options())
    for (const std::string& name : option.names) add(option, name);
  for (std::size_t at = 0; at < command.positionals.size(); ++at)
    add(command.positionals[at], fmt::format("#{}", at));
}

}  // namespace

std::string bash_completion(const CommandModel& root, const std::string& program) {
  std::string out =
      fmt::format("# shellcheck shell=bash disable=SC2034\n# Completion of {} for bash.\n", program);
  out += "\n# What can stand behind the command $1.\n_@_commands() {\n    case $1 in\n";
  Places places;
  for (const CommandModel* command : all_commands(root)) {
    out += what_stands_behind(*command);
    add_places(*command, places);
  }
  out +=
      "    esac\n}\n\n# What the value of an option is, or a word of its own: $1 is the command with "
      "either.\n";
  out += "_@_values() {\n    case $1 in\n";
  for (const auto& [is, patterns] : places)
    out += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), is);
  out += "    esac\n}\n";
  out += kWalk;
  out += fmt::format("\ncomplete -F _@ {}\n", program);
  return replaced(std::move(out), "_@", "_" + function_name(program));
}

}  // namespace ferry::cli
