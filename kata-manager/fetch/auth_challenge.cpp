// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/auth_challenge.h"

#include <algorithm>
#include <optional>

namespace ferry::kata {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}
bool is_token(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return text_.empty(); }
  void skip_blanks() {
    while (!text_.empty() && is_blank(text_.front())) text_.remove_prefix(1);
  }
  void skip_commas() {
    while (!text_.empty() && (is_blank(text_.front()) || text_.front() == ',')) text_.remove_prefix(1);
  }
  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string token() {
    std::size_t size = 0;
    while (size < text_.size() && is_token(text_[size])) ++size;
    std::string out(text_.substr(0, size));
    text_.remove_prefix(size);
    return out;
  }
  std::optional<std::string> value() {
    if (!take('"')) {
      auto word = token();
      return word.empty() ? std::nullopt : std::optional(std::move(word));
    }
    std::string out;
    while (!text_.empty()) {
      char c = text_.front();
      text_.remove_prefix(1);
      if (c == '"') return out;
      if (c == '\\') {
        if (text_.empty()) break;
        c = text_.front();
        text_.remove_prefix(1);
      }
      out.push_back(c);
    }
    return std::nullopt;  // the quote does not end
  }

 private:
  std::string_view text_;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

}  // namespace

std::vector<AuthChallenge> parse_auth_challenges(std::string_view header) {
  std::vector<AuthChallenge> out;
  Reader reader(header);
  for (reader.skip_commas(); !reader.at_end(); reader.skip_commas()) {
    std::string word = reader.token();
    if (word.empty()) return out;
    reader.skip_blanks();
    // A word before '=' is a parameter of the current challenge; any other word begins a challenge.
    if (!reader.take('=')) {
      out.push_back({.scheme = lower(std::move(word)), .parameters = {}});
      continue;
    }
    reader.skip_blanks();
    auto value = reader.value();
    if (!value || out.empty()) return out;
    out.back().parameters.emplace(lower(std::move(word)), std::move(*value));
  }
  return out;
}

}  // namespace ferry::kata
