// SPDX-License-Identifier: Apache-2.0
// What people read of whole machines, character by character: tests/fixtures/status and
// tests/fixtures/explain.
#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli/output/status_document.h"
#include "cli/output/status_text.h"
#include "cli/verbs/node_inputs.h"
#include "tests/support/captured_host.h"
#include "tests/support/golden.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "tests/vfio/machines.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::must;
using test::visible;
using testing::HasSubstr;
using testing::Le;

/// The host at `root`, with `users` for its processes.
Session session_at(const std::filesystem::path& root,
                   const std::map<std::string, std::vector<vfio::DeviceUser>>& users) {
  Session session = open_session(root);
  auto probe = std::make_unique<test::TableProbe>();
  probe->users = users;
  session.probe = std::move(probe);
  return session;
}

std::filesystem::path fixture(const std::string& verb, const std::string& machine) {
  return std::filesystem::path(FERRY_FIXTURES) / verb / (machine + ".txt");
}

void expect_to_fit(const std::string& text, std::size_t columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(width_of(line), Le(columns)) << line;
}

/// The text in colours, 80 and 160 columns wide, into which it fits. Without colours it is the same text.
template <typename Draw>
std::string on_all_canvases(const std::string& head, const Draw& draw) {
  static const std::regex colour("\033\\[[0-9;]*m");
  std::string out = head;
  for (const std::size_t columns : {80U, 160U}) {
    const std::string plain = draw({.columns = columns});
    expect_to_fit(plain, columns);
    const std::string coloured = draw({.columns = columns, .colour = true});
    EXPECT_EQ(std::regex_replace(coloured, colour, ""), plain);
    out += fmt::format("\n== {} columns ==\n{}", columns, visible(coloured));
  }
  return out;
}

host::NodeDescription described(const Session& session, bool details = false) {
  return host::describe_node(must(snapshot_node(session, session.rules, details)), session.rules,
                             model_names(session));
}

std::string status_of(const Session& session, const std::string& head) {
  const host::NodeDescription description = described(session);
  return on_all_canvases(head, [&](const TextOutput& output) { return status_text(description, output); });
}

class StatusGolden : public testing::TestWithParam<std::string> {};

TEST_P(StatusGolden, OfAComposedMachine) {
  const test::ComposedMachine& composed = test::composed_machine(GetParam());
  test::Machine machine;
  composed.build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  test::expect_golden(fixture("status", composed.name),
                      status_of(session, fmt::format("Composed: {}.\n", composed.what)));
}

// What a program reads is what a person does.
TEST_P(StatusGolden, IsAsTheDocumentSays) {
  test::Machine machine;
  test::composed_machine(GetParam()).build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  const host::NodeDescription description = described(session, true);
  const std::string text = status_text(description, {});
  const json document = to_json(description);
  for (const json& gpu : document.at("accelerators")) {
    const auto line_at = text.find(gpu.at("address").get<std::string>());
    ASSERT_NE(line_at, std::string::npos);
    const std::string line = text.substr(line_at, text.find('\n', line_at) - line_at);
    EXPECT_THAT(line, HasSubstr(gpu.at("mode").get<std::string>()));
    EXPECT_THAT(line, HasSubstr(gpu.at("condition").at("word").get<std::string>()));
    const json& condition = gpu.at("condition");
    EXPECT_EQ(condition.at("health") == "good", condition.at("reason").get<std::string>().empty())
        << "a reason beside every word that is not good";
    EXPECT_THAT(text, HasSubstr(condition.at("reason").get<std::string>()));
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, StatusGolden, testing::ValuesIn(test::machine_names()),
                         test::row_of_machine);

class CapturedGolden : public testing::TestWithParam<std::string> {};

TEST_P(CapturedGolden, OfACapturedHost) {
  const test::CapturedHost host(GetParam());
  const Session session = session_at(host.root(), {});
  test::expect_golden(fixture("status", GetParam()), status_of(session, "Captured: tests/fixtures/hosts.\n"));
}
INSTANTIATE_TEST_SUITE_P(Hosts, CapturedGolden, testing::ValuesIn(test::captured_hosts()),
                         test::row_of_machine);

/// The lines of a part; none: there is no such part.
std::vector<std::string> lines_of(const Explanation& explanation, const std::string& label) {
  std::vector<std::string> out;
  for (const ExplanationLine& line : explanation.lines)
    if (line.label == label) out.push_back(line.text);
  return out;
}

/// Something to do, and not only the way back.
bool says_what_would_help(const Explanation& explanation) {
  return std::ranges::any_of(lines_of(explanation, "to change"), [](const std::string& line) {
    return line.starts_with("hint: ") || line.starts_with("`ferry doctor`") ||
           line.starts_with("`ferry vfio bind ");
  });
}

/// Each `ferry explain WORD` of a text, as its line has it.
std::vector<std::pair<std::string, std::string>> explanations_of(const std::string& text) {
  const std::regex reported("`ferry explain ([^`]+)`[^\n]*");
  std::vector<std::pair<std::string, std::string>> out;
  for (std::sregex_iterator at(text.begin(), text.end(), reported), end; at != end; ++at)
    out.emplace_back((*at)[1].str(), at->str());
  return out;
}

// Whoever follows a hint of `ferry status` finds what it promises.
TEST_P(StatusGolden, PointsToNothingThatExplainLacks) {
  test::Machine machine;
  test::composed_machine(GetParam()).build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  const ExplainInputs inputs = must(read_explain_inputs(session));
  for (const auto& [word, line] : explanations_of(status_text(inputs.description, {}))) {
    const auto subject = find_subject(inputs, word);
    ASSERT_TRUE(subject) << line;
    const Explanation explanation = explanation_of(inputs, *subject);
    EXPECT_THAT(lines_of(explanation, "used by"), testing::Not(testing::IsEmpty())) << line;
    for (const auto& [next, promise] : explanations_of(explanation_text(explanation, {})))
      EXPECT_TRUE(find_subject(inputs, next)) << promise;
  }
  for (const host::AcceleratorDescription& gpu : inputs.description.accelerators) {
    if (gpu.condition.health != host::Health::bad || !gpu.condition.hint.empty()) continue;
    const Explanation explanation = explanation_of(inputs, must(find_subject(inputs, gpu.address().text())));
    EXPECT_TRUE(says_what_would_help(explanation)) << gpu.address().text() << ": " << gpu.condition.reason;
  }
}

struct Explained {
  std::string machine;
  std::vector<std::string> words;
};
void PrintTo(const Explained& row, std::ostream* out) {
  *out << row.machine;
}

std::string explained_name(const testing::TestParamInfo<Explained>& info) {
  return test::row_of_machine(testing::TestParamInfo<std::string>(info.param.machine, info.index));
}

/// What `ferry explain` says of each word, on every canvas; and that the document has as much to say.
std::string explained(const ExplainInputs& inputs, const std::vector<std::string>& words,
                      const std::string& head) {
  std::string out = head;
  for (const std::string& word : words) {
    const Subject subject = must(find_subject(inputs, word));
    const Explanation explanation = explanation_of(inputs, subject);
    out += on_all_canvases(fmt::format("\n# ferry explain {}\n", word),
                           [&](const TextOutput& output) { return explanation_text(explanation, output); });
    const json document = to_json(inputs, subject);
    for (const ExplanationLine& line : explanation.lines)
      EXPECT_EQ(document.at("description").at(line.label).size(), lines_of(explanation, line.label).size())
          << word << ' ' << line.label;
  }
  return out;
}

class ExplainGolden : public testing::TestWithParam<Explained> {};

TEST_P(ExplainGolden, OfAComposedMachine) {
  const test::ComposedMachine& composed = test::composed_machine(GetParam().machine);
  test::Machine machine;
  composed.build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  ExplainInputs inputs = must(read_explain_inputs(session));
  inputs.plugin_runs = true;
  test::expect_golden(fixture("explain", composed.name),
                      explained(inputs, GetParam().words, fmt::format("Composed: {}.\n", composed.what)));
}

TEST_P(CapturedGolden, ExplainsEachAccelerator) {
  const test::CapturedHost host(GetParam());
  const Session session = session_at(host.root(), {});
  const ExplainInputs inputs = must(read_explain_inputs(session));
  std::vector<std::string> words;
  words.reserve(inputs.description.accelerators.size());
  for (const host::AcceleratorDescription& gpu : inputs.description.accelerators)
    words.push_back(gpu.address().text());
  EXPECT_THAT(words, testing::Not(testing::IsEmpty()));
  test::expect_golden(fixture("explain", GetParam()),
                      explained(inputs, words, "Captured: tests/fixtures/hosts.\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Machines, ExplainGolden,
    testing::Values(
        Explained{"laptop", {"0000:01:00.0", "0000:01:00.1", "0000:00:02.0"}},
        Explained{"nvswitch-board", {"0000:18:00.0", "0000:05:00.0"}},
        Explained{"t4-server",
                  {"0000:3b:00.0", "0000:5e:00.0", "0000:af:00.0", "566b0cda-8c18-5fd3-92cb-496c5a60815f",
                   "nvidia.com/TU104GL_TESLA_T4"}},
        Explained{"sriov-host", {"0000:17:00.0", "0000:17:00.4", "0000:ca:00.5"}},
        Explained{"grace", {"0009:01:00.0", "0019:01:00.0"}}, Explained{"without-iommu", {"0000:01:00.0"}},
        Explained{"mixed-vendors", {"0000:05:01.0", "0000:05:02.0"}}, Explained{"large", {"0000:10:00.0"}},
        Explained{"broken", {"0000:21:00.0", "0000:22:00.0", "0000:23:00.0", "0000:24:00.0", "0000:25:00.0"}},
        Explained{"one-group", {"0000:42:00.0", "0000:45:00.0"}},
        Explained{"policy-node", {"0000:18:00.0", "0000:2a:00.0"}},
        Explained{"workstation", {"0000:01:00.0"}}, Explained{"empty", {"0000:00:1f.6"}}),
    explained_name);

TEST(ExplainUnknown, NamesWhatWasProbablyMeant) {
  test::Machine machine;
  test::composed_machine("t4-server").build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  const ExplainInputs inputs = must(read_explain_inputs(session));
  struct Row {
    std::string word;
    std::string message;
    std::string hint;
  };
  for (const Row& row : {Row{"0000:5f:00.0", "did you mean '0000:5e:00.0'?",
                             "`ferry status` lists addresses, with -o json UUIDs and names too"},
                         Row{"nvidia.com/TU104GL_TESLA_T5", "did you mean 'nvidia.com/TU104GL_TESLA_T4'?",
                             "a resource's name"},
                         Row{"566b0cda-8c18-5fd3-92cb-496c5a60815e",
                             "did you mean '566b0cda-8c18-5fd3-92cb-496c5a60815f'?", "a vGPU's UUID"},
                         Row{"T4", "nothing on this node is called 'T4'",
                             "`ferry status` lists addresses, with -o json UUIDs and names too"}}) {
    const auto subject = find_subject(inputs, row.word);
    ASSERT_FALSE(subject) << row.word;
    EXPECT_EQ(subject.error().code, Errc::usage);
    EXPECT_THAT(subject.error().message, HasSubstr(row.message));
    EXPECT_THAT(subject.error().hint, HasSubstr(row.hint));
  }
  EXPECT_TRUE(find_subject(inputs, "0000:5E:00.0")) << "letter case aside";
  EXPECT_TRUE(find_subject(inputs, "566B0CDA-8c18-5fd3-92cb-496c5a60815f"));
}

// For Kata the kubelet knows numbers.
TEST(ExplainResource, NamesWhatCanBeAskedForNext) {
  test::Machine machine;
  test::composed_machine("t4-server").build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  ExplainInputs inputs = must(read_explain_inputs(session));
  const std::string gpu = "0000:3b:00.0";
  const auto group = inputs.snapshot.inventory.find(*vfio::PciAddress::parse(gpu))->iommu_group;
  inputs.snapshot.advertised = api::AdvertisedResources{.devices = {{.resource = "nvidia.com/pgpu",
                                                                     .id = "42",
                                                                     .iommu_group = group.value_or(0),
                                                                     .allocated = true,
                                                                     .pod = "studio/render-a"}},
                                                        .resources = {{.name = "nvidia.com/pgpu"}}};
  const std::string text =
      explanation_text(explanation_of(inputs, must(find_subject(inputs, "nvidia.com/pgpu"))), {});
  EXPECT_THAT(text, HasSubstr("42 (0000:3b:00.0), allocated to pod studio/render-a\n"));
  EXPECT_THAT(text, HasSubstr("`ferry explain 0000:3b:00.0` describes one of them\n"));
  const Subject by_number = must(find_subject(inputs, "42"));
  EXPECT_EQ(by_number.vgpu + by_number.resource, "");
  EXPECT_EQ(by_number.address.text(), gpu);
  EXPECT_FALSE(find_subject(inputs, "43"));
}

// Kubernetes' names are as long as 253 characters, without a blank.
TEST(StatusText, FitsIntoEightyColumnsWithLongNames) {
  test::Machine machine;
  test::composed_machine("t4-server").build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  ExplainInputs inputs = must(read_explain_inputs(session));
  const std::string pod =
      "team-with-a-rather-long-namespace-name-01/virt-launcher-workstation-of-the-design-department-x7k2p";
  const std::string resource =
      "nvidia.com/GB202GL_RTX_PRO_6000_BLACKWELL_MAXQ_WORKSTATION_EDITION_IN_FRANKFURT";
  host::AcceleratorDescription& gpu = inputs.description.accelerators.at(0);
  gpu.condition = {.word = "blocked", .health = host::Health::bad, .reason = "in use: pod " + pod};
  gpu.advertised_as = {{.resource = resource, .id = "0000:3b:00.0", .allocated = true, .pod = pod}};
  inputs.snapshot.advertised = api::AdvertisedResources{
      .devices = {{.resource = resource, .id = "0000:3b:00.0", .allocated = true, .pod = pod}},
      .resources = {{.name = resource}}};
  for (const std::size_t columns : {40U, 80U}) {
    const TextOutput output{.columns = columns};
    // The columns of the table themselves take 60 and more.
    if (columns == 80U) expect_to_fit(status_text(inputs.description, output), columns);
    for (const std::string& word : {std::string("0000:3b:00.0"), resource}) {
      std::string text = explanation_text(explanation_of(inputs, must(find_subject(inputs, word))), output);
      expect_to_fit(text, columns);
      std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
      EXPECT_THAT(text, HasSubstr(pod)) << "nothing is left out";
    }
  }
}

// As the text names it.
TEST(StatusDocument, NamesThePodThatHasADevice) {
  const api::AdvertisedDevice free{.resource = "nvidia.com/pgpu", .id = "42"};
  EXPECT_TRUE(to_json(free).at("pod").is_null());
  api::AdvertisedDevice given = free;
  given.allocated = true;
  given.pod = "studio/render-a";
  EXPECT_EQ(to_json(given).at("pod"), "studio/render-a");
}

// What hostd could not do stands in no row, and may be long.
TEST(StatusText, FitsIntoEightyColumnsWithAnError) {
  test::Machine machine;
  test::composed_machine("policy-node").build(machine);
  const Session session = session_at(machine.kernel.root(), machine.users);
  host::NodeDescription description = described(session);
  const std::string message =
      "read /var/lib/ferry/desired.json: devices[3].vgpu-devices: expected the name of a type and how many "
      "of "
      "it, as in `A40-8Q: 6`, and this is a list of three names";
  const std::string hint =
      "docs/policy.md says how a policy file is written; `ferry apply --dry-run -f FILE` "
      "says what one would change";
  description.desired =
      api::DesiredMark{.generation = 1, .policy = "mixed", .source = "label gpu-ferry.io/policy=mixed"};
  description.phase = api::NodePhase::failed;
  description.error = api::StatusError{.message = message, .hint = hint};
  std::istringstream lines(status_text(description, {.columns = 80}));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(width_of(line), Le(80U)) << line;
    all += line + " ";
  }
  EXPECT_THAT(all, HasSubstr("): failed, " + message + " hint: " + hint + " "));
  EXPECT_THAT(status_text(description, {}), HasSubstr(": failed, " + message + "\nhint: " + hint + "\n"));
  EXPECT_THAT(status_text(description, {.columns = 80, .colour = true}),
              HasSubstr("\033[31mpolicy mixed (label gpu-ferry.io/policy=mixed): failed, read\033[0m\n"));
}

}  // namespace
}  // namespace ferry::cli
