// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/written_manual.h"

#include <algorithm>
#include <cstddef>
#include <fcntl.h>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "tests/cli/written_commands.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::string signature(std::vector<std::string> names, const std::string& value) {
  std::ranges::sort(names);
  return fmt::format("{}{}{}", fmt::join(names, " "), value.empty() ? "" : " ", value);
}

namespace {

/// ".It Fl f , -file Ar FILE"
std::string signature_of_item(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  std::string value;
  for (std::size_t at = 1; at < words.size() && value.empty(); ++at) {
    if (words[at] == "Ar")
      value = at + 1 < words.size() ? words[at + 1] : "";
    else if (words[at] != "Fl" && words[at] != ",")
      names.push_back("-" + words[at]);
  }
  return signature(std::move(names), value);
}

// ".Ss ferry vfio plan, ferry vfio bind": what is listed below is of each of them.
std::vector<std::string> commands_of_heading(const std::string& heading, std::string_view program) {
  const auto ours = words_of(std::string(program));
  std::vector<std::string> out;
  std::istringstream parts(heading);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto words = words_of(part);
    if (words.size() < ours.size() || !std::equal(ours.begin(), ours.end(), words.begin()))
      return {part + " is no command"};
    out.push_back(fmt::format(
        "{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(ours.size()), words.end(), " ")));
  }
  return out;
}

}  // namespace

void read_page(const std::filesystem::path& page, std::string_view program, Described& out) {
  std::vector<std::string> commands;
  std::vector<std::string*> below;
  for (const std::string& line : lines_of(page)) {
    const auto words = words_of(line);
    if (line.starts_with(".Sh ") || line.starts_with(".Ss ")) {
      commands.clear();
      below.clear();
      if (line == ".Sh OPTIONS") commands = {""};
      if (line.starts_with(".Ss ")) commands = commands_of_heading(line.substr(4), program);
      for (const std::string& command : commands) out[command];
    } else if (line.starts_with(".It Fl ") || line.starts_with(".It Ar ")) {
      below.clear();
      for (const std::string& command : commands)
        below.push_back(&out[command].emplace(signature_of_item(words), "")->second);
      if (commands.empty()) ADD_FAILURE() << page << ": below no command: " << line;
    } else {
      for (std::string* text : below) *text += " " + line;
    }
  }
}

std::map<std::string, std::multiset<std::string>> names_in(const Described& described) {
  std::map<std::string, std::multiset<std::string>> out;
  for (const auto& [command, options] : described) {
    auto& names = out[command];
    for (const auto& [option, text] : options) names.insert(option);
  }
  return out;
}

std::map<std::string, std::multiset<std::string>> parsed(const cli::CommandModel& root) {
  std::map<std::string, std::multiset<std::string>> out;
  for (const cli::CommandModel* command : all_commands(root)) {
    if (!command->path.empty() && !command->commands.empty()) continue;
    auto& options = out[path_words(*command)];
    for (const cli::OptionModel& option : command->options) {
      if (command->path.empty() || option.names.back() != "--help")
        options.insert(signature(option.names, option.value));
    }
    for (const cli::OptionModel& positional : command->positionals)
      options.insert(signature({}, positional.value));
  }
  return out;
}

std::vector<std::string> complaints_about(const std::filesystem::path& page) {
  const ScratchDirectory scratch;
  const auto said = scratch.path() / "said";
  scratch.file("said", "");
  const UniqueFd err(::open(said.c_str(), O_WRONLY | O_CLOEXEC));
  const auto child =
      spawn("groff", {"groff", "-mdoc", "-Tutf8", "-ww", "-z", page.string()}, {.err = err.get()});
  if (!child) {
    ADD_FAILURE() << "groff cannot be started: " << child.error().message;
    return {};
  }
  EXPECT_EQ(reap(*child), 0) << page;
  return lines_of(said);
}

}  // namespace ferry::test
