// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <utility>

#include "host/usage/use_probes.h"
#include "hostfs/check_reading.h"

namespace ferry::host {
namespace {

// The next field of a line whose columns are padded with blanks.
std::string_view next_field(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const auto end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

// Blanks and backslashes are written as \ooo.
std::string unescaped(std::string_view text) {
  constexpr std::size_t kEscape = 4;
  std::string out;
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  while (!text.empty()) {
    if (text.size() >= kEscape && text[0] == '\\' && std::ranges::all_of(text.substr(1, 3), octal)) {
      out += static_cast<char>((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
      text.remove_prefix(kEscape);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace

// "36 35 8:17 / /media/disk rw,noatime shared:1 - ext4 /dev/sdb1 rw": any number of optional fields precede
// the dash.
std::vector<Mount> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    std::string_view line = cut(text, '\n');
    next_field(line);
    next_field(line);
    Mount mount;
    mount.number = next_field(line);
    next_field(line);
    mount.point = unescaped(next_field(line));
    while (!line.empty() && next_field(line) != "-") {
    }
    next_field(line);  // the file system's type
    mount.source = unescaped(next_field(line));
    if (!mount.source.empty()) mounts.push_back(std::move(mount));
  }
  return mounts;
}

// "/dev/sdb2 partition	8388604		0		-2" with many blanks, below a header line.
std::vector<std::string> parse_swaps(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    std::string_view line = cut(text, '\n');
    const std::string_view path = next_field(line);
    if (path.starts_with('/')) paths.push_back(unescaped(path));
  }
  return paths;
}

}  // namespace ferry::host
