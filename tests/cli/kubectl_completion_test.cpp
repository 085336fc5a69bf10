// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "kubectl/kubectl_program.h"
#include "tests/cli/run_program.h"

namespace ferry::cli {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::StartsWith;

/// The completions without their descriptions; the directive is last.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(line.substr(0, line.find('\t')));
  return out;
}
/// A cluster with two nodes and a VM; the context "empty" has none.
std::vector<std::string> names(const kubectl::NameQuestion& question) {
  const auto is = [&](const char* option, const char* value) {
    const auto given = question.options.find(option);
    return given != question.options.end() && given->second == value;
  };
  if (is("--context", "empty") || is("--kubeconfig", "/none")) return {};
  if (question.kind == kubectl::NameQuestion::Kind::vms) return {"studio/render"};
  return {"gpu-1", "node-2"};
}
std::vector<std::string> advertised(const std::vector<std::string>& words) {
  return words_of(kubectl::kubectl_completion(kubectl::kubectl_commands(), words, names));
}

TEST(KubectlCompletion, OffersWhatMayStandInTheLastPlace) {
  struct Row {
    std::vector<std::string> words;
    std::vector<std::string> advertised;
  };
  const std::vector<std::string> verbs = {"list",        "node",   "status", "vms",     "plan", "doctor",
                                          "kubevirt-cr", "gather", "help",   "version", ":4"};
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
                         Row{{"node", "n"}, {"node-2", ":4"}},
                         Row{{"status", "n"}, {"node-2", ":4"}},
                         Row{{"node", "gpu-1", "n"}, {":4"}},
                         Row{{"node", "--context", "empty", "n"}, {":4"}},
                         Row{{"--context=empty", "node", "n"}, {":4"}},
                         Row{{"node", "--kubeconfig", "/none", "n"}, {":4"}},
                         Row{{"list", ""}, {"gpu-1", "node-2", ":4"}},
                         Row{{"list", "gpu-1", ""}, {"gpu-1", "node-2", ":4"}},
                         Row{{"plan", "g"}, {"gpu-1", ":4"}},
                         Row{{"doctor", ""}, {"gpu-1", "node-2", "vm", ":4"}},
                         Row{{"doctor", "vm", ""}, {"studio/render", ":4"}},
                         Row{{"doctor", "gpu-1", "n"}, {":4"}},
                         Row{{"help", "n"}, {":4"}},
                         Row{{"node", "--", "-"}, {":4"}},
                         Row{{"plan", "n1", "a=b", "n"}, {":4"}},
                         Row{{"plan", "n1", "--config-m"}, {"--config-map", ":4"}},
                         Row{{"list", "--config-m"}, {":4"}},
                         Row{{"--nothing", "no"}, {"node", ":4"}},
                         Row{{"--nothing=x", ""}, verbs}}) {
    EXPECT_EQ(advertised(row.words), row.advertised) << fmt::format("{}", row.words);
  }
}

TEST(KubectlCompletion, SaysWhatAWordIs) {
  EXPECT_THAT(kubectl::kubectl_completion(kubectl::kubectl_commands(), {"gath"}, names),
              StartsWith("gather\tprint what support needs as one JSON document"));
}

// Of the tree that parses: each verb, and behind it each of its options and those of all.
TEST(KubectlCompletion, OffersAllThatIsParsed) {
  const CommandModel root = kubectl::kubectl_commands();
  EXPECT_EQ(root.commands.size(), 9U);
  for (const CommandModel* command : all_commands(root)) {
    std::vector<std::string> words = command->path;
    words.emplace_back("-");
    std::vector<std::string> names;
    for (const auto* some : {&command->options, &command->inherited})
      for (const OptionModel& option : *some)
        names.insert(names.end(), option.names.begin(), option.names.end());
    EXPECT_THAT(advertised(words), IsSupersetOf(names)) << command->words();
    EXPECT_THAT(names, IsSupersetOf({"--output", "--kubeconfig", "--context", "--help"})) << command->words();
  }
}

TEST(KubectlCompletion, FoldersAreTheShells) {
  const CommandModel root{.options = {{.names = {"--into"}, .value = "DIR"}},
                          .positionals = {{.value = "WORD", .words = {"one", "two"}, .repeats = true}}};
  EXPECT_THAT(words_of(kubectl::kubectl_completion(root, {"--into", ""}, names)), ElementsAre(":16"));
  EXPECT_THAT(words_of(kubectl::kubectl_completion(root, {"one", "--into=x", "t"}, names)),
              ElementsAre("two", ":4"));
}

TEST(KubectlCompletion, IsAProgramBesideThePlugin) {
  const auto result = test::run_beside_ferry("kubectl_complete-ferry", {"doc"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(words_of(result.out), ElementsAre("doctor", ":4"));
  EXPECT_TRUE(kubectl::is_kubectl_completion("/usr/bin/kubectl_complete-ferry"));
  EXPECT_FALSE(kubectl::is_kubectl_completion("/usr/bin/kubectl-ferry"));
}

}  // namespace
}  // namespace ferry::cli
