// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "cli/completion/completion.h"
#include "kubectl/kubectl_program.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"

namespace ferry::cli {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::IsSupersetOf;
using testing::StartsWith;

std::vector<std::string> offered(const std::vector<std::string>& words) {
  return test::completed(kubectl::kubectl_commands(), words);
}

TEST(KubectlCompletion, OffersWhatMayStandInTheLastPlace) {
  struct Row {
    std::vector<std::string> words;
    std::vector<std::string> offered;
  };
  const std::vector<std::string> verbs = {"list",        "node",   "status",     "vms",  "plan",    "doctor",
                                          "kubevirt-cr", "gather", "completion", "help", "version", ":4"};
  for (const Row& row : {Row{{""}, verbs},
                         Row{{}, verbs},
                         Row{{"no"}, {"node", ":4"}},
                         Row{{"st"}, {"status", ":4"}},
                         Row{{"x"}, {":4"}},
                         Row{{"-o", ""}, {"json", "table", "wide", "yaml", ":4"}},
                         Row{{"-o", "j"}, {"json", ":4"}},
                         Row{{"--output=j"}, {"json", ":4"}},
                         Row{{"--output", "list", ""}, verbs},
                         Row{{"--output=json", "g"}, {"gather", ":4"}},
                         Row{{"list", "--outp"}, {"--output", ":4"}},
                         Row{{"list", "--kubeconfig", ""}, {":0"}},
                         Row{{"list", "--kubeconfig="}, {":0"}},
                         Row{{"--kubeconfig", "file", "list", "-o", "y"}, {"yaml", ":4"}},
                         Row{{"node", "n"}, {":4"}},
                         Row{{"status", "-o", "w"}, {"wide", ":4"}},
                         Row{{"node", "gpu-1", "n"}, {":4"}},
                         Row{{"--context=empty", "node", "n"}, {":4"}},
                         Row{{"list", "gpu-1", ""}, {":4"}},
                         Row{{"doctor", ""}, {"vm", ":4"}},
                         Row{{"doctor", "gpu-1", "n"}, {":4"}},
                         Row{{"help", "n"}, {":4"}},
                         Row{{"node", "--", "-"}, {":4"}},
                         Row{{"plan", "n1", "a=b", "n"}, {":4"}},
                         Row{{"plan", "n1", "--config-m"}, {"--config-map", ":4"}},
                         Row{{"list", "--config-m"}, {":4"}},
                         Row{{"--nothing", "no"}, {"node", ":4"}},
                         Row{{"--nothing=x", ""}, verbs}}) {
    EXPECT_EQ(offered(row.words), row.offered) << fmt::format("{}", row.words);
  }
}

// Of the tree that parses: each verb, and behind it each of its options and those of all.
TEST(KubectlCompletion, OffersAllThatIsParsed) {
  const CommandModel root = kubectl::kubectl_commands();
  EXPECT_EQ(root.commands.size(), 10U);
  for (const CommandModel* command : test::all_commands(root)) {
    std::vector<std::string> words = command->path;
    words.emplace_back("-");
    std::vector<std::string> names;
    for (const OptionModel& option : test::taken_options(root, *command))
      names.insert(names.end(), option.names.begin(), option.names.end());
    EXPECT_THAT(offered(words), IsSupersetOf(names)) << test::path_words(*command);
    EXPECT_THAT(names, IsSupersetOf({"--output", "--kubeconfig", "--context", "--help"}))
        << test::path_words(*command);
  }
}

TEST(KubectlCompletion, FoldersAreTheShells) {
  const CommandModel root{.options = {{.names = {"--into"}, .value = "DIR"}},
                          .positionals = {{.value = "WORD", .words = {"one", "two"}, .repeats = true}}};
  EXPECT_THAT(test::completed(root, {"--into", ""}), ElementsAre(":16"));
  EXPECT_THAT(test::completed(root, {"one", "--into=x", "t"}), ElementsAre("two", ":4"));
}

TEST(KubectlCompletion, IsAProgramBesideThePlugin) {
  const auto printed = test::run_kubectl_ferry({"completion"});
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_EQ(printed.out, completion_program(kubectl::kubectl_commands()));
  const auto result = test::run_beside_ferry("kubectl_complete-ferry", {"gath"}, {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("gather\tprint what support needs as one JSON document"));
  EXPECT_THAT(result.out, EndsWith("\n:4\n"));
}

}  // namespace
}  // namespace ferry::cli
