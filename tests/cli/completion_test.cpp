// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/completion.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "api/advertised_resources.h"
#include "api/files.h"
#include "cli/command_line.h"
#include "cli/completion/completed_names.h"
#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "host/claims/claim_record.h"
#include "tests/cli/run_program.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
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
  const std::string script = bash_completion(ferry_commands(), "ferry");
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

TEST(BashCompletion, IsNamedAfterTheProgram) {
  const std::string script = bash_completion(odd(), "kubectl-ferry");
  EXPECT_THAT(script, HasSubstr("\ncomplete -F _kubectl_ferry kubectl-ferry\n"));
  EXPECT_THAT(advertised(script, "_kubectl_ferry", {"kubectl-ferry", ""}), ElementsAre("a-verb"));
  EXPECT_THAT(advertised(script, "_kubectl_ferry", {"kubectl-ferry", "a-verb", ""}),
              ElementsAre("(default)"));
  EXPECT_THAT(advertised(script, "_kubectl_ferry", {"kubectl-ferry", "a-verb", "--odd", "t"}),
              ElementsAre("two"));
}

TEST(BashCompletion, IsQuietWhenItIsRead) {
  EXPECT_THAT(run_bash("set -eu\n" + bash_completion(ferry_commands(), "ferry")), IsEmpty());
}

TEST(BashCompletion, RunsTheProgramForNames) {
  const std::string script = bash_completion(ferry_commands(), "ferry");
  const std::string with_names = script + "ferry() { printf '%s\\tL40S\\n' 0000:3b:00.0 0000:3c:00.0; }\n";
  const auto completed = [&](Words words) {
    words.insert(words.begin(), {"ferry", "vfio", "bind"});
    return advertised(with_names, "_ferry", words);
  };
  EXPECT_THAT(completed({"--device", ""}), ElementsAre("0000:3b:00.0", "0000:3c:00.0"));
  // bash splits words at colons, and completes the part behind the last one.
  EXPECT_THAT(completed({"--device", "0000", ":", "3b"}), ElementsAre("3b:00.0"));
  EXPECT_THAT(completed({"--device", "0000", ":"}), ElementsAre("3b:00.0", "3c:00.0"));
  EXPECT_THAT(completed({"--device", "=", "0000", ":", "3c", ":", "0"}), ElementsAre("00.0"));
  EXPECT_THAT(completed({"--device=0000", ":", "3c"}), ElementsAre("3c:00.0"));
  EXPECT_THAT(completed({"--device", "0000:3c"}), ElementsAre("0000:3c:00.0"));
  EXPECT_THAT(completed({"--device", "0000", ":", "3b", ":", "00.0", "--dr"}), ElementsAre("--dry-run"));
  const std::string with_words = script + "ferry() { echo \"$*\"; }\n";
  EXPECT_THAT(advertised(with_words, "_ferry", {"ferry", "apply", "-f", "x.yaml", "-c", ""}),
              ElementsAre("complete-names policies apply -f x.yaml -c "));
}

/// The names that complete a word on a composed host, without their descriptions.
class CompletedNames : public testing::Test {
 protected:
  void build(const std::string& name) { test::composed_machine(name).build(machine_); }
  std::string root() const { return machine_.kernel.root().string(); }
  Words names(const std::string& kind, const Words& more = {}) const {
    Words words = {"--host-root", root()};
    words.insert(words.end(), more.begin(), more.end());
    std::istringstream lines(completed_names(kind, words));
    Words out;
    for (std::string line; std::getline(lines, line);) out.push_back(line.substr(0, line.find('\t')));
    return out;
  }
  test::Machine machine_;
  test::ScratchDirectory scratch_;
};

TEST_F(CompletedNames, AreThoseOfTheHost) {
  build("t4-server");
  EXPECT_THAT(names("addresses"),
              ElementsAre("0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0", "0000:d8:00.0"));
  EXPECT_THAT(names("devices"), IsSupersetOf(names("addresses")));
  EXPECT_THAT(names("models"), ElementsAre("10de:1eb8"));
  EXPECT_THAT(names("groups"), ElementsAre("30", "31", "32", "33"));
  EXPECT_THAT(names("numa-nodes"), ElementsAre("0", "1"));
  EXPECT_THAT(names("nonsense"), IsEmpty());
  EXPECT_THAT(completed_names("addresses", {"--host-root=" + root()}),
              HasSubstr("0000:3b:00.0\tTU104GL [Tesla T4]\n"));
  EXPECT_THAT(completed_names("addresses", {"--host-root", "/none"}), IsEmpty());
  const auto run = test::run_ferry({"complete-names", "models", "--host-root", root()});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("10de:1eb8\t"));
  EXPECT_EQ(test::run_ferry({"complete-names"}).status, 0);
}

TEST_F(CompletedNames, AreAdvertisedResources) {
  build("t4-server");
  api::AdvertisedResources advertised;
  advertised.resources = {{.name = "nvidia.com/TU104GL_TESLA_T4"}, {.name = "not; plain"}};
  machine_.kernel.file(api::kAdvertisedFile, api::advertised_resources_text(advertised));
  EXPECT_THAT(names("devices"), Contains("nvidia.com/TU104GL_TESLA_T4"));
  EXPECT_THAT(names("devices"), Not(Contains("not; plain")));
}

TEST_F(CompletedNames, AreClaimsThatHostdHasPrepared) {
  build("t4-server");
  EXPECT_THAT(names("claims"), IsEmpty());
  auto record = test::must(host::load_claim_record(machine_.kernel));
  record.put({.uid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711", .space = "studio", .name = "render-a"});
  ASSERT_TRUE(host::store_claim_record(machine_.kernel, record));
  EXPECT_EQ(completed_names("claims", {"--host-root", root()}),
            "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711\tclaim studio/render-a\n");
}

TEST_F(CompletedNames, ArePoliciesOfTheFileOnTheCommandLine) {
  scratch_.file("policy.yaml",
                "version: v2\npolicies:\n  whole:\n  - {devices: all, mode: passthrough}\n"
                "  none:\n  - {devices: all, mode: host}\n");
  const std::string file = (scratch_.path() / "policy.yaml").string();
  EXPECT_THAT(names("policies", {"apply", "-f", file}), ElementsAre("none", "whole"));
  EXPECT_THAT(names("policies", {"apply", "--file=" + file}), ElementsAre("none", "whole"));
  EXPECT_THAT(names("policies", {"apply", "--file", "=", file}), ElementsAre("none", "whole"));
  EXPECT_THAT(names("policies", {"apply", "-f", "-"}), IsEmpty());
  EXPECT_THAT(names("policies", {"apply"}), IsEmpty());
  const std::string pipe = (scratch_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(names("policies", {"apply", "-f", pipe}), IsEmpty());
}

TEST(NameKind, IsThatOfTheOption) {
  const CommandModel root = ferry_commands();
  std::map<std::string, std::string> kinds;
  for (const CommandModel* command : all_commands(root)) {
    for (const auto* some : {&command->options, &command->positionals}) {
      for (const OptionModel& option : *some) {
        const std::string name = option.names.empty() ? option.value : option.names.back();
        if (const auto kind = name_kind(option); !kind.empty()) kinds[command->words() + " " + name] = kind;
      }
    }
  }
  EXPECT_EQ(kinds["vfio bind --device"], "addresses");
  EXPECT_EQ(kinds["vfio bind --with"], "addresses");
  EXPECT_EQ(kinds["vfio unbind --group"], "groups");
  EXPECT_EQ(kinds["vfio restore --numa"], "numa-nodes");
  EXPECT_EQ(kinds["vfio plan --model"], "models");
  EXPECT_EQ(kinds["explain ADDRESS|UUID|RESOURCE"], "devices");
  EXPECT_EQ(kinds["selftest --device"], "devices");
  EXPECT_EQ(kinds["apply --config"], "policies");
  EXPECT_EQ(kinds["vgpu validate --config"], "policies");
  EXPECT_EQ(kinds.count("vgpu export --config"), 0U);
  EXPECT_EQ(kinds.count("agent --config"), 0U);
}

TEST(ZshCompletion, HasAFunctionForEachCommand) {
  const CommandModel root = ferry_commands();
  const std::string script = zsh_completion(root, "ferry");
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
  const std::string script = zsh_completion(odd(), "odd");
  EXPECT_THAT(script, testing::StartsWith("#compdef odd\n"));
  EXPECT_THAT(script, HasSubstr("    compdef _odd odd\n"));
  const std::string described = R"([it'\''s \[a\:b\] $HOME `id` \\ "x"]:A\:B:(one two)')";
  EXPECT_THAT(script, HasSubstr("'(-o --odd)-o+" + described));
  EXPECT_THAT(script, HasSubstr("'(-o --odd)--odd=" + described));
  EXPECT_THAT(script, HasSubstr("'*--list=[many]:DIR:_files -/'"));
  EXPECT_THAT(script, HasSubstr("'(--flag)--flag[a flag]'"));
  EXPECT_THAT(script, HasSubstr("':FILE:_files'"));
  EXPECT_THAT(script, HasSubstr(R"('a-verb:does: '\''it'\''')"));
  EXPECT_THAT(zsh_completion(ferry_commands(), "ferry"),
              AllOf(HasSubstr(":ADDRESS:_ferry_names addresses'"), HasSubstr("$(ferry complete-names "),
                    HasSubstr("\n_ferry_names() {\n")));
}

TEST(FishCompletion, SaysWhatEachOptionTakes) {
  const std::string script = fish_completion(odd(), "odd-one");
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
  EXPECT_THAT(script, Not(HasSubstr("@")));
  EXPECT_THAT(fish_completion(ferry_commands(), "ferry"),
              AllOf(HasSubstr(" -l device -x -a '(__ferry_names addresses)'"),
                    HasSubstr("\nfunction __ferry_names\n    ferry complete-names $argv[1] ")));
}

TEST(FishCompletion, HasEachOptionOfEachCommand) {
  const CommandModel root = ferry_commands();
  const std::string script = fish_completion(root, "ferry");
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

// _arguments leaves only a verb and the words behind it in $words, but --host-root may stand before the verb.
TEST(ZshCompletion, AsksForNamesWithTheWholeLine) {
  const std::string script = zsh_completion(ferry_commands(), "ferry");
  EXPECT_THAT(script, AllOf(HasSubstr("    _ferry_line=($words)\n    _arguments -C -S "),
                            HasSubstr(" ${_ferry_line[2,-1]} 2> /dev/null")));
  if (!is_installed("zsh")) GTEST_SKIP() << "there is no zsh";
  const std::string standins =
      "compdef() { }\n"
      "compadd() { }\n"
      "ferry() { print -r -- \"$@\" >&3 }\n"
      "_arguments() { words=(bind --device ''); _ferry_names addresses; return 1 }\n";
  const std::string line = "words=(ferry --host-root /host vfio bind --device '')\n_ferry\n";
  EXPECT_THAT(run_shell("zsh", "-f", "exec 3>&1\n" + standins + script + line),
              ElementsAre("complete-names addresses --host-root /host vfio bind --device"));
}

// Each is parsed, and nothing of it carried out.
TEST(ZshCompletion, IsZsh) {
  if (!is_installed("zsh")) GTEST_SKIP() << "there is no zsh";
  EXPECT_THAT(run_shell("zsh", "-n", zsh_completion(ferry_commands(), "ferry")), IsEmpty());
  EXPECT_THAT(run_shell("zsh", "-n", zsh_completion(odd(), "odd")), IsEmpty());
  EXPECT_THAT(run_shell("zsh", "-n", "_ferry() {\n"), Not(IsEmpty()));
}

TEST(FishCompletion, IsFish) {
  if (!is_installed("fish")) GTEST_SKIP() << "there is no fish";
  EXPECT_THAT(run_shell("fish", "--no-execute", fish_completion(ferry_commands(), "ferry")), IsEmpty());
  EXPECT_THAT(run_shell("fish", "--no-execute", fish_completion(odd(), "odd-one")), IsEmpty());
  EXPECT_THAT(run_shell("fish", "--no-execute", "function f\n"), Not(IsEmpty()));
}

TEST(CompletionVerb, PrintsTheScriptOfTheShell) {
  const auto bash = test::run_ferry({"completion", "bash"});
  EXPECT_EQ(bash.status, 0) << bash.err;
  EXPECT_EQ(bash.out, bash_completion(ferry_commands(), "ferry"));
  EXPECT_EQ(test::run_ferry({"completion", "zsh"}).out, zsh_completion(ferry_commands(), "ferry"));
  EXPECT_EQ(test::run_ferry({"completion", "fish"}).out, fish_completion(ferry_commands(), "ferry"));
  const auto other = test::run_ferry({"completion", "csh"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("csh"));
  EXPECT_EQ(test::run_ferry({"completion"}).status, 2);
}

}  // namespace
}  // namespace ferry::cli
