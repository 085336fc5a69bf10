// SPDX-License-Identifier: Apache-2.0
#include "kubectl/masked_text.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <cstddef>
#include <netinet/in.h>
#include <vector>

#include "common/text/text.h"

namespace ferry::kubectl {
namespace {

constexpr std::string_view kMask = "***";
constexpr std::size_t kLongestLine = 4096;

/// Characters of a key's name, as "--metrics-token" and "spec.password".
bool is_of_name(char c) {
  return is_alphanumeric(c) || c == '_' || c == '-' || c == '.';
}
bool is_space(char c) {
  return c == ' ' || c == '\t';
}
bool is_quote(char c) {
  return c == '"' || c == '\'' || c == '`';
}
bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

/// The length of a quote at `at` with the backslashes that a JSON log puts before it; 0: no quote.
std::size_t length_of_quote(std::string_view line, std::size_t at) {
  std::size_t end = at;
  while (end < line.size() && line[end] == '\\') ++end;
  return end < line.size() && is_quote(line[end]) ? end - at + 1 : 0;
}

/// The end of a word: the next space or quote, or the punctuation right before one.
std::size_t end_of_word(std::string_view line, std::size_t at) {
  // A sentence or a list goes on after these. A password may have them, too.
  constexpr std::string_view kClosing = ",;)}]>";
  const auto ends = [&](std::size_t i) {
    return i >= line.size() || is_space(line[i]) || length_of_quote(line, i) > 0;
  };
  for (; !ends(at); ++at) {
    const std::size_t behind = std::min(line.find_first_not_of(kClosing, at), line.size());
    if (behind > at && ends(behind)) break;
  }
  return at;
}

/// The end of the text that a quote of `length` opened at `at`. A quote with more backslashes is inside it.
std::size_t end_of_quoted(std::string_view line, std::size_t at, std::size_t length) {
  const char quote = line[at + length - 1];
  for (std::size_t i = at + length; i < line.size(); ++i) {
    const auto found = length_of_quote(line, i);
    if (found == 0) continue;
    if (found <= length && line[i + found - 1] == quote) return i;
    i += found - 1;
  }
  return line.size();
}

/// The end of the list or map that opens at `at`.
std::size_t end_of_nested(std::string_view line, std::size_t at) {
  int depth = 0;
  for (; at < line.size(); ++at) {
    if (line[at] == '[' || line[at] == '{') ++depth;
    if ((line[at] == ']' || line[at] == '}') && --depth == 0) return at + 1;
  }
  return at;
}

/// Masks [from, to) and returns the position after the mask.
std::size_t put_mask(std::string& line, std::size_t from, std::size_t to) {
  if (from == to) return to;
  line.replace(from, to - from, kMask);
  return from + kMask.size();
}

void mask_behind_schemes(std::string& line) {
  for (const std::string_view scheme : {"bearer ", "basic "}) {
    // Each search begins anew, since a mask changes the length of the line.
    for (auto at = lower(line).find(scheme); at != std::string::npos; at = lower(line).find(scheme, at)) {
      at += scheme.size();
      while (at < line.size() && is_space(line[at])) ++at;
      at = put_mask(line, at, end_of_word(line, at));
    }
  }
}

void mask_in_urls(std::string& line) {
  constexpr std::string_view kBegin = "://";
  for (auto at = line.find(kBegin); at != std::string::npos; at = line.find(kBegin, at)) {
    at += kBegin.size();
    const auto end = std::min(line.find_first_of(" \t\"'`<>\\", at), line.size());
    auto user_limit = std::min(line.find_first_of("/?#", at), end);
    // A host's colon precedes digits. Other text after it is a password with one of "/?#" in it.
    const auto colon = line.find(':', at);
    if (colon < user_limit && line[at] != '[' && line.find_first_not_of("0123456789", colon + 1) < user_limit)
      user_limit = end;
    if (const auto user_end = line.substr(0, user_limit).rfind('@');
        user_end != std::string::npos && user_end >= at) {
      at = put_mask(line, at, user_end);
    }
    const auto ends = std::min(line.find_first_of(" \t\"'`<>\\", at), line.size());
    if (const auto query = line.find('?', at); query < ends) at = put_mask(line, query + 1, ends);
  }
}

bool names_a_secret(std::string_view name) {
  constexpr std::array<std::string_view, 13> kWords = {
      "passw",   "passphrase",    "secret",  "token",  "credential", "apikey", "api_key",
      "api-key", "authorization", "private", "cookie", "signature",  "pwd"};
  constexpr std::array<std::string_view, 3> kEnds = {"auth", "key", "pass"};
  return std::ranges::any_of(kWords, [&](auto word) { return name.find(word) != std::string_view::npos; }) ||
         std::ranges::any_of(kEnds, [&](auto end) { return name.ends_with(end); });
}

/// Masks values of `KEY=VALUE`, `KEY: VALUE`, `"KEY":"VALUE"`, `\"KEY\":\"VALUE\"` and `"KEY":["VALUE"]`.
void mask_values(std::string& line) {
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '=' && line[at] != ':') continue;
    std::size_t end = at;
    while (end > 0 && is_space(line[end - 1])) --end;
    if (end > 0 && is_quote(line[end - 1])) --end;
    while (end > 0 && line[end - 1] == '\\') --end;
    std::size_t begin = end;
    while (begin > 0 && is_of_name(line[begin - 1])) --begin;
    const std::string name = lower(std::string_view(line).substr(begin, end - begin));
    if (!names_a_secret(name)) continue;
    std::size_t value = at + 1;
    while (value < line.size() && is_space(line[value])) ++value;
    if (value == line.size()) return;
    if (const auto quote = length_of_quote(line, value); quote > 0) {
      at = put_mask(line, value + quote, end_of_quoted(line, value, quote));
    } else if (line[value] == '[' || line[value] == '{') {
      at = put_mask(line, value, end_of_nested(line, value)) - 1;
    } else {
      // The value of such a header has several words: "Authorization: Token abc".
      const bool is_header = name.ends_with("authorization") || name.ends_with("cookie");
      at = put_mask(line, value, is_header ? line.size() : end_of_word(line, value)) - 1;
    }
  }
}

}  // namespace

bool is_secret_option(std::string_view argument) {
  return argument.starts_with("--") && argument.find('=') == std::string_view::npos &&
         names_a_secret(lower(argument));
}

namespace {

/// Masks the value of `--password VALUE`. A next word that begins with "-" is an option.
void mask_behind_options(std::string& line) {
  constexpr std::string_view kBegin = "--";
  for (auto at = line.find(kBegin); at != std::string::npos; at = line.find(kBegin, at)) {
    const bool is_word = at == 0 || !is_of_name(line[at - 1]);
    at += kBegin.size();
    std::size_t end = at;
    while (end < line.size() && is_of_name(line[end])) ++end;
    const std::string name = lower(std::string_view(line).substr(at, end - at));
    at = end;
    if (!is_word || !names_a_secret(name)) continue;
    while (end < line.size() && is_space(line[end])) ++end;
    if (end == at || end == line.size() || line[end] == '-') continue;
    // The words are a command line's complaint about the option.
    const std::string_view value = std::string_view(line).substr(end);
    if (value.starts_with("requires ") || value.starts_with("excludes ")) continue;
    if (const auto quote = length_of_quote(line, end); quote > 0) {
      at = put_mask(line, end + quote, end_of_quoted(line, end, quote));
    } else {
      at = put_mask(line, end, end_of_word(line, end));
    }
  }
}

/// True: two letters in three precede a character of another kind, as in base64. Paths do not mix so, nor do
/// digests and UUIDs, which are lower case.
bool is_like_base64(std::string_view word) {
  // A character of the same kind stands for each kind.
  const auto kind_of = [](char c) {
    if (is_digit(c)) return '0';
    if (!is_letter(c)) return '/';
    return is_lower(c) ? 'a' : 'A';
  };
  std::size_t changes = 0;
  char before = '/';
  for (const char c : word) {
    const char kind = kind_of(c);
    if (kind != before) ++changes;
    before = kind;
  }
  const auto lower = static_cast<std::size_t>(std::ranges::count_if(word, is_lower));
  const auto upper = static_cast<std::size_t>(std::ranges::count_if(word, is_upper));
  return 5 * changes >= 2 * word.size() && 7 * lower >= word.size() && 7 * upper >= word.size();
}

constexpr std::size_t kShortestKey = 40;

/// True: a token that its issuer marks by a prefix.
bool has_prefix_of_a_token(std::string_view word) {
  constexpr std::size_t kShortest = 20;
  constexpr std::array<std::string_view, 22> kPrefixes = {
      "AKIA",   "ASIA",        "AIza",      "glpat-",   "ghp_",     "gho_",    "ghu_",     "ghs_",
      "ghr_",   "github_pat_", "dckr_pat_", "hf_",      "xoxb-",    "xoxp-",   "sk-proj-", "sk-ant-",
      "sk-or-", "sk-svcacct-", "sk-admin-", "sk_live_", "sk_test_", "rk_live_"};
  if (word.size() < kShortest) return false;
  // Pod names may begin with "sk-", but have neither upper case nor "_".
  const auto is_of_no_pod = [](char c) { return is_upper(c) || c == '_'; };
  return std::ranges::any_of(kPrefixes, [&](auto prefix) { return word.starts_with(prefix); }) ||
         (word.starts_with("sk-") && std::ranges::any_of(word, is_of_no_pod));
}

/// True: a word is as long and mixed as only keys are. Digests are lower case, and identify an image.
bool is_like_a_key(std::string_view word) {
  if (word.starts_with("eyJ") && std::ranges::count(word, '.') == 2) return true;
  if (has_prefix_of_a_token(word)) return true;
  return word.size() >= kShortestKey && std::ranges::any_of(word, is_digit) &&
         std::ranges::any_of(word, is_lower) && std::ranges::any_of(word, is_upper);
}

/// The end of the run of characters from `at` on that fit.
template <class Fits>
std::size_t end_of_run(std::string_view line, std::size_t at, Fits fits) {
  while (at < line.size() && fits(line[at])) ++at;
  return at;
}

void mask_keys(std::string& line) {
  const auto of_key = [](char c) { return is_of_name(c) || c == '+'; };
  const auto of_base64 = [&](char c) { return of_key(c) || c == '/'; };
  const auto is_padding = [](char c) { return c == '='; };
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (!of_base64(line[at])) continue;
    // "=" is padding at the end of base64. Elsewhere it follows a name.
    const auto end = end_of_run(line, at, of_base64);
    const auto word = std::string_view(line).substr(at, end - at);
    if (word.size() >= kShortestKey && is_like_base64(word)) {
      at = put_mask(line, at, end_of_run(line, end, is_padding)) - 1;
      continue;
    }
    const auto piece_end = end_of_run(line, at, of_key);
    const auto piece = std::string_view(line).substr(at, piece_end - at);
    at = is_like_a_key(piece) ? put_mask(line, at, end_of_run(line, piece_end, is_padding)) : piece_end;
    // The rest of a path was already judged as a whole, so only its parts are judged here.
    while (at < line.size() && line[at] == '/') {
      const auto next = at + 1;
      const auto next_end = end_of_run(line, next, of_key);
      const auto part = std::string_view(line).substr(next, next_end - next);
      at = is_like_a_key(part) ? put_mask(line, next, end_of_run(line, next_end, is_padding)) : next_end;
    }
    --at;
  }
}

/// The length of a leading "10.0.0.1"; 0: none leads. "95.02.66.00.15" and "580.159.04" are versions.
std::size_t length_of_ipv4(std::string_view text) {
  auto length = end_of_run(text, 0, [](char c) { return is_digit(c) || c == '.'; });
  if (length < text.size() && (is_letter(text[length]) || text[length] == '_')) return 0;
  while (length > 0 && text[length - 1] == '.') --length;
  in_addr out{};
  return inet_pton(AF_INET, std::string(text.substr(0, length)).c_str(), &out) == 1 ? length : 0;
}

/// The length of a leading "fe80::1"; 0: none leads. PCI addresses and times have too few parts.
std::size_t length_of_ipv6(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  text = text.substr(0, kLongest);
  auto length = end_of_run(text, 0, [](char c) { return is_hex(c) || c == ':' || c == '.'; });
  if (length < text.size() && is_of_name(text[length]) && text[length] != '-') return 0;
  const auto is_address = [&] {
    in6_addr out{};
    // "::" alone is no machine's address.
    return length > 2 && inet_pton(AF_INET6, std::string(text.substr(0, length)).c_str(), &out) == 1;
  };
  while (length > 0 && text[length - 1] == '.') --length;
  if (is_address()) return length;
  while (length > 0 && text[length - 1] == ':') --length;
  return is_address() ? length : 0;
}

/// The length of a leading "52:54:00:12:34:56", also with "-" between; 0: none leads.
std::size_t length_of_mac(std::string_view text) {
  constexpr std::size_t kLength = 17;
  if (text.size() < kLength || (text[2] != ':' && text[2] != '-')) return 0;
  for (std::size_t i = 0; i < kLength; ++i)
    if (i % 3 == 2 ? text[i] != text[2] : !is_hex(text[i])) return 0;
  // Text that goes on makes it part of a longer row of pairs, or of a word.
  const std::string_view behind = text.substr(kLength);
  if (behind.empty()) return kLength;
  if (behind[0] == ':' || behind[0] == '.') return behind.size() > 1 && is_hex(behind[1]) ? 0 : kLength;
  return is_of_name(behind[0]) ? 0 : kLength;
}

/// True: a pair of hexadecimal digits that is a word of its own precedes `at`, as "01:".
bool is_behind_a_pair(std::string_view line, std::size_t at) {
  if (at < 3 || (line[at - 1] != ':' && line[at - 1] != '-')) return false;
  return is_hex(line[at - 2]) && is_hex(line[at - 3]) &&
         (at == 3 || !is_of_name(line[at - 4]) || line[at - 4] == '-');
}

void mask_addresses(std::string& line) {
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char before = at == 0 ? ' ' : line[at - 1];
    if (is_of_name(before) && before != '-') continue;
    const std::string_view rest = std::string_view(line).substr(at);
    // A longer row of pairs has no MAC address in its middle.
    if (const auto mac = is_behind_a_pair(line, at) ? 0 : length_of_mac(rest); mac > 0) {
      at = put_mask(line, at, at + mac) - 1;
    } else if (const auto number = length_of_ipv4(rest); number > 0) {
      at = put_mask(line, at, at + number) - 1;
    } else if (const auto length = length_of_ipv6(rest); length > 0) {
      at = put_mask(line, at, at + length) - 1;
    }
  }
}

/// True: a line inside a PEM block, which is base64 or a header of an encrypted key.
bool is_of_pem(std::string_view line) {
  while (!line.empty() && (is_space(line.back()) || line.back() == '\r')) line.remove_suffix(1);
  while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
  return line.starts_with("Proc-Type:") || line.starts_with("DEK-Info:") ||
         std::ranges::all_of(line,
                             [](char c) { return is_alphanumeric(c) || c == '+' || c == '/' || c == '='; });
}

/// True for each line of a PEM block. Its end identifies a block whose beginning is cut off. A line that only
/// mentions such a block hides no others.
std::vector<bool> lines_of_pem(const std::vector<std::string_view>& lines) {
  constexpr std::size_t kMostLines = 200;
  constexpr std::string_view kBegin = "-----BEGIN ";
  constexpr std::string_view kEnd = "-----END ";
  const auto has = [&](std::size_t at, std::string_view what) {
    return lines[at].find(what) != std::string_view::npos;
  };
  std::vector<bool> out(lines.size(), false);
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (has(at, kEnd)) {
      out[at] = true;
      if (has(at, kBegin)) continue;
      for (std::size_t i = at; i > 0 && at - i < kMostLines && !out[i - 1] && is_of_pem(lines[i - 1]); --i)
        out[i - 1] = true;
    } else if (has(at, kBegin)) {
      out[at] = true;
      for (std::size_t i = at + 1; i < lines.size() && i - at <= kMostLines && is_of_pem(lines[i]); ++i)
        out[i] = true;
    }
  }
  return out;
}

}  // namespace

std::string masked_text(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }

  const auto hidden = lines_of_pem(lines);
  std::string out;
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (at > 0) out += '\n';
    // A block in a single line hides all of that line.
    if (hidden[at]) {
      out += kMask;
      continue;
    }
    std::string line(lines[at].substr(0, kLongestLine));
    if (lines[at].size() > kLongestLine) line += " (cut)";
    mask_behind_schemes(line);
    mask_in_urls(line);
    mask_values(line);
    mask_behind_options(line);
    mask_keys(line);
    mask_addresses(line);
    out += line;
  }
  return out;
}

}  // namespace ferry::kubectl
