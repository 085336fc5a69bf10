// SPDX-License-Identifier: Apache-2.0
// The manual pages, which are written by hand, held against what the program parses.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "common/exit_status.h"
#include "tests/cli/written_commands.h"
#include "tests/cli/written_manual.h"

namespace ferry::cli {
namespace {

using test::lines_of;
using test::words_of;
using testing::IsEmpty;

std::vector<std::filesystem::path> pages() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(FERRY_MAN_PAGES))
    if (entry.path().filename() != "kubectl-ferry.1")
      out.push_back(entry.path());  // kubectl_man_page_test.cpp
  std::ranges::sort(out);
  return out;
}

const test::Described& described() {
  static const test::Described all = [] {
    test::Described out;
    for (const auto& page : pages())
      if (page.extension() == ".8") test::read_page(page, "ferry", out);  // the others describe files
    return out;
  }();
  return all;
}

TEST(ManPages, DescribeEachCommandWithEachOptionAndNothingElse) {
  auto written = test::names_in(described());
  const auto there = test::parsed(ferry_commands());
  ASSERT_GT(there.size(), 20U);
  for (const auto& [command, options] : there) EXPECT_EQ(written[command], options) << "ferry " << command;
  for (const auto& [command, options] : written) EXPECT_TRUE(there.contains(command)) << "ferry " << command;
}

TEST(ManPages, NameEachWordThatAnOptionTakes) {
  const CommandModel root = ferry_commands();
  for (const CommandModel* command : test::all_commands(root)) {
    for (const auto* some : {&command->options, &command->positionals}) {
      for (const OptionModel& option : *some) {
        if (option.words.empty()) continue;
        const auto& options = described().at(test::path_words(*command));
        const auto found = options.find(test::signature(option.names, option.value));
        ASSERT_NE(found, options.end());
        for (const std::string& word : option.words)
          EXPECT_THAT(found->second, testing::HasSubstr(".Cm " + word))
              << "ferry " << test::path_words(*command) << " " << found->first;
      }
    }
  }
}

TEST(ManPages, ListTheCommandsInTheFirst) {
  std::multiset<std::string> listed;
  for (const std::string& line : lines_of(FERRY_MAN_PAGES "/ferry.8")) {
    if (!line.starts_with(".It Cm ")) continue;
    auto words = words_of(line);
    words.erase(words.begin(), words.begin() + 2);
    const bool is_below = words.size() > 1 && words[1] != ",";
    const std::string before = is_below ? words.front() + " " : "";
    for (std::size_t at = is_below ? 1 : 0; at < words.size(); ++at)
      if (words[at] != ",") listed.insert(before + words[at]);
  }
  std::multiset<std::string> there;
  for (const auto& [command, options] : test::parsed(ferry_commands()))
    if (!command.empty()) there.insert(command);
  EXPECT_EQ(listed, there);
}

TEST(ManPages, NameEachExitStatus) {
  std::set<std::string> named;
  bool inside = false;
  for (const std::string& line : lines_of(FERRY_MAN_PAGES "/ferry.8")) {
    if (line.starts_with(".Sh ")) inside = line == ".Sh EXIT STATUS";
    if (inside && line.starts_with(".It ")) named.insert(line.substr(4));
  }
  std::set<std::string> there;
  for (const ExitStatus status :
       {ExitStatus::done, ExitStatus::failed, ExitStatus::usage, ExitStatus::differs, ExitStatus::refused})
    there.insert(std::to_string(static_cast<int>(status)));
  EXPECT_EQ(named, there);
}

// ".Dt FERRY-VFIO 8" in ferry-vfio.8: by the section groff writes "System Manager's Manual" above the page.
TEST(ManPages, HaveTheNameAndTheSectionOfTheirFile) {
  for (const auto& page : pages()) {
    EXPECT_THAT((std::set<std::string>{".5", ".8"}), testing::Contains(page.extension().string())) << page;
    std::string name = page.stem().string();
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    EXPECT_THAT(lines_of(page), testing::Contains(".Dt " + name + " " + page.extension().string().substr(1)))
        << page;
  }
}

TEST(ManPages, LeadToPagesThatAreThere) {
  for (const auto& page : pages()) {
    for (const std::string& line : lines_of(page)) {
      if (!line.starts_with(".Xr ")) continue;
      const auto words = words_of(line);
      if (words.at(1) == "skopeo" || words.at(1) == "sh" || words.at(1) == "awk")
        continue;  // of other packages
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
      // ".Nm ferry vfio plan" of a synopsis, or "$ ferry ..." of an example; not ".Nm ferry ," of a sentence.
      constexpr std::size_t kCommand = std::string_view(".Nm ferry ").size();
      const bool synopsis = line.size() > kCommand && line.starts_with(".Nm ferry ") &&
                            std::islower(static_cast<unsigned char>(line[kCommand])) != 0;
      const bool display = line.starts_with(".Dl $ ");
      if (!synopsis && !display && !line.starts_with("$ ")) continue;
      for (const auto& words : test::commands_in(synopsis || display ? line.substr(4) : line)) {
        ++seen;
        EXPECT_THAT(test::problem_with(root, words), IsEmpty()) << page << ": " << line;
      }
    }
  }
  EXPECT_GT(seen, 20U);
}

/// The command lines of a page's examples, without what only shows the exit status.
std::set<std::string> examples_in(const std::filesystem::path& page) {
  std::set<std::string> out;
  bool inside = false;
  for (std::string line : lines_of(page)) {
    if (line.starts_with(".Sh ")) inside = line == ".Sh EXAMPLES";
    if (line.starts_with(".Dl ")) line.erase(0, 4);
    if (!inside || !line.starts_with("$ ferry ")) continue;
    constexpr std::string_view kStatus = "; echo $?";
    if (line.ends_with(kStatus)) line.erase(line.size() - kStatus.size());
    out.insert(line.substr(2));
  }
  return out;
}

TEST(ManPages, HaveTheExamplesOfTheHelp) {
  std::set<std::string> written;
  for (const auto& page : pages())
    if (page.extension() == ".8") written.merge(examples_in(page));
  std::set<std::string> in_help;
  for (const Example& example : help_frame().examples) in_help.insert(std::string(example.line));
  EXPECT_EQ(written, in_help);
}

TEST(ManPages, AreFormattedWithoutAWarning) {
  for (const auto& page : pages()) EXPECT_THAT(test::complaints_about(page), IsEmpty()) << page;
}

}  // namespace
}  // namespace ferry::cli
