// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completion.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "cli/command_line.h"
#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "tests/cli/run_program.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

std::vector<std::string> run_bash(const std::string& script) {
  return run_shell("bash", "--norc", script);
}

bool is_installed(const std::string& shell) {
  const auto child = spawn("sh", {"sh", "-c", "command -v " + shell + " > /dev/null"}, {});
  return child && reap(*child) == 0;
}

std::vector<std::string> quoted(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  out.reserve(words.size());
  for (const std::string& word : words) out.push_back(shell_quoted(word));
  return out;
}

/// What bash offers for the last of `words`, as it has split them. "(default)" and "(dirnames)": files and
/// folders, which are readline's to find.
std::vector<std::string> advertised(const std::string& script, const std::string& function,
                                    const std::vector<std::string>& words) {
  std::string all = script;
  all += "set -u\ncompopt() { echo \"($2)\"; }\n";  // bash has it only where a user completes
  all += fmt::format("COMP_WORDS=({})\nCOMP_CWORD={}\n{}\n", fmt::join(quoted(words), " "), words.size() - 1,
                     function);
  return run_bash(all + "for each in \"${COMPREPLY[@]}\"; do echo \"$each\"; done\n");
}

struct Completed {
  std::string name;
  std::vector<std::string> words;  ///< behind the program's name
  std::vector<std::string> advertised;
};
void PrintTo(const Completed& row, std::ostream* out) {
  *out << row.name;
}

class CompletedByBash : public testing::TestWithParam<Completed> {};

TEST_P(CompletedByBash, OffersWhatThereIs) {
  auto words = GetParam().words;
  words.insert(words.begin(), "ferry");
  const std::string script = bash_completion(ferry_commands(), {"ferry"});
  EXPECT_EQ(advertised(script, "_ferry", words), GetParam().advertised);
}

using Words = std::vector<std::string>;

INSTANTIATE_TEST_SUITE_P(
    Table, CompletedByBash,
    testing::Values(
        Completed{"AVerb", {"s"}, {"status", "selftest"}},
        Completed{"AVerbBelowAnother", {"vfio", ""}, {"plan", "bind", "unbind", "restore"}},
        Completed{"AVerbBehindAnOptionWithAValue", {"--host-root", "vfio", "st"}, {"status"}},
        Completed{"AVerbBehindAnOptionWithAValueInOne", {"--output", "=", "json", "st"}, {"status"}},
        Completed{"AVerbBehindAFlag", {"--help", "vfi"}, {"vfio"}},
        Completed{"AnOption", {"vfio", "bind", "--de"}, {"--device"}},
        Completed{"AnOptionOfTheVerbAlone", {"vfio", "unbind", "--rel"}, {}},
        Completed{"AnOptionOfTheProgram", {"vfio", "bind", "--log"}, {"--log-level", "--log-format"}},
        Completed{"AnOptionOfTheAgents", {"agent", "--drain"}, {"--drain", "--drain-timeout"}},
        Completed{"AnOptionWhereNothingElseStands",
                  {"vfio", "restore", ""},
                  {"-h", "--help", "--dry-run", "--explain", "--all", "--device", "--group", "--vendor",
                   "--class", "--model", "--numa", "--with", "--host-root", "-o", "--output", "--color",
                   "--log-level", "--log-format"}},
        Completed{"AValue", {"status", "-o", ""}, {"json", "table", "wide", "yaml"}},
        Completed{"AValueThatHasBegun", {"plugin", "--mode", "k"}, {"kubevirt", "kata"}},
        Completed{"AValueThatIsOnlySuggested", {"--log-level", "e"}, {"error"}},
        Completed{"AValueBehindASign", {"plugin", "--vgpu-placement", "="}, {"pack", "spread"}},
        Completed{"AValueBehindASignThatHasBegun", {"plugin", "--mode", "=", "b"}, {"both"}},
        Completed{"AValueInOneWord", {"status", "--output=y"}, {"--output=yaml"}},
        Completed{"AValueThatNobodyKnows", {"vfio", "bind", "--device", ""}, {}},
        Completed{"AFile", {"apply", "-f", "po"}, {"(default)"}},
        Completed{"AFolder", {"status", "--capture", ""}, {"(dirnames)"}},
        Completed{"APositional", {"completion", ""}, {"bash", "zsh", "fish"}},
        Completed{"AnOptionBehindAPositional", {"completion", "bash", "--he"}, {"--help"}},
        Completed{"NothingElseForAPositional", {"explain", "--log-format", "js"}, {"json"}},
        Completed{"NoVerb", {"nonsense"}, {}}),
    [](const auto& row) { return row.param.name; });

/// With every character in its descriptions that means something to one of the shells.
CommandModel odd() {
  const OptionModel option{.names = {"-o", "--odd"},
                           .description = R"(it's [a:b] $HOME `id` \ "x")",
                           .value = "A:B",
                           .words = {"one", "two"}};
  const OptionModel list{.names = {"--list"}, .description = "many", .value = "DIR", .repeats = true};
  const OptionModel flag{.names = {"--flag"}, .description = "a flag"};
  CommandModel below{.path = {"a-verb"},
                     .description = "does: 'it'",
                     .options = {flag, list},
                     .inherited = {option},
                     .positionals = {{.value = "FILE"}}};
  return {.description = "all", .options = {option}, .commands = {std::move(below)}};
}

TEST(BashCompletion, IsForEachNameOfTheProgram) {
  const std::string script = bash_completion(odd(), {"kubectl-ferry", "kf"});
  EXPECT_THAT(script, HasSubstr("\ncomplete -F _kubectl_ferry kubectl-ferry kf\n"));
  EXPECT_THAT(advertised(script, "_kubectl_ferry", {"kf", ""}), ElementsAre("a-verb"));
  EXPECT_THAT(advertised(script, "_kubectl_ferry", {"kf", "a-verb", ""}), ElementsAre("(default)"));
  EXPECT_THAT(advertised(script, "_kubectl_ferry", {"kf", "a-verb", "--odd", "t"}), ElementsAre("two"));
}

TEST(BashCompletion, IsQuietWhenItIsRead) {
  EXPECT_THAT(run_bash("set -eu\n" + bash_completion(ferry_commands(), {"ferry"})), IsEmpty());
}

TEST(ZshCompletion, HasAFunctionForEachCommand) {
  const CommandModel root = ferry_commands();
  const std::string script = zsh_completion(root, {"ferry"});
  EXPECT_THAT(script, testing::StartsWith("#compdef ferry\n"));
  for (const CommandModel* command : all_commands(root)) {
    std::string function = "_ferry";
    for (const std::string& word : command->path) function += "__" + function_name(word);
    EXPECT_THAT(script, HasSubstr("\n" + function + "() {\n"));
    for (const CommandModel& below : command->commands)
      EXPECT_THAT(script, HasSubstr(fmt::format("({}) {}__{} ;;\n", below.path.back(), function,
                                                function_name(below.path.back()))));
  }
}

TEST(ZshCompletion, SaysWhatEachOptionTakes) {
  const std::string script = zsh_completion(odd(), {"odd", "od"});
  EXPECT_THAT(script, testing::StartsWith("#compdef odd od\n"));
  EXPECT_THAT(script, HasSubstr("    compdef _odd odd od\n"));
  const std::string described = R"([it'\''s \[a\:b\] $HOME `id` \\ "x"]:A\:B:(one two)')";
  EXPECT_THAT(script, HasSubstr("'(-o --odd)-o+" + described));
  EXPECT_THAT(script, HasSubstr("'(-o --odd)--odd=" + described));
  EXPECT_THAT(script, HasSubstr("'*--list=[many]:DIR:_files -/'"));
  EXPECT_THAT(script, HasSubstr("'(--flag)--flag[a flag]'"));
  EXPECT_THAT(script, HasSubstr("':FILE:_files'"));
  EXPECT_THAT(script, HasSubstr(R"('a-verb:does: '\''it'\''')"));
}

TEST(FishCompletion, SaysWhatEachOptionTakes) {
  const std::string script = fish_completion(odd(), {"odd-one", "od"});
  EXPECT_THAT(script, HasSubstr("set -g __odd_one_commands 'a-verb'\n"));
  EXPECT_THAT(
      script,
      HasSubstr("set -g __odd_one_valued ' -o' ' --odd' 'a-verb --list' 'a-verb -o' 'a-verb --odd'\n"));
  EXPECT_THAT(script, HasSubstr("\ncomplete -c odd-one -f\n"));
  EXPECT_THAT(script,
              HasSubstr(R"(complete -c odd-one -n '__odd_one_is_at \'\' 0' -a a-verb -d 'does: \'it\'')"));
  EXPECT_THAT(script,
              HasSubstr(R"(complete -c odd-one -n '__odd_one_is_at \'a-verb\'' -s o -l odd -x -a 'one two' )"
                        R"(-d 'it\'s [a:b] $HOME `id` \\ "x"')"));
  EXPECT_THAT(script, HasSubstr(" -l list -x -a '(__fish_complete_directories)' -d 'many'\n"));
  EXPECT_THAT(script, HasSubstr(" -l flag -d 'a flag'\n"));
  EXPECT_THAT(script, HasSubstr(R"(is_at \'a-verb\' 0' -r -F -d )"));
  EXPECT_THAT(script, HasSubstr("\ncomplete -c od -w odd-one\n"));
  EXPECT_THAT(script, Not(HasSubstr("@")));
}

TEST(FishCompletion, HasEachOptionOfEachCommand) {
  const CommandModel root = ferry_commands();
  const std::string script = fish_completion(root, {"ferry"});
  std::size_t count = 0;
  for (const CommandModel* command : all_commands(root)) {
    count += command->options.size() + command->inherited.size();
    for (const OptionModel& option : command->options) {
      EXPECT_THAT(script, HasSubstr(fmt::format(R"(is_at \'{}\'')", command->words())));
      EXPECT_THAT(script, HasSubstr(" -l " + option.names.back().substr(2) + " "));
    }
  }
  std::size_t lines = 0;
  std::istringstream all(script);
  for (std::string line; std::getline(all, line);)
    if (line.starts_with("complete ") && line.find(" -l ") != std::string::npos) ++lines;
  EXPECT_EQ(lines, count);
}

// Each is parsed, and nothing of it carried out.
TEST(ZshCompletion, IsZsh) {
  if (!is_installed("zsh")) GTEST_SKIP() << "there is no zsh";
  EXPECT_THAT(run_shell("zsh", "-n", zsh_completion(ferry_commands(), {"ferry"})), IsEmpty());
  EXPECT_THAT(run_shell("zsh", "-n", zsh_completion(odd(), {"odd", "od"})), IsEmpty());
  EXPECT_THAT(run_shell("zsh", "-n", "_ferry() {\n"), Not(IsEmpty()));
}

TEST(FishCompletion, IsFish) {
  if (!is_installed("fish")) GTEST_SKIP() << "there is no fish";
  EXPECT_THAT(run_shell("fish", "--no-execute", fish_completion(ferry_commands(), {"ferry"})), IsEmpty());
  EXPECT_THAT(run_shell("fish", "--no-execute", fish_completion(odd(), {"odd-one", "od"})), IsEmpty());
  EXPECT_THAT(run_shell("fish", "--no-execute", "function f\n"), Not(IsEmpty()));
}

TEST(CompletionVerb, PrintsTheScriptOfTheShell) {
  const auto bash = test::run_ferry({"completion", "bash"});
  EXPECT_EQ(bash.status, 0) << bash.err;
  EXPECT_EQ(bash.out, bash_completion(ferry_commands(), {"ferry"}));
  EXPECT_EQ(test::run_ferry({"completion", "zsh"}).out, zsh_completion(ferry_commands(), {"ferry"}));
  EXPECT_EQ(test::run_ferry({"completion", "fish"}).out, fish_completion(ferry_commands(), {"ferry"}));
  const auto other = test::run_ferry({"completion", "csh"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("csh"));
  EXPECT_EQ(test::run_ferry({"completion"}).status, 2);
}

}  // namespace
}  // namespace ferry::cli
