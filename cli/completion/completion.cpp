// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completion.h"

#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry::cli {
namespace {

// A function of sh, in which a table of the commands follows. A row has the place, the word that may stand
// there, its kind, and its description. The kind of a command is "command". The kind of an option or a
// positional is its value: FILE, DIR, VALUE, or a list of words; a flag has none. An option of every command
// has the place "*". The word of a positional is its number, or "*" for the last one that repeats.
// bash makes a word of the '=' of "--output=json", unless the user has removed it from COMP_WORDBREAKS.
constexpr std::string_view kHead = R"sh(_ferry_words() {
    awk '
    function offer(word, text) {
        if (substr(word, 1, length(begun)) == begun) print word (text == "" ? "" : "\t" text)
    }
    function offer_value(kind, some, count, i) {
        if (kind == "FILE") directive = 0
        else if (kind == "DIR") directive = 16
        else if (kind != "VALUE") {
            count = split(kind, some, ",")
            for (i = 1; i <= count; i++) offer(some[i])
        }
    }
    function kind_of(name) {
        return ((at, name) in known) ? known[at, name] : known["*", name]
    }
    BEGIN {
        FS = "\t"
        directive = 4
        at = "ferry"
        for (last = 1; last < ARGC; last++) typed[last] = ARGV[last]
        if (ARGC > 1) last--
        ARGC = 1
    }
    { place[NR] = $1; word[NR] = $2; text[NR] = $4; known[$1, $2] = $3 }
    END {
        for (i = 1; i < last; i++) {
            if (option != "") { if (typed[i] != "=") option = "" }
            else if (!plain && typed[i] == "--") plain = 1
            else if (!plain && typed[i] ~ /^-./) { if (kind_of(typed[i]) != "") option = typed[i] }
            else if (known[at, typed[i]] == "command") at = at " " typed[i]
            else count++
        }
        begun = typed[last]
        if (option != "" && begun == "=") begun = ""
        if (option == "" && !plain && begun ~ /^-.*=/) {
            option = begun
            sub(/=.*/, "", option)
            sub(/^[^=]*=/, "", begun)
        }
        if (option == "") {
            for (i = 1; i <= NR; i++)
                if (place[i] == at && known[at, word[i]] == "command") { offer(word[i], text[i]); commands = 1 }
            positional = ((at, count + 1) in known) ? known[at, count + 1] : known[at, "*"]
            if ((!plain && begun ~ /^-/) || (!commands && positional == "")) {
                for (i = 1; i <= NR; i++)
                    if ((place[i] == at || place[i] == "*") && word[i] ~ /^-/) offer(word[i], text[i])
            } else offer_value(positional)
        } else offer_value(kind_of(option))
        print ":" directive
    }
    ' "$@" <<'END'
)sh";
constexpr std::string_view kTail = "END\n}\n";

constexpr std::string_view kBash = R"bash(
_ferry() {
    local option='' found
    mapfile -t found < <(_ferry_words "${COMP_WORDS[@]:1:COMP_CWORD}")
    if ((${#found[@]} == 0)); then return; fi
    case ${found[-1]} in
    :0) compopt -o default ;;
    :16) compopt -o dirnames ;;
    esac
    unset 'found[-1]'
    if [[ ${COMP_WORDS[COMP_CWORD]} == --*=* ]]; then option=${COMP_WORDS[COMP_CWORD]%%=*}=; fi
    COMPREPLY=("${found[@]%%$'\t'*}")
    COMPREPLY=("${COMPREPLY[@]/#/$option}")
}

complete -F _ferry ferry
)bash";

// zsh runs a file of its own folders as the function's body. A script that is read in any other way only
// defines the function.
constexpr std::string_view kZsh = R"zsh(
_ferry() {
    local word
    local -a found described
    found=("${(@f)$(_ferry_words "${(@Q)words[2,CURRENT]}")}")
    if [[ ${words[CURRENT]} == --*=* ]]; then compset -P '--*='; fi
    case $found[-1] in
    (:0) _files ;;
    (:16) _files -/ ;;
    esac
    for word in "${(@)found[1,-2]}"; do
        word=${word//:/\\:}
        described+=("${word/$'\t'/:}")
    done
    _describe -t words word described
}

if [[ $funcstack[1] == _ferry ]]; then
    _ferry "$@"
else
    compdef _ferry ferry
fi
)zsh";

constexpr std::string_view kFish = R"fish(
function __ferry_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $typed)
    set -l value (string replace -r -- '^--[^=]*=' '' $typed)
    set -l found (sh -c $__ferry_words ferry $words[2..-1] "$typed")
    or return
    switch "$found[-1]"
        case :0
            set found (__fish_complete_path "$value") ''
        case :16
            set found (__fish_complete_directories "$value" '') ''
    end
    set -e found[-1]
    for word in $found
        printf '%s\n' "$option$word"
    end
end

complete -c ferry -f -a '(__ferry_complete)'
)fish";

std::string kind_of(const OptionModel& option) {
  if (!option.words.empty()) return fmt::format("{}", fmt::join(option.words, ","));
  if (option.value.empty() || option.value == "FILE" || option.value == "DIR") return option.value;
  return "VALUE";
}

void add_rows(std::string& out, const CommandModel& command, const std::string& place) {
  const auto add = [&out](std::string_view at, std::string_view word, std::string_view kind,
                          std::string_view text) {
    out += fmt::format("{}\t{}\t{}\t{}\n", at, word, kind, text);
  };
  for (const CommandModel& below : command.commands)
    for (const std::string& name : below.names()) add(place, name, "command", below.description);
  for (const CommandModel& below : command.commands)
    for (const std::string& name : below.names()) add_rows(out, below, fmt::format("{} {}", place, name));
  for (const OptionModel& option : command.options) {
    const bool is_own =
        !command.path.empty() || option.names.back() == "--help" || option.names.back() == "--version";
    for (const std::string& name : option.names)
      add(is_own ? place : "*", name, kind_of(option), option.description);
  }
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const OptionModel& positional = command.positionals[i];
    add(place, positional.repeats ? "*" : std::to_string(i + 1), kind_of(positional), positional.description);
  }
}

std::string words_function(const CommandModel& root) {
  std::string out(kHead);
  add_rows(out, root, "ferry");
  return out.append(kTail);
}

constexpr std::string_view kCall = "_ferry_words \"$@\"\n";

}  // namespace

std::string completion_program(const CommandModel& root) {
  return fmt::format("#!/bin/sh\n{}{}", words_function(root), kCall);
}

std::string completion_script(const CommandModel& root, const std::string& shell) {
  const std::string words = words_function(root);
  if (shell == "bash") return fmt::format("# Completion of ferry for bash.\n{}{}", words, kBash);
  if (shell == "zsh") return fmt::format("#compdef ferry\n# Completion of ferry for zsh.\n{}{}", words, kZsh);
  std::string quoted;  // as a string of fish
  for (const char c : fmt::format("{}{}", words, kCall)) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return fmt::format("# Completion of ferry for fish.\nset -g __ferry_words '{}'\n{}", quoted, kFish);
}

}  // namespace ferry::cli
