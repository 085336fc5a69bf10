// SPDX-License-Identifier: Apache-2.0
// What people read of whole clusters, character by character: tests/fixtures/clusters.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kubectl/cluster_verbs.h"
#include "tests/cli/composed_clusters.h"
#include "tests/support/golden.h"

namespace ferry::cli {
namespace {

using test::ComposedCluster;
using testing::Le;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(FERRY_FIXTURES) / "clusters" / name;
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> out;
  for (const ComposedCluster& cluster : test::composed_clusters()) out.push_back(cluster.name);
  return out;
}

class ClusterGolden : public testing::TestWithParam<std::string> {
 protected:
  const ComposedCluster& composed() const { return test::composed_cluster(GetParam()); }
  kubectl::ClusterGpus cluster() const {
    kubectl::ClusterGpus out = kubectl::cluster_gpus(composed().objects);
    kubectl::drop_nodes_without_gpus(out);
    return out;
  }
};

TEST_P(ClusterGolden, IsTextForPeople) {
  std::string out = fmt::format("Composed: {}.\n", composed().what);
  for (const std::optional<std::size_t> columns :
       {std::optional<std::size_t>(80), std::optional<std::size_t>(160)}) {
    out += fmt::format("\n== list, {} columns ==\n{}", *columns, kubectl::list_text(cluster(), columns));
    out += fmt::format("\n== vms, {} columns ==\n{}", *columns, kubectl::vms_text(cluster(), columns));
    const kubectl::ClusterGpus gpus = cluster();
    for (const kubectl::ClusterNode& node : gpus.nodes)
      out += fmt::format("\n== node {}, {} columns ==\n{}", node.name, *columns,
                         kubectl::node_text(gpus, node, columns));
  }
  test::expect_golden(fixture(GetParam() + ".txt"), out);
}

// The golden file has each node and each VM once. The list has of each node its document without its labels,
// its notes and the command that shows more, so the file has the list's order alone. A VM that is a user in a
// node's document is named by its pod.
TEST_P(ClusterGolden, IsADocumentForMachines) {
  using nlohmann::json;
  const kubectl::ClusterGpus gpus = cluster();
  json list = kubectl::list_document(gpus);
  json vms = kubectl::vms_document(gpus);
  json out;
  json listed = json::array();
  json names = json::array();
  std::vector<json> users;
  for (const kubectl::ClusterNode& node : gpus.nodes) {
    json document = kubectl::node_document(gpus, node);
    out["node"][node.name] = document;
    for (const char* key : {"labels", "notes", "status_command"}) EXPECT_EQ(document.erase(key), 1U) << key;
    listed.push_back(document);
    names.push_back(node.name);
    for (const json& resource : document.at("resources"))
      users.insert(users.end(), resource.at("users").begin(), resource.at("users").end());
  }
  EXPECT_EQ(list.at("nodes"), listed);
  list["nodes"] = names;
  out["list"] = list;
  for (json& vm : vms.at("vms"))
    if (std::ranges::find(users, vm) != users.end()) vm = json(vm.at("pod"));
  out["vms"] = vms;
  test::expect_golden(fixture(GetParam() + ".json"), out.dump(1) + "\n");
}

TEST_P(ClusterGolden, FitsItsColumns) {
  for (const std::size_t columns : {80U, 100U, 160U}) {
    const kubectl::ClusterGpus gpus = cluster();
    std::string all = kubectl::list_text(gpus, columns) + kubectl::vms_text(gpus, columns);
    for (const kubectl::ClusterNode& node : gpus.nodes) all += kubectl::node_text(gpus, node, columns);
    std::istringstream lines(all);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(' ') != std::string::npos) {
        EXPECT_THAT(line.size(), Le(columns)) << line;
      }
    }
  }
}

TEST(ClusterList, CountsMoreInUseThanAreAllocatable) {
  kubectl::ClusterObjects objects;
  objects.nodes = {test::gpu_node("gpu-1", {{"gpu-ferry.io/state", "blocked"}}, {{test::kWholeL40s, 1}})};
  objects.nodes[0]["status"]["allocatable"][test::kWholeL40s] = "0";
  objects.pods = {test::launcher("demo", "gpu-vm", "gpu-1", {{test::kWholeL40s, 1}})};
  objects.vmis = {test::vmi("demo", "gpu-vm", "gpu-1", {test::kWholeL40s})};
  const std::string list = kubectl::list_text(kubectl::cluster_gpus(objects), 160U);
  EXPECT_THAT(list, testing::HasSubstr("  1 used  ")) << list;
  EXPECT_THAT(list, testing::HasSubstr("  0 allocatable")) << list;
  EXPECT_THAT(list, testing::HasSubstr("  1 not well")) << list;
}

INSTANTIATE_TEST_SUITE_P(All, ClusterGolden, testing::ValuesIn(cluster_names()), [](const auto& name) {
  std::string out = name.param;
  std::erase(out, '-');
  return out;
});

}  // namespace
}  // namespace ferry::cli
