// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/kernel_options.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "hostfs/kernel_facts.h"

namespace ferry::vfio {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

// The next parameter, with its quotes. Blanks inside quotes do not separate, wherever the quotes stand.
std::string_view next_word(std::string_view& text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  bool quoted = false;
  std::size_t end = 0;
  for (; end < text.size() && (quoted || !is_space(text[end])); ++end)
    if (text[end] == '"') quoted = !quoted;
  const auto word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::string_view unquoted(std::string_view text) {
  if (text.starts_with('"')) {
    text.remove_prefix(1);
    if (text.ends_with('"')) text.remove_suffix(1);
  }
  return text;
}

}  // namespace

bool KernelParameter::lists(std::string_view word) const {
  if (!value) return false;
  std::string_view rest = *value;
  while (!rest.empty())
    if (cut(rest, ',') == word) return true;
  return false;
}

KernelCommandLine KernelCommandLine::parse(std::string_view text) {
  KernelCommandLine line;
  for (;;) {
    const auto word = next_word(text);
    if (word.empty() || word == "--") return line;
    const auto whole = unquoted(word);  // "name=a b" may be quoted as a whole
    const auto equals = whole.find('=');
    KernelParameter parameter{
        .name = std::string(whole.substr(0, equals)), .value = {}, .text = std::string(word)};
    std::ranges::replace(parameter.name, '-', '_');
    if (equals != std::string_view::npos) parameter.value = unquoted(whole.substr(equals + 1));
    line.parameters_.push_back(std::move(parameter));
  }
}

Result<KernelCommandLine> KernelCommandLine::read(const HostFs& host) {
  return read_text(host, "proc/cmdline").map(parse);
}

const KernelParameter* KernelCommandLine::last(std::string_view name) const {
  const KernelParameter* found = nullptr;
  for (const KernelParameter& parameter : parameters_)
    if (parameter.name == name) found = &parameter;
  return found;
}

const KernelParameter* KernelCommandLine::listing(std::string_view name, std::string_view word) const {
  const auto found = std::ranges::find_if(parameters_, [&](const KernelParameter& parameter) {
    return parameter.name == name && parameter.lists(word);
  });
  return found == parameters_.end() ? nullptr : &*found;
}

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
