// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fstream>
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
#include "cli/completion/host_completion.h"
#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "host/claims/claim_record.h"
#include "tests/cli/run_program.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
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

/// The lines of completions() without descriptions; the directive is last.
Words completed(const CommandModel& root, const Words& words, const FindNames& find) {
  std::istringstream lines(completions(root, words, find));
  Words out;
  for (std::string line; std::getline(lines, line);) out.push_back(line.substr(0, line.find('\t')));
  return out;
}

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
  const auto no_names = [](const OptionModel& /*option*/, const WordsBefore& /*before*/) { return Names(); };
  EXPECT_EQ(completed(ferry_commands(), GetParam().words, no_names), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Table, CompletedWord,
    testing::Values(
        Completed{"AVerb", {"s"}, {"status", ":4"}},
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
        Completed{"AValueBehindASignThatHasBegun", {"plugin", "--mode=b"}, {"both", ":4"}},
        Completed{"AValueOfAnyText", {"vfio", "bind", "--device", ""}, {":4"}},
        Completed{"AFile", {"apply", "-f", "po"}, {":0"}}, Completed{"AFolder", {"--host-root", ""}, {":16"}},
        Completed{"APositional", {"completion", ""}, {"bash", "zsh", "fish", ":4"}},
        Completed{"AnOptionBehindAPositional", {"completion", "bash", "--he"}, {"--help", ":4"}},
        Completed{"NothingElseForAPositional", {"explain", "--log-format", "js"}, {"json", ":4"}},
        Completed{"NoVerb", {"nonsense"}, {":4"}}),
    [](const auto& row) { return row.param.name; });

/// A shell with its script, and a `ferry` that keeps its arguments and prints an answer.
class CompletionScript : public testing::Test {
 protected:
  /// The lines that the shell prints, its errors among them.
  Words run(const std::string& shell, const std::string& answer, const std::string& commands) {
    scratch_.file("answer", answer);
    scratch_.file("ferry",
                  fmt::format("#!/bin/sh\nprintf '<%s>' \"$@\" > {0}/asked\ncat {0}/answer\n", folder()));
    std::filesystem::permissions(scratch_.path() / "ferry", std::filesystem::perms::owner_all);
    const bool is_fish = shell == "fish";
    const std::string path = is_fish ? "set -x PATH {} $PATH\n" : "PATH={}:$PATH\n";
    return run_shell(shell,
                     shell == "bash" ? "--norc"
                     : is_fish       ? "--no-config"
                                     : "-f",
                     fmt::format(fmt::runtime(path), folder()) + commands);
  }
  /// The words that `ferry` got last.
  std::string asked() const {
    const Words lines = lines_of(scratch_.path() / "asked");
    return lines.empty() ? std::string() : lines.front();
  }
  /// The replies of bash for words as it has split them. "(default)" and "(dirnames)": files and folders,
  /// which are readline's to find.
  Words bash(const Words& words, const std::string& answer) {
    return run("bash", answer,
               std::string("set -eu\n") + std::string(completion_script("bash")) +
                   "compopt() { echo \"($2)\"; }\n" +  // bash has it only where a user completes
                   fmt::format("COMP_WORDS=(ferry '{}')\nCOMP_CWORD={}\n_ferry\n", fmt::join(words, "' '"),
                               words.size()) +
                   "for each in \"${COMPREPLY[@]}\"; do echo \"$each\"; done\n");
  }

 private:
  std::string folder() const { return scratch_.path().string(); }
  test::ScratchDirectory scratch_;
};

TEST_F(CompletionScript, OfBashOffersTheAnswer) {
  EXPECT_THAT(bash({"vfio", "b"}, "bind\tbinds GPUs\n:4\n"), ElementsAre("bind"));
  EXPECT_EQ(asked(), "<complete><vfio><b>");
  EXPECT_THAT(bash({""}, "status\nvfio\n:4\n"), ElementsAre("status", "vfio"));
  EXPECT_EQ(asked(), "<complete><>");
  EXPECT_THAT(bash({"apply", "-f", "po"}, ":0\n"), ElementsAre("(default)"));
  EXPECT_THAT(bash({"--host-root", ""}, ":16\n"), ElementsAre("(dirnames)"));
  EXPECT_THAT(bash({"x"}, ":4\n"), IsEmpty());
  EXPECT_THAT(bash({"x"}, ""), IsEmpty());
}

// bash splits words at colons and '=', and completes the part behind the last one.
TEST_F(CompletionScript, OfBashJoinsWhatBashHasSplit) {
  constexpr const char* kAddresses = "0000:3b:00.0\tL40S\n0000:3c:00.0\tL40S\n:4\n";
  EXPECT_THAT(bash({"--device", "0000", ":", "3b"}, "0000:3b:00.0\n:4\n"), ElementsAre("3b:00.0"));
  EXPECT_EQ(asked(), "<complete><--device><0000:3b>");
  EXPECT_THAT(bash({"--device", "0000", ":"}, kAddresses), ElementsAre("3b:00.0", "3c:00.0"));
  EXPECT_THAT(bash({"--device", "=", "0000", ":", "3c", ":", "0"}, "0000:3c:00.0\n:4\n"),
              ElementsAre("00.0"));
  EXPECT_EQ(asked(), "<complete><--device=0000:3c:0>");
  EXPECT_THAT(bash({"--device=0000", ":", "3c"}, "0000:3c:00.0\n:4\n"), ElementsAre("3c:00.0"));
  EXPECT_THAT(bash({"--device", "0000:3c"}, "0000:3c:00.0\n:4\n"), ElementsAre("0000:3c:00.0"));
  EXPECT_THAT(bash({"--device", "0000", ":", "3b", ":", "00.0", "--dr"}, "--dry-run\n:4\n"),
              ElementsAre("--dry-run"));
  EXPECT_EQ(asked(), "<complete><--device><0000:3b:00.0><--dr>");
  EXPECT_THAT(bash({"status", "--output=y"}, "yaml\n:4\n"), ElementsAre("--output=yaml"));
  EXPECT_THAT(bash({"plugin", "--mode", "="}, "both\n:4\n"), ElementsAre("both"));
}

TEST_F(CompletionScript, OfZshDescribesTheAnswer) {
  if (!is_installed("zsh")) GTEST_SKIP() << "there is no zsh";
  const auto zsh = [this](const std::string& words, const std::string& answer) {
    return run(
        "zsh", answer,
        "compdef() { }\ncompset() { print -r -- \"compset $*\" }\n_files() { print -r -- \"_files $*\" }\n"
        "_describe() { print -rl -- ${(P)4} }\n" +
            std::string(completion_script("zsh")) +
            fmt::format("words=(ferry {})\nCURRENT=$#words\n_ferry\n", words));
  };
  EXPECT_THAT(
      zsh("--host-root /host 'vfio' bind --device ''", "0000:3b:00.0\tAD102GL: L40S\n0000:3c:00.0\n:4\n"),
      ElementsAre(R"(0000\:3b\:00.0:AD102GL\: L40S)", R"(0000\:3c\:00.0)"));
  EXPECT_EQ(asked(), "<complete><--host-root></host><vfio><bind><--device><>");
  EXPECT_THAT(zsh("apply --file=", ":0\n"), Contains("compset -P --*="));
  EXPECT_THAT(zsh("apply -f ''", ":0\n"), Contains("_files "));
  EXPECT_THAT(zsh("--host-root ''", ":16\n"), Contains("_files -/"));
  EXPECT_THAT(run("zsh", "", "compdef() { print -r -- \"$@\" }\n" + std::string(completion_script("zsh"))),
              ElementsAre("_ferry ferry"));
}

TEST_F(CompletionScript, OfFishOffersTheAnswer) {
  if (!is_installed("fish")) GTEST_SKIP() << "there is no fish";
  const auto fish = [this](const std::string& line, const std::string& answer) {
    return run("fish", answer, std::string(completion_script("fish")) + "complete -C '" + line + "'\n");
  };
  EXPECT_THAT(fish("ferry vfio b", "bind\tbinds GPUs\n:4\n"), ElementsAre("bind\tbinds GPUs"));
  EXPECT_EQ(asked(), "<complete><vfio><b>");
  EXPECT_THAT(fish("ferry vfio ", "bind\nplan\n:4\n"), ElementsAre("bind", "plan"));
  EXPECT_EQ(asked(), "<complete><vfio><>");
  EXPECT_THAT(fish("ferry status --output=", "json\nyaml\n:4\n"),
              ElementsAre("--output=json", "--output=yaml"));
  EXPECT_THAT(fish("ferry vfio bind --dr", "--dry-run\n:4\n"), ElementsAre("--dry-run"));
  EXPECT_THAT(fish("ferry --host-root /us", ":16\n"), Contains(StartsWith("/usr/")));
  EXPECT_THAT(fish("ferry apply --file=/etc/pass", ":0\n"), Contains(StartsWith("--file=/etc/passwd")));
  EXPECT_THAT(fish("ferry x", ""), IsEmpty());
}

/// The names that complete the last word of a line on a composed host.
class HostNames : public testing::Test {
 protected:
  void build(const std::string& name) { test::composed_machine(name).build(machine_); }
  Words names(Words words) const {
    words.insert(words.begin(), {"--host-root", machine_.kernel.root().string()});
    words.emplace_back();
    Words out = completed(ferry_commands(), words, host_names);
    out.pop_back();
    return out;
  }
  test::Machine machine_;
  test::ScratchDirectory scratch_;
};

TEST_F(HostNames, AreThoseOfAccelerators) {
  build("t4-server");
  const Words addresses = {"0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0", "0000:d8:00.0"};
  EXPECT_EQ(names({"vfio", "bind", "--device"}), addresses);
  EXPECT_EQ(names({"vfio", "bind", "--with"}), addresses);
  EXPECT_THAT(names({"explain"}), IsSupersetOf(addresses));
  EXPECT_THAT(names({"vfio", "plan", "--model"}), ElementsAre("10de:1eb8"));
  EXPECT_THAT(names({"vfio", "unbind", "--group"}), ElementsAre("30", "31", "32", "33"));
  EXPECT_THAT(names({"vfio", "restore", "--numa"}), ElementsAre("0", "1"));
  EXPECT_THAT(names({"vfio", "bind", "--host-root", "/none", "--device"}), IsEmpty());
}

TEST_F(HostNames, AreAdvertisedResources) {
  build("t4-server");
  api::AdvertisedResources advertised;
  advertised.resources = {{.name = "nvidia.com/TU104GL_TESLA_T4"}, {.name = "not; plain"}};
  machine_.kernel.file(api::kAdvertisedFile, api::advertised_resources_text(advertised));
  EXPECT_THAT(names({"explain"}), Contains("nvidia.com/TU104GL_TESLA_T4"));
  EXPECT_THAT(names({"explain"}), Not(Contains("not; plain")));
}

TEST_F(HostNames, AreClaimsThatHostdHasPrepared) {
  build("t4-server");
  EXPECT_THAT(names({"claims", "release"}), IsEmpty());
  auto record = test::must(host::load_claim_record(machine_.kernel));
  record.put({.uid = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711", .space = "studio", .name = "render-a"});
  ASSERT_TRUE(host::store_claim_record(machine_.kernel, record));
  EXPECT_THAT(
      completions(ferry_commands(), {"--host-root", machine_.kernel.root().string(), "claims", "release", ""},
                  host_names),
      StartsWith("5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711\tclaim studio/render-a\n"));
}

TEST_F(HostNames, ArePoliciesOfTheFileOnTheCommandLine) {
  scratch_.file("policy.yaml",
                "version: v2\npolicies:\n  whole:\n  - {devices: all, mode: passthrough}\n"
                "  none:\n  - {devices: all, mode: host}\n");
  const std::string file = (scratch_.path() / "policy.yaml").string();
  EXPECT_THAT(names({"apply", "-f", file, "--config"}), ElementsAre("none", "whole"));
  EXPECT_THAT(names({"apply", "--file=" + file, "-c"}), ElementsAre("none", "whole"));
  EXPECT_THAT(names({"vgpu", "validate", "-f", file, "--config"}), ElementsAre("none", "whole"));
  EXPECT_THAT(names({"vgpu", "export", "-f", file, "--config"}), IsEmpty());
  EXPECT_THAT(names({"apply", "-f", "-", "--config"}), IsEmpty());
  EXPECT_THAT(names({"apply", "--config"}), IsEmpty());
  const std::string pipe = (scratch_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(names({"apply", "-f", pipe, "--config"}), IsEmpty());
}

TEST_F(HostNames, ArePrintedByTheProgram) {
  build("t4-server");
  const auto run = test::run_ferry(
      {"complete", "--host-root", machine_.kernel.root().string(), "vfio", "bind", "--device", "0000:3"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "0000:3b:00.0\tTU104GL [Tesla T4]\n:4\n");
  EXPECT_THAT(test::run_ferry({"complete"}).out, HasSubstr("status\t"));
}

TEST(CompletionVerb, PrintsTheScriptOfTheShell) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto run = test::run_ferry({"completion", shell});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, completion_script(shell));
  }
  const auto other = test::run_ferry({"completion", "csh"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("csh"));
  EXPECT_EQ(test::run_ferry({"completion"}).status, 2);
}

}  // namespace
}  // namespace ferry::cli
