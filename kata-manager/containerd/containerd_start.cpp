// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/containerd/containerd_start.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace ferry::kata {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kPrefixes = "@-:+!|";  // of the program's path

/// Splits a command line into words.
class Words {
 public:
  explicit Words(std::string_view text) : left_(text) {}

  /// False: no word is left, or a quote is unbalanced.
  bool next(std::string& word) {
    skip_blanks();
    word.clear();
    if (left_.empty()) return false;
    for (char quote = '\0'; !left_.empty() || quote != '\0';) {
      if (left_.empty()) return !(broken_ = true);
      const char c = take();
      if (c == '\\') {
        if (!add_escaped(word)) return !(broken_ = true);
      } else if (quote != '\0' ? c == quote : c == '"' || c == '\'') {
        quote = quote != '\0' ? '\0' : c;
      } else if (quote == '\0' && kBlanks.find(c) != std::string_view::npos) {
        return true;
      } else if (c == '$' || c == '%') {
        add_sign(c, word);
      } else {
        word += c;
      }
    }
    return true;
  }

  bool broken() const { return broken_; }
  bool open() const { return open_; }

 private:
  char take() {
    const char c = left_.front();
    left_.remove_prefix(1);
    return c;
  }
  void skip_blanks() {
    const auto first = left_.find_first_not_of(kBlanks);
    left_.remove_prefix(first == std::string_view::npos ? left_.size() : first);
  }
  bool add_escaped(std::string& word) {
    if (left_.empty()) return false;
    constexpr std::string_view kThemselves = "\\\"'";
    const char c = take();
    if (c == 's') {
      word += ' ';
    } else if (kThemselves.find(c) != std::string_view::npos) {
      word += c;
    } else {
      open_ = true;  // a byte by its number, unusual in a path
    }
    return true;
  }
  // A doubled sign stands for itself.
  void add_sign(char sign, std::string& word) {
    word += sign;
    if (!left_.empty() && left_.front() == sign) {
      take();
    } else {
      open_ = true;
    }
  }

  std::string_view left_;
  bool broken_ = false;
  bool open_ = false;
};

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
  Words words(exec_start);
  CommandWords out;
  bool named_apart = false;  // the second word is the program's argv[0]
  for (std::string word; words.next(word);) {
    if (word == ";") break;
    if (out.words.empty()) {
      const auto path = std::min(word.find_first_not_of(kPrefixes), word.size());
      named_apart = word.substr(0, path).find('@') != std::string::npos;
      word.erase(0, path);
    } else if (std::exchange(named_apart, false)) {
      continue;
    }
    out.words.push_back(word);
  }
  if (words.broken() || out.words.empty() || out.words.front().empty()) return std::nullopt;
  out.open = words.open();
  return out;
}

ContainerdStart containerd_start(const CommandWords& command) {
  ContainerdStart out{.program = {}, .configuration = {}, .socket = {}, .open = command.open};
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
