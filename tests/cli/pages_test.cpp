// SPDX-License-Identifier: Apache-2.0
// Pages for people, held against the program: the commands that they show, the messages that they explain.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/output/claims_report.h"
#include "cli/output/status_document.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_commands.h"
#include "tests/support/fake_kernel.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::commands_in;
using test::lines_of;
using test::problem_with;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path kSource = FERRY_SOURCE;
const std::filesystem::path kTroubleshooting = kSource / "docs/troubleshooting.md";

TEST(WrittenCommands, AreFoundInALineOfAShell) {
  EXPECT_THAT(commands_in("  $ sudo ferry status -o json | jq . # ferry nothing"),
              ElementsAre(ElementsAre("status", "-o", "json")));
  EXPECT_THAT(commands_in("ferry a 'b c'; x | ferry d > e & ferry f"),
              ElementsAre(ElementsAre("a", "b c"), ElementsAre("d"), ElementsAre("f")));
  EXPECT_THAT(commands_in("the ferry leaves"), IsEmpty());
}

TEST(WrittenCommands, AreHeldAgainstTheTree) {
  const CommandModel root = ferry_commands();
  EXPECT_THAT(problem_with(root, {"--host-root", "/", "vfio", "bind", "--device=x", "-o", "json"}),
              IsEmpty());
  EXPECT_THAT(problem_with(root, {"vfio", "--help"}), IsEmpty());
  EXPECT_THAT(problem_with(root, {"explain", "x"}), IsEmpty());
  EXPECT_THAT(problem_with(root, {"vfio"}), HasSubstr("needs a command"));
  EXPECT_THAT(problem_with(root, {"vfio", "bnid"}), HasSubstr("takes no 'bnid'"));
  EXPECT_THAT(problem_with(root, {"status", "--device", "x"}), HasSubstr("no option --device"));
  EXPECT_THAT(problem_with(root, {"vfio", "bind", "--device"}), HasSubstr("has no value"));
  EXPECT_THAT(problem_with(root, {"vfio", "bind", "--all=1"}), HasSubstr("takes no value"));
}

bool is_three_backticks(const std::string& line) {
  return line.starts_with("```");
}

/// Of `kubectl exec ... -- COMMAND` the command that runs in the container.
std::string command_of(const std::string& line) {
  const auto at = line.find(" exec ") == std::string::npos ? std::string::npos : line.find(" -- ");
  return at == std::string::npos ? line : line.substr(at + 4);
}

TEST(Pages, ShowCommandsThatAreUnderstood) {
  const CommandModel root = ferry_commands();
  std::vector<std::filesystem::path> pages = {kSource / "README.md", kSource / "SECURITY.md",
                                              kSource / "images/README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  std::size_t seen = 0;
  for (const auto& page : pages) {
    bool fenced = false;
    for (const std::string& line : lines_of(page)) {
      if (is_three_backticks(line)) fenced = !fenced;
      if (!fenced && !line.starts_with("    ")) continue;
      for (const auto& words : commands_in(command_of(line))) {
        ++seen;
        EXPECT_THAT(problem_with(root, words), IsEmpty()) << page << ": " << line;
      }
    }
  }
  EXPECT_GT(seen, 10U);
}

/// What stands between backticks.
std::vector<std::string> code_in(std::string_view line) {
  std::vector<std::string> out;
  for (;;) {
    const auto start = line.find('`');
    if (start == std::string_view::npos) return out;
    const auto end = line.find('`', start + 1);
    if (end == std::string_view::npos) return out;
    out.emplace_back(line.substr(start + 1, end - start - 1));
    line.remove_prefix(end + 1);
  }
}

TEST(Troubleshooting, NamesCommandsThatAreUnderstood) {
  const CommandModel root = ferry_commands();
  std::size_t seen = 0;
  for (const std::string& line : lines_of(kTroubleshooting)) {
    for (const std::string& code : code_in(line)) {
      for (const auto& words : commands_in(code)) {
        ++seen;
        EXPECT_THAT(problem_with(root, words), IsEmpty()) << code;
      }
    }
  }
  EXPECT_GT(seen, 20U);
}

/// The text of every string literal of the program, those that the compiler puts together put together.
std::string messages() {
  std::string out;
  for (const char* room : {"common", "hostfs", "vfio", "mdev", "vgpu-dm", "policy", "host", "kubevirt-plugin",
                           "kata-manager", "kube", "agent", "virt", "kubectl", "cli", "dra", "programs"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource / room)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      bool inside = false;
      for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '\n') inside = false;  // a quote in a comment that nothing ends
        if (inside && c == '\\') {
          ++at;
        } else if (c == '"' && (at == 0 || text[at - 1] != '\'')) {
          inside = !inside;
        } else if (inside) {
          out += c;
        } else if (std::string_view(" \n").find(c) == std::string_view::npos && !out.ends_with('\n')) {
          out += '\n';  // something other than blanks: the next literal is another one
        }
      }
    }
  }
  return out;
}

/// What stands around what is filled in ("a … b"), and around a colon: what follows one may be another's
/// message.
std::vector<std::string> fixed_parts(const std::string& message) {
  constexpr std::string_view kBlanks = " :,";
  std::string lines = message;
  for (const char* separator : {"…", ": "}) {
    for (auto at = lines.find(separator); at != std::string::npos; at = lines.find(separator, at))
      lines.replace(at, std::string_view(separator).size(), "\n");
  }
  std::vector<std::string> out;
  std::istringstream parts(lines);
  for (std::string part; std::getline(parts, part);) {
    const auto first = part.find_first_not_of(kBlanks);
    if (first != std::string::npos)
      out.push_back(part.substr(first, part.find_last_not_of(kBlanks) + 1 - first));
  }
  return out;
}

void expect_said(const std::vector<std::string>& explained, const std::string& all) {
  for (const std::string& message : explained) {
    for (const std::string& part : fixed_parts(message))
      EXPECT_NE(all.find(part), std::string::npos) << message << ": '" << part << "'";
  }
}

// "| `message` or `another` | what to do |"
std::vector<std::string> first_cell(const std::string& line) {
  return line.starts_with("| `") ? code_in(line.substr(0, line.find(" | "))) : std::vector<std::string>();
}

// Headings say what is explained, and so does the first cell of a row of a table.
TEST(Troubleshooting, ExplainsWhatTheProgramSays) {
  const std::string all = messages();
  std::size_t seen = 0;
  for (const std::string& line : lines_of(kTroubleshooting)) {
    std::vector<std::string> explained = first_cell(line);
    if (line.starts_with("### ")) {
      explained = code_in(line);
      EXPECT_THAT(explained, testing::SizeIs(1)) << line;
    }
    seen += explained.size();
    expect_said(explained, all);
  }
  EXPECT_GT(seen, 50U);
}

TEST(Troubleshooting, BeginsWithTheMostFrequentMessages) {
  const std::string all = messages();
  std::size_t seen = 0;
  bool inside = false;
  for (const std::string& line : lines_of(kTroubleshooting)) {
    if (line.starts_with("## ")) inside = line == "## The most frequent messages";
    if (!inside) continue;
    seen += first_cell(line).size();
    expect_said(first_cell(line), all);
  }
  EXPECT_GT(seen, 5U);
}

using Keys = std::map<std::string, std::set<std::string>>;  // by object

/// The objects have the names of their keys, lists with "[]".
void add_keys(const json& value, const std::string& object, Keys& to) {
  for (const auto& [key, below] : value.items()) {
    to[object].insert(key);
    const std::string name = object == "accelerators[]" && key == "desired" ? object + "." + key : key;
    if (below.is_object()) add_keys(below, name, to);
    if (!below.is_array()) continue;
    for (const json& one : below)
      if (one.is_object()) add_keys(one, name + "[]", to);
  }
}

/// A description in which everything is known.
host::NodeDescription full_description() {
  const vfio::PciAddress address{.bus = 0x17};
  host::AcceleratorDescription gpu;
  gpu.function.address = address;
  gpu.function.problem = Error{.code = Errc::failed, .message = "no answer"};
  gpu.members.emplace_back();
  gpu.users.emplace_back();
  gpu.advertised_as.emplace_back();
  gpu.vgpus.emplace_back().users = gpu.users;
  gpu.vgpus.front().advertised_as = gpu.advertised_as;
  gpu.status.emplace();
  gpu.prior.emplace();
  gpu.facts.emplace();
  gpu.facts->bars.emplace().emplace_back();
  gpu.facts->resizable_bars.emplace_back();
  host::NodeDescription out;
  out.accelerators.push_back(std::move(gpu));
  out.by_name.emplace_back().advertised_as.emplace_back();
  out.desired.emplace();
  return out;
}

TEST(CommandLinePage, HasEachKeyOfTheStatusDocument) {
  Keys printed;
  json document = to_json(full_description());
  std::vector<dra::CheckpointClaim> claims(1);
  claims.front().devices.emplace_back();
  document["claims"] = claims_document(claims);
  add_keys(document, "document", printed);
  // The verb adds keys of its own.
  const test::FakeKernel kernel;
  const auto result = test::run_ferry({"--host-root", kernel.root().string(), "status", "-o", "json"});
  add_keys(json::parse(result.out), "document", printed);
  Keys shown;
  bool inside = false;
  for (const std::string& line : lines_of(kSource / "docs/command-line.md")) {
    if (line.starts_with("#")) inside = line == "### Keys of ferry status -o json";
    if (!inside || !line.starts_with("| ") || line.starts_with("| ---") || line.starts_with("| object "))
      continue;
    const auto end = line.find(" | ");
    auto objects = code_in(line.substr(0, end));
    if (line.starts_with("| document ")) objects = {"document"};
    ASSERT_THAT(objects, testing::Not(IsEmpty())) << line;
    for (const std::string& object : objects)
      for (std::string& key : code_in(line.substr(end, line.find(" | ", end + 1) - end)))
        shown[object].insert(key);
  }
  EXPECT_EQ(shown, printed);
}

}  // namespace
}  // namespace ferry::cli
