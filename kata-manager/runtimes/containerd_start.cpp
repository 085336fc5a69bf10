// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_start.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace ferry::kata {
namespace {

/// The value of a flag, in this word or the next, which is then skipped.
std::optional<std::string> value_of(const std::vector<std::string>& words, std::size_t& at,
                                    std::initializer_list<std::string_view> flags) {
  const std::string_view word = words[at];
  for (const std::string_view flag : flags) {
    if (word == flag && at + 1 < words.size()) return words[++at];
    if (word.size() > flag.size() && word.starts_with(flag) && word[flag.size()] == '=')
      return std::string(word.substr(flag.size() + 1));
  }
  return std::nullopt;
}

std::filesystem::path below_root(const std::string& path) {
  return (std::filesystem::path("/") / path).lexically_normal();
}

}  // namespace

std::optional<CommandWords> command_words(std::string_view exec_start) {
  constexpr std::string_view kBlanks = " \t\r\n";
  constexpr std::string_view kPrefixes = "@-:+!|";  // of the program's path
  constexpr std::string_view kThemselves = "\\\"'";
  CommandWords out;
  std::string word;
  bool in_word = false;
  bool named_apart = false;  // the second word is the program's argv[0]
  char quote = '\0';
  for (std::size_t at = 0; at <= exec_start.size(); ++at) {
    const bool is_end = at == exec_start.size();
    if (is_end && quote != '\0') return std::nullopt;
    const char c = is_end ? ' ' : exec_start[at];
    if (quote == '\0' && kBlanks.find(c) != std::string_view::npos) {
      if (!std::exchange(in_word, false)) continue;
      if (word == ";") break;
      if (out.words.empty()) {
        const auto path = std::min(word.find_first_not_of(kPrefixes), word.size());
        named_apart = word.substr(0, path).find('@') != std::string::npos;
        out.words.push_back(word.substr(path));
      } else if (!std::exchange(named_apart, false)) {
        out.words.push_back(word);
      }
      word.clear();
      continue;
    }
    in_word = true;
    if (c == '\\') {
      if (++at == exec_start.size()) return std::nullopt;
      const char escaped = exec_start[at];
      if (escaped == 's') {
        word += ' ';
      } else if (kThemselves.find(escaped) != std::string_view::npos) {
        word += escaped;
      } else {
        out.open = true;  // a byte by its number, unusual in a path
      }
    } else if (quote != '\0' ? c == quote : c == '"' || c == '\'') {
      quote = quote != '\0' ? '\0' : c;
    } else if (c == '$' || c == '%') {
      word += c;
      // A doubled sign stands for itself.
      if (exec_start.substr(at + 1).starts_with(c)) {
        ++at;
      } else {
        out.open = true;
      }
    } else {
      word += c;
    }
  }
  if (out.words.empty() || out.words.front().empty()) return std::nullopt;
  return out;
}

ContainerdStart containerd_start(const CommandWords& command) {
  ContainerdStart out;
  const std::filesystem::path program = command.words.front();
  if (program.filename() != "containerd") return out;
  out.program = program;
  // The last flag counts. A value with an unresolved sign counts as unknown.
  const auto is_known = [](const std::string& value) {
    return !value.empty() && value.find_first_of("$%") == std::string::npos;
  };
  for (std::size_t at = 1; at < command.words.size(); ++at) {
    if (const auto file = value_of(command.words, at, {"--config", "-config", "-c", "--c"})) {
      out.configuration.reset();
      if (is_known(*file)) out.configuration = below_root(*file);
    } else if (const auto socket = value_of(command.words, at, {"--address", "-address", "-a", "--a"})) {
      out.socket.reset();
      if (is_known(*socket)) out.socket = below_root(*socket);
    }
  }
  return out;
}

}  // namespace ferry::kata
