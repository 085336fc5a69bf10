// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/written_commands.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/completion.h"
#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {
namespace {

// The words of a line; what separates commands is a word of its own.
CommandWords shell_words(const std::string& line) {
  CommandWords out;
  std::string word;
  bool begun = false;
  char quote = 0;
  const auto end = [&] {
    if (begun) out.push_back(std::exchange(word, {}));
    begun = false;
  };
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      begun = true;
    } else if (c == ' ') {
      end();
    } else if (std::string_view("|;&>").find(c) != std::string_view::npos) {
      end();
      out.emplace_back(1, c);
    } else if (c == '#' && !begun) {
      break;
    } else {
      word += c;
      begun = true;
    }
  }
  end();
  return out;
}

}  // namespace

std::vector<const cli::CommandModel*> all_commands(const cli::CommandModel& root) {
  std::vector<const cli::CommandModel*> out = {&root};
  for (const cli::CommandModel& command : root.commands) {
    const auto below = all_commands(command);
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

std::string path_words(const cli::CommandModel& command) {
  return fmt::format("{}", fmt::join(command.path, " "));
}

std::vector<cli::OptionModel> taken_options(const cli::CommandModel& root, const cli::CommandModel& command) {
  std::vector<cli::OptionModel> out = command.options;
  const cli::CommandModel* above = &root;
  for (const std::string& word : command.path) {
    for (const cli::OptionModel& option : above->options)
      if (option.names.back() != "--help" && option.names.back() != "--version") out.push_back(option);
    above = &*std::ranges::find_if(
        above->commands, [&word](const cli::CommandModel& below) { return below.path.back() == word; });
  }
  return out;
}

std::vector<CommandWords> commands_in(const std::string& line, const std::string& program) {
  std::vector<CommandWords> out;
  const CommandWords words = shell_words(line);
  bool starts = true;  // a command starts here
  bool ours = false;
  for (const std::string& word : words) {
    if (word.size() == 1 && std::string_view("|;&>").find(word[0]) != std::string_view::npos) {
      starts = word != ">";
      ours = false;
    } else if (starts && (word == "sudo" || word == "$")) {
      continue;
    } else if (starts) {
      starts = false;
      ours = word == program;
      if (ours) out.emplace_back();
    } else if (ours) {
      out.back().push_back(word);
    }
  }
  return out;
}

std::string problem_with(const cli::CommandModel& root, const CommandWords& words) {
  const cli::CommandModel* at = &root;
  bool asks_for_help = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with('-') && word != "-") {
      const std::string name = word.substr(0, word.find('='));
      const auto options = taken_options(root, *at);
      const auto option = std::ranges::find_if(options, [&name](const cli::OptionModel& one) {
        return std::ranges::find(one.names, name) != one.names.end();
      });
      if (option == options.end()) return fmt::format("'{}' has no option {}", path_words(*at), name);
      asks_for_help = asks_for_help || name == "--help" || name == "--version";
      const bool apart = !option->value.empty() && name == word;
      if (apart && ++i == words.size()) return fmt::format("{} has no value", name);
      if (option->value.empty() && name != word) return fmt::format("{} takes no value", name);
      continue;
    }
    const auto below = std::ranges::find_if(at->commands, [&word](const cli::CommandModel& command) {
      const auto names = command.names();
      return std::ranges::find(names, word) != names.end();
    });
    if (below != at->commands.end())
      at = &*below;
    else if (at->positionals.empty())
      return fmt::format("'{}' takes no '{}'", path_words(*at), word);
  }
  if (!at->commands.empty() && !asks_for_help) return fmt::format("'{}' needs a command", path_words(*at));
  return {};
}

std::vector<std::string> faults_of(const std::string& text) {
  static const std::regex code("`[^`]*`");
  static const std::regex end(R"re(\n|[.!?][)"]?\s+(?=[A-Z"(]))re");
  static const std::regex banned(
      R"re(\b(shall|given away|(is|are|be) (told|said)|of ours|nobody|somebody|likewise|beside)\b)re",
      std::regex::icase);
  constexpr std::ptrdiff_t kMostWords = 35;
  std::vector<std::string> out;
  const std::string plain = std::regex_replace(text, code, "CODE");
  for (std::sregex_token_iterator sentence(plain.begin(), plain.end(), end, -1), none; sentence != none;
       ++sentence) {
    const std::string one = sentence->str();
    std::smatch word;
    if (std::regex_search(one, word, banned)) out.push_back(fmt::format("'{}' in: {}", word.str(), one));
    std::istringstream in(one);
    const auto words = std::distance(std::istream_iterator<std::string>(in), {});
    if (words > kMostWords) out.push_back(fmt::format("{} words: {}", words, one));
  }
  return out;
}

std::vector<std::string> faults_of_help(const cli::CommandModel& root) {
  std::vector<std::string> out;
  const auto add = [&out](const std::string& text) {
    for (std::string& fault : faults_of(text)) out.push_back(std::move(fault));
  };
  for (const cli::CommandModel* command : all_commands(root)) {
    add(command->description);
    add(command->notes);
    for (const auto* some : {&command->options, &command->positionals})
      for (const cli::OptionModel& option : *some) add(option.description);
  }
  return out;
}

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::vector<std::string> completed(const cli::CommandModel& root, const std::vector<std::string>& words) {
  const ScratchDirectory scratch;
  scratch.file("program", cli::completion_program(root));
  std::vector<std::string> all = {"sh", (scratch.path() / "program").string()};
  all.insert(all.end(), words.begin(), words.end());
  const UniqueFd out(::open((scratch.path() / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto child = spawn("sh", all, {.out = out.get()});
  if (!child || reap(*child) != 0) return {"it failed"};
  auto lines = lines_of(scratch.path() / "out");
  for (std::string& line : lines) line.erase(std::min(line.find('\t'), line.size()));
  return lines;
}

}  // namespace ferry::test
