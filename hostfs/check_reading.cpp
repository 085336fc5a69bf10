// SPDX-License-Identifier: Apache-2.0
#include "hostfs/check_reading.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry {

Result<std::string> read_text(const HostFs& host, const std::filesystem::path& path, std::size_t most) {
  auto content = host.read_attribute(path);
  if (!content) return content;
  if (content->size() > most) {
    return fail(Errc::malformed_host,
                fmt::format("/{}: {}", path.string(), counted(content->size(), "byte")));
  }
  const auto is_control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && c != '\n' && c != '\t') || byte == 0x7f;
  };
  if (std::ranges::any_of(*content, is_control))
    return fail(Errc::malformed_host, fmt::format("/{}: not text", path.string()));
  return content;
}

Result<bool> read_switch(const HostFs& host, const std::filesystem::path& path) {
  const auto content = read_text(host, path);
  if (!content) return fail(content.error());
  if (*content == "Y" || *content == "1") return true;
  if (*content == "N" || *content == "0") return false;
  return fail(Errc::malformed_host,
              fmt::format("/{}: '{}' is neither Y nor N", path.string(), shown(*content)));
}

Result<std::vector<std::string>> names_in(const HostFs& host, const std::filesystem::path& path) {
  auto names = host.list(path);
  if (!names && is_gone(names.error())) return std::vector<std::string>();
  return names;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string out(text.substr(0, kMost));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMost ? out + "..." : out;
}

std::string_view cut(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(" \t"), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace ferry
