// SPDX-License-Identifier: Apache-2.0
// The labels of whole machines, through all that they pass: a scan, status.json, the agent. Each set stands
// in tests/fixtures/labels; what a GPU is said to be is held against tests/fixtures/labels/models.tsv
// besides, and how many vGPUs it carries against tests/fixtures/shipped-vgpu-config.tsv.
#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "agent/labels/feature_labels.h"
#include "api/host_status.h"
#include "cli/session.h"
#include "cli/verbs/node_inputs.h"
#include "host/gpu_conditions.h"
#include "tests/support/captured_host.h"
#include "tests/support/golden.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "vgpu-dm/profile/profile.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

using test::must;

constexpr std::uint32_t kMany = 1000;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(FERRY_FIXTURES) / "labels" / name;
}

/// As the agent reads it.
api::HostStatus seen_of(const Session& session) {
  host::ScannedNode node;
  node.inventory = must(vfio::scan(*session.host));
  node.vgpus = must(vgpu::scan_known_vgpus(*session.host, node.inventory, session.rules));
  node.machine = host::machine_name(*session.host);
  api::HostStatus state;
  state.accelerators = host::describe(node, {}, {}, model_names(session));
  state.features = host::features_of(node);
  return must(api::read_host_status(api::host_status_text(state)));
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
  api::HostStatus seen() { return seen_of(open_session(machine_.kernel.root())); }

 private:
  test::Machine machine_;
};

std::string text_of(const api::HostStatus& host, const std::string& head) {
  std::string out = head + "\n\n";
  const agent::Labels labels = agent::feature_labels(host).value_or(agent::Labels{{"unknown", ""}});
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

/// How many vGPUs of a type one GPU carries, by the profile file that NVIDIA ships.
std::map<std::string, unsigned> shipped_counts() {
  std::map<std::string, unsigned> out;
  std::ifstream file(std::filesystem::path(FERRY_FIXTURES) / "shipped-vgpu-config.tsv");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream parts(line);
    std::array<std::string, 6> column;
    for (std::string& text : column) std::getline(parts, text, '\t');
    // Of the configuration that is called as its type, the first item is every GPU.
    if (column[0] == column[4]) out.emplace(column[4], static_cast<unsigned>(std::stoul(column[5])));
  }
  return out;
}

std::string label_of(const agent::Labels& labels, const std::string& key) {
  const auto found = labels.find(key);
  return found == labels.end() ? std::string() : found->second;
}

void expect_products_of_public_sources(const api::HostStatus& host, const agent::Labels& labels) {
  const auto known = models();
  std::vector<Model> gpus;
  gpus.reserve(host.accelerators.size());
  for (const api::AcceleratorStatus& gpu : host.accelerators) gpus.push_back(known.at(gpu.id));
  const auto label = [&](const std::string& name) { return label_of(labels, "nvidia.com/gpu." + name); };
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

/// The file knows no types for virtual applications and desktops (A, B). `host` has GPUs of one model.
/// `functions`: virtual functions that a GPU has at present, one for each vGPU.
void expect_vgpus_of_public_sources(const api::HostStatus& host, const agent::Labels& labels,
                                    std::uint32_t functions) {
  const auto carriers = std::ranges::count_if(host.accelerators, [](const api::AcceleratorStatus& gpu) {
    return !gpu.vgpus.empty() || !gpu.more_vgpus.empty();
  });
  std::size_t held = 0;
  for (const auto& [type, count] : shipped_counts()) {
    const std::string said = label_of(labels, "gpu-ferry.io/vgpu." + type + ".count");
    if (said.empty()) continue;
    EXPECT_EQ(said, std::to_string(std::min<std::int64_t>(count, functions) * carriers)) << type;
    ++held;
  }
  EXPECT_EQ(held > 0, carriers > 0);
}

void expect_what_public_sources_say(const api::HostStatus& host, std::uint32_t functions) {
  const agent::Labels labels = agent::feature_labels(host).value_or(agent::Labels());
  expect_products_of_public_sources(host, labels);
  expect_vgpus_of_public_sources(host, labels, functions);
}

TEST_P(LabelsGolden, SayWhatPublicSourcesSayOfTheGpus) {
  constexpr std::uint32_t kFunctions = 4;  // of each GPU of sriov-host
  expect_what_public_sources_say(seen(), std::string(GetParam()) == "sriov-host" ? kFunctions : kMany);
}

TEST(CapturedLabels, SayWhatPublicSourcesSayOfTheGpus) {
  for (const std::string& name : test::captured_hosts()) {
    SCOPED_TRACE(name);
    const test::CapturedHost host(name);
    const api::HostStatus seen = seen_of(open_session(host.root()));
    EXPECT_FALSE(seen.accelerators.empty());
    expect_what_public_sources_say(seen, kMany);
  }
}

TEST_P(LabelsGolden, AreSuchAsKubernetesTakes) {
  const agent::Labels labels = agent::feature_labels(seen()).value_or(agent::Labels());
  for (const auto& [key, value] : labels) {
    const auto slash = key.find('/');
    EXPECT_TRUE(key.substr(0, slash) == "nvidia.com" || key.substr(0, slash) == "gpu-ferry.io") << key;
    EXPECT_TRUE(vgpu::can_be_label(key.substr(slash + 1))) << key;
    EXPECT_TRUE(vgpu::can_be_label(value)) << key << "=" << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, LabelsGolden, testing::ValuesIn(test::machine_names()),
                         test::row_of_machine);

}  // namespace
}  // namespace ferry::cli
