// SPDX-License-Identifier: Apache-2.0
// The labels of whole machines, through all that they pass: a scan, state.json, the agent. Each set stands in
// tests/fixtures/labels; what a GPU is said to be is held against tests/fixtures/labels/models.tsv besides.
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "agent/feature_labels.h"
#include "agent/seen_host.h"
#include "cli/policy_inputs.h"
#include "cli/session.h"
#include "host/node_features.h"
#include "host/node_standings.h"
#include "host/state_file.h"
#include "tests/support/captured_host.h"
#include "tests/support/golden.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "vgpu-dm/label_name.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

using test::must;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(FERRY_FIXTURES) / "labels" / name;
}

/// As the agent reads it.
SeenHost seen_of(const Session& session) {
  ScannedNode node;
  node.inventory = must(scan(*session.host));
  node.vgpus = must(scan_known_vgpus(*session.host, node.inventory, session.rules));
  node.machine = machine_name(*session.host);
  NodeState state;
  state.accelerators = describe(node, {}, {}, model_names(session));
  state.features = features_of(node);
  return must(read_seen_host(state_file_text(state)));
}

struct Model {
  std::string product;
  std::string memory;
  std::string family;
};

std::map<std::string, Model> models() {
  std::map<std::string, Model> out;
  std::ifstream file(fixture("models.tsv"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream parts(line);
    std::string id;
    Model model;
    std::getline(parts, id, '\t');
    std::getline(parts, model.product, '\t');
    std::getline(parts, model.memory, '\t');
    std::getline(parts, model.family, '\t');
    out[id] = model;
  }
  return out;
}

/// What every GPU of a machine is; empty: they differ, or nobody knows.
std::string shared(const std::vector<Model>& gpus, std::string Model::*property) {
  std::set<std::string> all;
  for (const Model& gpu : gpus) all.insert(gpu.*property);
  return all.size() == 1 ? *all.begin() : std::string();
}

class LabelsGolden : public testing::TestWithParam<std::string> {
 protected:
  LabelsGolden() { test::composed_machine(GetParam()).build(machine_); }
  SeenHost seen() { return seen_of(open_session(machine_.kernel.root())); }

 private:
  test::Machine machine_;
};

std::string text_of(const SeenHost& host, const std::string& head) {
  std::string out = head + "\n\n";
  const Labels labels = feature_labels(host).value_or(Labels{{"unknown", ""}});
  for (const auto& [key, value] : labels) out += fmt::format("{}={}\n", key, value);
  return out;
}

TEST_P(LabelsGolden, OfAComposedMachine) {
  test::expect_golden(fixture(GetParam() + ".txt"),
                      text_of(seen(), fmt::format("Composed: {}.", test::composed_machine(GetParam()).what)));
}

TEST(CapturedLabels, AreAsInTheirFile) {
  for (const std::string& name : test::captured_hosts()) {
    const test::CapturedHost host(name);
    test::expect_golden(fixture(name + ".txt"),
                        text_of(seen_of(open_session(host.root())), "Captured: tests/fixtures/hosts."));
  }
}

TEST_P(LabelsGolden, SayWhatPublicSourcesSayOfTheGpus) {
  const SeenHost host = seen();
  const Labels labels = feature_labels(host).value_or(Labels());
  const auto known = models();
  std::vector<Model> gpus;
  for (const SeenAccelerator& gpu : host.accelerators) gpus.push_back(known.at(gpu.id));
  const auto label = [&](const std::string& name) {
    const auto found = labels.find("nvidia.com/gpu." + name);
    return found == labels.end() ? std::string() : found->second;
  };
  EXPECT_EQ(label("count"), gpus.empty() ? "" : std::to_string(gpus.size()));
  EXPECT_EQ(label("product"), shared(gpus, &Model::product));
  EXPECT_EQ(label("memory"), shared(gpus, &Model::memory));
  EXPECT_EQ(label("family"), shared(gpus, &Model::family));
  const bool mixed = !gpus.empty() && label("product").empty();
  for (const Model& gpu : gpus) {
    const auto same = std::ranges::count(gpus, gpu.product, [](const Model& other) { return other.product; });
    EXPECT_EQ(label(gpu.product + ".count"), mixed ? std::to_string(same) : "");
  }
}

TEST_P(LabelsGolden, AreSuchAsKubernetesTakes) {
  const Labels labels = feature_labels(seen()).value_or(Labels());
  for (const auto& [key, value] : labels) {
    const auto slash = key.find('/');
    EXPECT_TRUE(key.substr(0, slash) == "nvidia.com" || key.substr(0, slash) == "gpu-ferry.io") << key;
    EXPECT_TRUE(can_be_label(key.substr(slash + 1))) << key;
    EXPECT_TRUE(can_be_label(value)) << key << "=" << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, LabelsGolden, testing::ValuesIn(test::machine_names()),
                         test::row_of_machine);

}  // namespace
}  // namespace ferry
