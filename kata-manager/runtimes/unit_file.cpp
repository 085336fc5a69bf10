// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/unit_file.h"

#include <array>
#include <map>
#include <sstream>

#include "common/text/text.h"

namespace ferry::kata {
namespace {

// The first folder with a file of the name counts.
constexpr std::array kFolders = {"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system",
                                 "usr/lib/systemd/system", "lib/systemd/system"};

/// Reads the next line, and the lines that a backslash joins to it. Comments among those are skipped, as
/// systemd does.
bool next_line(std::istream& lines, std::string& line) {
  if (!std::getline(lines, line)) return false;
  const auto is_comment = [](std::string_view text) {
    return text.starts_with('#') || text.starts_with(';');
  };
  if (is_comment(trimmed(line))) return true;
  for (std::string more; line.ends_with('\\') && std::getline(lines, more);) {
    if (is_comment(trimmed(more))) continue;
    line.back() = ' ';
    line += more;
  }
  return true;
}

}  // namespace

std::optional<UnitFile> UnitFile::read(const HostFs& host, const std::string& unit) {
  std::vector<std::string> texts;
  for (const char* folder : kFolders) {
    const auto text = host.read_file(std::filesystem::path(folder) / unit);
    if (!text) continue;
    if (text->empty()) return std::nullopt;  // masked: a link to /dev/null, or an empty file
    texts.push_back(*text);
    break;
  }
  if (texts.empty()) return std::nullopt;
  std::map<std::string, std::string> drop_ins;
  for (const char* folder : kFolders) {
    const auto directory = std::filesystem::path(folder) / (unit + ".d");
    for (const std::string& name : host.list(directory).value_or(std::vector<std::string>())) {
      if (!name.ends_with(".conf") || drop_ins.contains(name)) continue;
      drop_ins.emplace(name, host.read_file(directory / name).value_or(""));
    }
  }
  for (auto& [name, text] : drop_ins) texts.push_back(std::move(text));
  return UnitFile(std::move(texts));
}

std::optional<std::string> UnitFile::value(std::string_view section, std::string_view key) const {
  std::optional<std::string> out;
  for (const std::string& text : texts_) {
    std::istringstream lines(text);
    bool inside = false;
    for (std::string line; next_line(lines, line);) {
      const std::string_view said = trimmed(line);
      if (said.starts_with('[')) inside = said == "[" + std::string(section) + "]";
      const auto sign = said.find('=');
      if (!inside || sign == std::string_view::npos || said.starts_with('#') || said.starts_with(';'))
        continue;
      if (trimmed(said.substr(0, sign)) != key) continue;
      const auto value = trimmed(said.substr(sign + 1));
      out.reset();
      if (!value.empty()) out = value;
    }
  }
  return out;
}

}  // namespace ferry::kata
