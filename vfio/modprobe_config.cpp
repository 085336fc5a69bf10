// SPDX-License-Identifier: Apache-2.0
#include "vfio/modprobe_config.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/check_reading.h"
#include "common/modprobe_directories.h"

namespace ferry {

std::vector<ModprobeLine> parse_modprobe_config(std::string_view text) {
  std::vector<ModprobeLine> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t first = number;
    std::string line(cut(text, '\n'));
    while (line.ends_with('\\')) {
      line.back() = ' ';
      if (text.empty()) break;
      line += cut(text, '\n');
      ++number;
    }
    const auto words = words_of(line);
    if (words.empty() || words.front().starts_with('#')) continue;
    ModprobeLine found{.where = std::to_string(first), .words = {words.begin(), words.end()}};
    if (found.words.size() > 1) std::ranges::replace(found.words[1], '-', '_');
    lines.push_back(std::move(found));
  }
  return lines;
}

ModprobeConfig read_modprobe_config(const HostFs& host) {
  ModprobeConfig config;
  std::set<std::string> seen;
  for (const std::filesystem::path directory : kModprobeDirectories) {
    const auto names = names_in(host, directory);
    if (!names) {
      config.troubles.push_back(names.error().message);
      continue;
    }
    for (const std::string& name : *names) {
      if (!name.ends_with(".conf") || !seen.insert(name).second) continue;
      const auto text = read_text(host, directory / name);
      if (!text) {
        if (!is_gone(text.error())) config.troubles.push_back(text.error().message);
        continue;
      }
      for (ModprobeLine& line : parse_modprobe_config(*text)) {
        line.where = fmt::format("/{}/{}:{}", directory.string(), name, line.where);
        config.lines.push_back(std::move(line));
      }
    }
  }
  return config;
}

}  // namespace ferry
