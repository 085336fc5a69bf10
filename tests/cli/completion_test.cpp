// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completion.h"

#include <fcntl.h>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// Runs `script` with a shell: what it says, its errors among it.
std::vector<std::string> run_shell(const std::string& shell, const std::string& option,
                                   const std::string& script) {
  const test::ScratchDirectory scratch;
  scratch.file("script", script);
  const auto out = scratch.path() / "out";
  const UniqueFd file(::open(out.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto child = spawn(shell, {shell, option, (scratch.path() / "script").string()},
                           {.out = file.get(), .err = file.get()});
  if (!child) return {child.error().message};
  std::vector<std::string> said;
  if (const int status = reap(*child); status != 0) said = {fmt::format("{} ended with {}", shell, status)};
  for (std::string& line : lines_of(out)) said.push_back(std::move(line));
  return said;
}

bool is_installed(const std::string& shell) {
  const auto child = spawn("sh", {"sh", "-c", "command -v " + shell + " > /dev/null"}, {});
  return child && reap(*child) == 0;
}

using Words = std::vector<std::string>;

struct Completed {
  std::string name;
  Words words;  ///< behind the program's name; the last is the one that the user types
  Words expected;
};
void PrintTo(const Completed& row, std::ostream* out) {
  *out << row.name;
}

class CompletedWord : public testing::TestWithParam<Completed> {};

TEST_P(CompletedWord, IsOneThatMayStandThere) {
  EXPECT_EQ(test::completed(ferry_commands(), GetParam().words), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Table, CompletedWord,
    testing::Values(
        Completed{"AVerb", {"s"}, {"status", "sanitize", ":4"}},
        Completed{"AVerbBelowAnother", {"vfio", ""}, {"plan", "bind", "unbind", "restore", ":4"}},
        Completed{"AVerbBehindAnOptionWithAValue", {"--host-root", "vfio", "st"}, {"status", ":4"}},
        Completed{"AVerbBehindAnOptionWithAValueInOne", {"--output=json", "st"}, {"status", ":4"}},
        Completed{"AVerbBehindAFlag", {"--help", "vfi"}, {"vfio", ":4"}},
        Completed{"AnOption", {"vfio", "bind", "--de"}, {"--device", ":4"}},
        Completed{"AnOptionOfTheVerbAlone", {"vfio", "unbind", "--rel"}, {":4"}},
        Completed{"AnOptionOfTheProgram", {"vfio", "bind", "--log"}, {"--log-level", "--log-format", ":4"}},
        Completed{"AnOptionOfTheAgents", {"agent", "--drain"}, {"--drain", "--drain-timeout", ":4"}},
        Completed{"AnOptionWhereNothingElseStands",
                  {"vfio", "restore", ""},
                  {"-h", "--help", "--dry-run", "--explain", "--all", "--device", "--group", "--vendor",
                   "--class", "--model", "--numa", "--with", "--host-root", "-o", "--output", "--color",
                   "--log-level", "--log-format", ":4"}},
        Completed{"AnOptionBehindTheLastPositional",
                  {"completion", "bash", ""},
                  {"-h", "--help", "--host-root", "-o", "--output", "--color", "--log-level", "--log-format",
                   ":4"}},
        Completed{"AValue", {"status", "-o", ""}, {"json", "table", "wide", "yaml", ":4"}},
        Completed{"AValueThatHasBegun", {"plugin", "--mode", "k"}, {"kubevirt", "kata", ":4"}},
        Completed{"AValueThatIsOnlySuggested", {"--log-level", "e"}, {"error", ":4"}},
        Completed{"AValueBehindASign", {"plugin", "--vgpu-placement="}, {"pack", "spread", ":4"}},
        Completed{"AValueBehindASignOfItsOwn", {"plugin", "--mode", "=", "b"}, {"both", ":4"}},
        Completed{"AVerbBehindASignOfItsOwn", {"--output", "=", "json", "st"}, {"status", ":4"}},
        Completed{"AValueBehindASignThatHasBegun", {"plugin", "--mode=b"}, {"both", ":4"}},
        Completed{"AValueOfAnyText", {"vfio", "bind", "--device", ""}, {":4"}},
        Completed{"AFile", {"apply", "-f", "po"}, {":0"}}, Completed{"AFolder", {"--host-root", ""}, {":16"}},
        Completed{"APositional", {"completion", ""}, {"bash", "zsh", "fish", ":4"}},
        Completed{"AnOptionBehindAPositional", {"completion", "bash", "--he"}, {"--help", ":4"}},
        Completed{"NothingElseForAPositional", {"explain", "--log-format", "js"}, {"json", ":4"}},
        Completed{"NoVerb", {"nonsense"}, {":4"}}),
    [](const auto& row) { return row.param.name; });

/// A shell with its script, in which the function of the words keeps its arguments and prints an answer.
class CompletionScript : public testing::Test {
 protected:
  /// The lines that the shell prints, its errors among them. `before` stands before the script. Without an
  /// answer the function is the script's own.
  Words run(const std::string& shell, const std::optional<std::string>& answer, const std::string& commands,
            const std::string& before = {}) {
    const bool is_fish = shell == "fish";
    std::string script = before + completion_script(ferry_commands(), shell);
    if (answer) {
      scratch_.file("answer", *answer);
      const std::string body =
          fmt::format("printf \"<%s>\" \"$@\" > {0}/asked\ncat {0}/answer\n", scratch_.path().string());
      script += is_fish ? fmt::format("set -g __ferry_words '{}'\n", body)
                        : fmt::format("_ferry_words() {{\n{}}}\n", body);
    }
    return run_shell(shell, shell == "bash" ? "--norc" : is_fish ? "--no-config" : "-f", script + commands);
  }
  /// The words that the function got last.
  std::string asked() const {
    const Words lines = lines_of(scratch_.path() / "asked");
    return lines.empty() ? std::string() : lines.front();
  }
  /// The replies of bash for words as it has split them. "(default)" and "(dirnames)": files and folders,
  /// which are readline's to find.
  Words bash(const Words& words, const std::optional<std::string>& answer) {
    return run("bash", answer,
               std::string("compopt() { echo \"($2)\"; }\n") +  // bash has it only where a user completes
                   fmt::format("COMP_WORDS=(ferry '{}')\nCOMP_CWORD={}\n_ferry\n", fmt::join(words, "' '"),
                               words.size()) +
                   "for each in \"${COMPREPLY[@]}\"; do echo \"$each\"; done\n",
               "set -eu\n");
  }

 private:
  test::ScratchDirectory scratch_;
};

TEST_F(CompletionScript, OfBashOffersTheAnswer) {
  EXPECT_THAT(bash({"vfio", "b"}, "bind\tbinds GPUs\n:4\n"), ElementsAre("bind"));
  EXPECT_EQ(asked(), "<vfio><b>");
  EXPECT_THAT(bash({""}, "status\nvfio\n:4\n"), ElementsAre("status", "vfio"));
  EXPECT_EQ(asked(), "<>");
  EXPECT_THAT(bash({"apply", "-f", "po"}, ":0\n"), ElementsAre("(default)"));
  EXPECT_THAT(bash({"--host-root", ""}, ":16\n"), ElementsAre("(dirnames)"));
  EXPECT_THAT(bash({"x"}, ":4\n"), IsEmpty());
  EXPECT_THAT(bash({"x"}, ""), IsEmpty());
  EXPECT_THAT(bash({"status", "-o", "y"}, std::nullopt), ElementsAre("yaml"));
}

// bash makes a word of the '=', unless the user has removed it from COMP_WORDBREAKS.
TEST_F(CompletionScript, OfBashCompletesTheValueBehindASign) {
  EXPECT_THAT(bash({"plugin", "--mode", "=", "b"}, std::nullopt), ElementsAre("both"));
  EXPECT_THAT(bash({"plugin", "--mode", "="}, std::nullopt), ElementsAre("kubevirt", "kata", "both"));
  EXPECT_THAT(bash({"status", "--output=y"}, std::nullopt), ElementsAre("--output=yaml"));
  EXPECT_THAT(bash({"vfio", "bind", "--device", "0000", ":", "3b", ":", "00.0", "--dr"}, std::nullopt),
              ElementsAre("--dry-run"));
}

TEST_F(CompletionScript, OfZshDescribesTheAnswer) {
  if (!is_installed("zsh")) GTEST_SKIP() << "there is no zsh";
  const auto zsh = [this](const std::string& words, const std::optional<std::string>& answer) {
    return run(
        "zsh", answer, fmt::format("words=(ferry {})\nCURRENT=$#words\n_ferry\n", words),
        "compdef() { }\ncompset() { print -r -- \"compset $*\" }\n_files() { print -r -- \"_files $*\" }\n"
        "_describe() { print -rl -- ${(P)4} }\n");
  };
  EXPECT_THAT(
      zsh("--host-root /host 'vfio' bind --device ''", "0000:3b:00.0\tAD102GL: L40S\n0000:3c:00.0\n:4\n"),
      ElementsAre(R"(0000\:3b\:00.0:AD102GL\: L40S)", R"(0000\:3c\:00.0)"));
  EXPECT_EQ(asked(), "<--host-root></host><vfio><bind><--device><>");
  EXPECT_THAT(zsh("apply --file=", ":0\n"), Contains("compset -P --*="));
  EXPECT_THAT(zsh("apply -f ''", ":0\n"), Contains("_files "));
  EXPECT_THAT(zsh("--host-root ''", ":16\n"), Contains("_files -/"));
  EXPECT_THAT(zsh("completion z", std::nullopt), ElementsAre("zsh"));
  EXPECT_THAT(run("zsh", std::nullopt, "", "compdef() { print -r -- \"$@\" }\n"),
              ElementsAre("_ferry ferry"));
}

TEST_F(CompletionScript, OfFishOffersTheAnswer) {
  if (!is_installed("fish")) GTEST_SKIP() << "there is no fish";
  const auto fish = [this](const std::string& line, const std::optional<std::string>& answer) {
    return run("fish", answer, "complete -C '" + line + "'\n");
  };
  EXPECT_THAT(fish("ferry vfio b", "bind\tbinds GPUs\n:4\n"), ElementsAre("bind\tbinds GPUs"));
  EXPECT_EQ(asked(), "<vfio><b>");
  EXPECT_THAT(fish("ferry vfio ", "bind\nplan\n:4\n"), ElementsAre("bind", "plan"));
  EXPECT_EQ(asked(), "<vfio><>");
  EXPECT_THAT(fish("ferry status --output=", "json\nyaml\n:4\n"),
              ElementsAre("--output=json", "--output=yaml"));
  EXPECT_THAT(fish("ferry vfio bind --dr", "--dry-run\n:4\n"), ElementsAre("--dry-run"));
  EXPECT_THAT(fish("ferry --host-root /us", ":16\n"), Contains(StartsWith("/usr/")));
  EXPECT_THAT(fish("ferry apply --file=/etc/pass", ":0\n"), Contains(StartsWith("--file=/etc/passwd")));
  EXPECT_THAT(fish("ferry x", ""), IsEmpty());
  EXPECT_THAT(fish("ferry vers", std::nullopt), ElementsAre("version\tprint the version"));
}

TEST(CompletionVerb, PrintsTheScriptOfTheShell) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto run = test::run_ferry({"completion", shell});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, completion_script(ferry_commands(), shell));
  }
  const auto other = test::run_ferry({"completion", "csh"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("csh"));
  EXPECT_EQ(test::run_ferry({"completion"}).status, 2);
}

}  // namespace
}  // namespace ferry::cli
