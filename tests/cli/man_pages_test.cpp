// SPDX-License-Identifier: Apache-2.0
// The manual pages, which are written by hand, held against what the program parses.
#include <algorithm>
#include <cctype>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "common/exit_status.h"
#include "common/spawn.h"
#include "common/unique_fd.h"
#include "tests/cli/written_commands.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using test::lines_of;
using testing::IsEmpty;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::vector<std::filesystem::path> pages() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(FERRY_MAN_PAGES)) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

/// An option or a positional as a page has it or the program: "-f --file VALUE".
std::string signature(std::vector<std::string> names, bool takes_value) {
  std::ranges::sort(names);
  return fmt::format("{}{}", fmt::join(names, " "), takes_value ? " VALUE" : "");
}

/// ".It Fl f , -file Ar FILE"
std::string signature_of_item(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  bool takes_value = false;
  for (std::size_t at = 1; at < words.size() && !takes_value; ++at) {
    takes_value = words[at] == "Ar";
    if (!takes_value && words[at] != "Fl" && words[at] != ",") names.push_back("-" + words[at]);
  }
  return signature(std::move(names), takes_value);
}

/// What the pages say, by command ("vfio bind"; "" is the program): each option with what stands below it.
using Described = std::map<std::string, std::multimap<std::string, std::string>>;

// ".Ss ferry vfio plan, ferry vfio bind": what is listed below is of each of them.
std::vector<std::string> commands_of_heading(const std::string& heading) {
  std::vector<std::string> out;
  std::istringstream parts(heading);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto words = words_of(part);
    if (words.empty() || words.front() != "ferry") return {part + " is no command"};
    out.push_back(fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " ")));
  }
  return out;
}

void read_page(const std::filesystem::path& page, Described& out) {
  std::vector<std::string> commands;
  std::vector<std::string*> below;
  for (const std::string& line : lines_of(page)) {
    const auto words = words_of(line);
    if (line.starts_with(".Sh ") || line.starts_with(".Ss ")) {
      commands.clear();
      below.clear();
      if (line == ".Sh OPTIONS") commands = {""};
      if (line.starts_with(".Ss ")) commands = commands_of_heading(line.substr(4));
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

const Described& described() {
  static const Described all = [] {
    Described out;
    for (const auto& page : pages()) read_page(page, out);
    return out;
  }();
  return all;
}

/// The commands that do something, with the options that are theirs alone. --help is said once, of the
/// program.
std::map<std::string, std::multiset<std::string>> parsed() {
  std::map<std::string, std::multiset<std::string>> out;
  const CommandModel root = ferry_commands();
  for (const CommandModel* command : all_commands(root)) {
    if (!command->path.empty() && !command->commands.empty()) continue;
    auto& options = out[command->words()];
    for (const OptionModel& option : command->options) {
      if (command->path.empty() || option.names.back() != "--help")
        options.insert(signature(option.names, option.takes_value()));
    }
    for ([[maybe_unused]] const OptionModel& positional : command->positionals)
      options.insert(signature({}, true));
  }
  return out;
}

TEST(ManPages, DescribeEachCommandWithEachOptionAndNothingElse) {
  std::map<std::string, std::multiset<std::string>> written;
  for (const auto& [command, options] : described()) {
    auto& names = written[command];
    for (const auto& [option, text] : options) names.insert(option);
  }
  const auto there = parsed();
  ASSERT_GT(there.size(), 20U);
  for (const auto& [command, options] : there) EXPECT_EQ(written[command], options) << "ferry " << command;
  for (const auto& [command, options] : written) EXPECT_TRUE(there.contains(command)) << "ferry " << command;
}

TEST(ManPages, NameEachWordThatAnOptionTakes) {
  const CommandModel root = ferry_commands();
  for (const CommandModel* command : all_commands(root)) {
    for (const auto* some : {&command->options, &command->positionals}) {
      for (const OptionModel& option : *some) {
        if (option.words.empty()) continue;
        const auto& options = described().at(command->words());
        const auto found = options.find(signature(option.names, true));
        ASSERT_NE(found, options.end());
        for (const std::string& word : option.words)
          EXPECT_THAT(found->second, testing::HasSubstr(".Cm " + word))
              << "ferry " << command->words() << " " << found->first;
      }
    }
  }
}

TEST(ManPages, ListTheCommandsInTheFirst) {
  std::multiset<std::string> listed;
  for (const std::string& line : lines_of(FERRY_MAN_PAGES "/ferry.1")) {
    if (!line.starts_with(".It Cm ")) continue;
    auto words = words_of(line);
    words.erase(words.begin(), words.begin() + 2);
    const bool is_below = words.size() > 1 && words[1] != ",";
    const std::string before = is_below ? words.front() + " " : "";
    for (std::size_t at = is_below ? 1 : 0; at < words.size(); ++at)
      if (words[at] != ",") listed.insert(before + words[at]);
  }
  std::multiset<std::string> there;
  for (const auto& [command, options] : parsed())
    if (!command.empty()) there.insert(command);
  EXPECT_EQ(listed, there);
}

TEST(ManPages, NameEachExitStatus) {
  std::set<std::string> named;
  bool inside = false;
  for (const std::string& line : lines_of(FERRY_MAN_PAGES "/ferry.1")) {
    if (line.starts_with(".Sh ")) inside = line == ".Sh EXIT STATUS";
    if (inside && line.starts_with(".It ")) named.insert(line.substr(4));
  }
  std::set<std::string> there;
  for (const ExitStatus status :
       {ExitStatus::done, ExitStatus::failed, ExitStatus::usage, ExitStatus::differs, ExitStatus::refused})
    there.insert(std::to_string(static_cast<int>(status)));
  EXPECT_EQ(named, there);
}

TEST(ManPages, LeadToPagesThatAreThere) {
  for (const auto& page : pages()) {
    EXPECT_EQ(page.extension(), ".1");
    for (const std::string& line : lines_of(page)) {
      if (!line.starts_with(".Xr ")) continue;
      const auto words = words_of(line);
      EXPECT_TRUE(std::filesystem::exists(page.parent_path() / (words.at(1) + "." + words.at(2))))
          << page << ": " << line;
    }
  }
}

TEST(ManPages, ShowCommandsThatAreUnderstood) {
  const CommandModel root = ferry_commands();
  std::size_t seen = 0;
  for (const auto& page : pages()) {
    for (const std::string& line : lines_of(page)) {
      // ".Nm ferry vfio plan" of a synopsis, or a line of an example; not "the program itself, and a comma".
      constexpr std::size_t kCommand = std::string_view(".Nm ferry ").size();
      const bool synopsis = line.size() > kCommand && line.starts_with(".Nm ferry ") &&
                            std::islower(static_cast<unsigned char>(line[kCommand])) != 0;
      for (const auto& words : test::commands_in(synopsis ? line.substr(4) : line)) {
        ++seen;
        EXPECT_THAT(test::problem_with(root, words), IsEmpty()) << page << ": " << line;
      }
    }
  }
  EXPECT_GT(seen, 20U);
}

TEST(ManPages, AreFormattedWithoutAWarning) {
  for (const auto& page : pages()) {
    const test::ScratchDirectory scratch;
    const auto said = scratch.path() / "said";
    scratch.file("said", "");
    const UniqueFd err(::open(said.c_str(), O_WRONLY | O_CLOEXEC));
    const auto child =
        spawn("groff", {"groff", "-mdoc", "-Tutf8", "-ww", "-z", page.string()}, {.err = err.get()});
    ASSERT_TRUE(child) << "groff cannot be started: " << child.error().message;
    EXPECT_EQ(reap(*child), 0) << page;
    EXPECT_THAT(lines_of(said), IsEmpty()) << page;
  }
}

}  // namespace
}  // namespace ferry
