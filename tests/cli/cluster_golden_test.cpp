// SPDX-License-Identifier: Apache-2.0
// What people read of whole clusters, character by character: tests/fixtures/clusters.
#include <filesystem>
#include <sstream>

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
  kubectl::ClusterGpus cluster() const { return kubectl::cluster_gpus(composed().objects); }
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

TEST_P(ClusterGolden, IsADocumentForMachines) {
  const kubectl::ClusterGpus gpus = cluster();
  nlohmann::json out = {{"list", kubectl::list_document(gpus)}, {"vms", kubectl::vms_document(gpus)}};
  for (const kubectl::ClusterNode& node : gpus.nodes)
    out["node"][node.name] = kubectl::node_document(gpus, node);
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
