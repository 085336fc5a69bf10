// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/modprobe_config.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "hostfs/modprobe_directories.h"

namespace ferry::vfio {

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

std::string hint_of_blocked_module(const HostFs& host, std::string_view module) {
  for (const ModprobeLine& line : read_modprobe_config(host).lines) {
    if (line.words.size() < 3 || line.words[0] != "install") continue;
    const std::string& name = line.words[1];
    if (name != module && name != "vfio" && name != "vfio_pci_core" && name != "vfio_iommu_type1") continue;
    const std::string_view command = line.words[2];
    const std::string_view program = command.substr(command.find_last_of('/') + 1);  // npos + 1 is 0
    if (program != "false" && program != "true") continue;
    return fmt::format("{} runs {} in place of loading {}: take that line out, also of the initramfs",
                       line.where, shown(line.words[2]), shown(name));
  }
  return {};
}

}  // namespace ferry::vfio
