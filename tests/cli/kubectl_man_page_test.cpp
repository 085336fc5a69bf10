// SPDX-License-Identifier: Apache-2.0
// The manual page of kubectl's plugin, which is written by hand, held against what the program parses.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>

#include "kubectl/kubectl_program.h"
#include "tests/cli/written_commands.h"
#include "tests/cli/written_manual.h"

namespace ferry::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path kPage = std::filesystem::path(FERRY_MAN_PAGES) / "kubectl-ferry.1";

test::Described described() {
  test::Described out;
  test::read_page(kPage, "kubectl ferry", out);
  return out;
}

TEST(KubectlManPage, DescribesEachCommandWithEachOptionAndNothingElse) {
  EXPECT_EQ(test::names_in(described()), test::parsed(kubectl::kubectl_commands()));
}

TEST(KubectlManPage, NamesEachWordThatAnOptionTakes) {
  const CommandModel root = kubectl::kubectl_commands();
  std::size_t seen = 0;
  for (const CommandModel* command : test::all_commands(root)) {
    for (const OptionModel& option : command->options) {
      if (option.words.empty()) continue;
      const auto options = described().at(test::path_words(*command));
      const auto found = options.find(test::signature(option.names, option.value));
      ASSERT_NE(found, options.end());
      for (const std::string& word : option.words) EXPECT_THAT(found->second, HasSubstr(".Cm " + word));
      ++seen;
    }
  }
  EXPECT_GT(seen, 0U);
}

TEST(KubectlManPage, ShowsCommandsThatAreUnderstood) {
  const CommandModel root = kubectl::kubectl_commands();
  std::size_t seen = 0;
  for (const std::string& line : test::lines_of(kPage)) {
    for (const test::CommandWords& words : test::commands_in(line, "kubectl")) {
      if (words.empty() || words.front() != "ferry") continue;
      ++seen;
      EXPECT_THAT(test::problem_with(root, {words.begin() + 1, words.end()}), IsEmpty()) << line;
    }
  }
  EXPECT_GT(seen, 2U);
}

TEST(KubectlManPage, IsFormattedWithoutAWarning) {
  EXPECT_THAT(test::complaints_about(kPage), IsEmpty());
}

}  // namespace
}  // namespace ferry::cli
