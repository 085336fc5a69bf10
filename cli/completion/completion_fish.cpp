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

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, R"(\)", R"(\\)"), "'", R"(\')") + "'";
}

// A function that is true if the word belongs to command $argv[1] and, if $argv[2] is given, follows so many
// words of that command's own. @ stands for the program's name.
constexpr const char* kAt = R"(
function __@_is_at
    set -l path
    set -l place 0
    set -l is_value 0
    for word in (commandline -opc)[2..-1]
        if test $is_value -eq 1
            set is_value 0
        else if string match -q -- '-*' $word
            if contains -- "$path $word" $__@_valued
                set is_value 1
            end
        else if contains -- (string join -- ' ' $path $word) $__@_commands
            set -a path $word
        else
            set place (math $place + 1)
        end
    end
    test "$path" = $argv[1]
    and begin
        not set -q argv[2]
        or test $place -eq $argv[2]
    end
end

function __@_names
    PROGRAM complete-names $argv[1] (commandline -opc)[2..-1] 2>/dev/null
end

)";

std::string value_words(const OptionModel& option) {
  if (!option.words.empty())
    return fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(option.words, " "))));
  if (option.value == "FILE") return " -r -F";
  if (option.value == "DIR") return " -x -a '(__fish_complete_directories)'";
  if (const std::string_view names = name_kind(option); !names.empty())
    return fmt::format(" -x -a '(__@_names {})'", names);
  return option.takes_value() ? " -x" : "";
}

std::string lines_of(const CommandModel& command) {
  std::string out;
  const std::string here = "__@_is_at " + fish_quoted(command.words());
  const auto start = [](const std::string& condition) {
    return fmt::format("complete -c @ -n {}", fish_quoted(condition));
  };
  for (const CommandModel& below : command.commands)
    out += fmt::format("{} -a {} -d {}\n", start(here + " 0"), below.path.back(),
                       fish_quoted(below.description));
  for (std::size_t at = 0; at < command.positionals.size(); ++at) {
    const OptionModel& positional = command.positionals[at];
    if (const auto words = value_words(positional); words != " -x")
      out += fmt::format("{}{} -d {}\n", start(fmt::format("{} {}", here, at)), words,
                         fish_quoted(positional.description));
  }
  for (const OptionModel& option : command.all_options()) {
    std::string names;
    for (const std::string& name : option.names)
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    out += fmt::format("{}{}{} -d {}\n", start(here), names, value_words(option),
                       fish_quoted(option.description));
  }
  return out;
}

}  // namespace

std::string fish_completion(const CommandModel& root, const std::string& program) {
  std::string valued;
  std::string commands;
  std::string lines;
  for (const CommandModel* command : all_commands(root)) {
    if (!command->path.empty()) commands += " " + fish_quoted(command->words());
    for (const OptionModel& option : command->all_options()) {
      if (!option.takes_value()) continue;
      for (const std::string& name : option.names) valued += " " + fish_quoted(command->words() + " " + name);
    }
    lines += lines_of(*command);
  }
  std::string out =
      fmt::format("# Completion of {} for fish.\n\nset -g __@_commands{}\nset -g __@_valued{}\n", program,
                  commands, valued);
  out += replaced(kAt, "PROGRAM", program);
  out += "complete -c @ -f\n" + lines;
  out = replaced(std::move(out), "__@_", "__" + function_name(program) + "_");
  return replaced(std::move(out), "complete -c @ ", "complete -c " + program + " ");
}

}  // namespace ferry::cli
