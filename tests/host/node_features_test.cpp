// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/gpu_conditions.h"
#include "policy/accelerators.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

using test::must;
using testing::Contains;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

class NodeFeaturesTest : public testing::Test {
 protected:
  ScannedNode node_of(const std::string& machine) {
    test::composed_machine(machine).build(machine_);
    ScannedNode node;
    node.inventory = must(vfio::scan(machine_.kernel));
    node.vgpus =
        must(vgpu::scan_known_vgpus(machine_.kernel, node.inventory, policy::default_accelerator_rules()));
    return node;
  }

  test::Machine machine_;
};

TEST_F(NodeFeaturesTest, TellTheIommuAndTheLargestGroupOfAGpu) {
  const api::NodeFeatures features = features_of(node_of("one-group"));
  EXPECT_EQ(features.iommu, "on");
  EXPECT_EQ(features.largest_group, 10U)
      << "four GPUs with their audio, a network card, the bridge above them";
}

TEST_F(NodeFeaturesTest, TellThatThereIsNoIommu) {
  const api::NodeFeatures off = features_of(node_of("without-iommu"));
  EXPECT_EQ(off.iommu, "off");
  EXPECT_EQ(off.largest_group, std::nullopt);
  ScannedNode unsafe;
  unsafe.inventory.groups[1] = {};
  unsafe.inventory.unsafe_noiommu = true;
  EXPECT_EQ(features_of(unsafe).iommu, "unsafe_noiommu");
}

// Four T4, of which two offer types; one of those is full, and says what it carries when it is empty.
TEST_F(NodeFeaturesTest, CountWhatGpusCarryWhenTheyAreEmpty) {
  const auto types = features_of(node_of("t4-server")).vgpu_types;
  EXPECT_THAT(types, Contains(Pair("T4-4Q", 8)));
  EXPECT_THAT(types, Contains(Pair("T4-16Q", 2)));
}

// A GPU that is divided without mdev lists what fits now; what it could carry is known by its board.
TEST_F(NodeFeaturesTest, DoNotChangeWithWhatIsCarriedNow) {
  ScannedNode node = node_of("sriov-host");
  const auto types = features_of(node).vgpu_types;
  EXPECT_THAT(types, Contains(Pair("L40S-12Q", 8)));
  for (mdev::VgpuGpu& gpu : node.vgpus.gpus) {
    gpu.devices.clear();
    for (mdev::VgpuParent& parent : gpu.parents) parent.types.clear();
    gpu.unlisted.clear();
  }
  vgpu::fill_in(node.vgpus.gpus);
  EXPECT_EQ(features_of(node).vgpu_types, types);
}

TEST_F(NodeFeaturesTest, LeaveOutTypesWhoseNumberIsNotKnownOfEach) {
  ScannedNode node = node_of("t4-server");
  bool forgotten = false;
  for (mdev::VgpuGpu& gpu : node.vgpus.gpus)
    for (mdev::VgpuParent& parent : gpu.parents)
      for (mdev::VgpuType& type : parent.types)
        if (type.short_name == "T4-4Q" && !std::exchange(forgotten, true)) type.max_instances.reset();
  ASSERT_TRUE(forgotten);
  const auto types = features_of(node).vgpu_types;
  EXPECT_THAT(types, Not(Contains(Key("T4-4Q"))));
  EXPECT_THAT(types, Contains(Pair("T4-16Q", 2)));
}

TEST_F(NodeFeaturesTest, CountNothingWhereAGpusTypesCannotBeRead) {
  ScannedNode node = node_of("t4-server");
  for (mdev::VgpuGpu& gpu : node.vgpus.gpus) {
    if (gpu.parents.empty()) continue;
    for (mdev::VgpuParent& parent : gpu.parents) {
      parent.types.clear();
      parent.problem = Error{.code = make_error_code(Errc::stuck), .message = "late", .hint = {}};
    }
    break;
  }
  EXPECT_THAT(features_of(node).vgpu_types, IsEmpty());
}

TEST_F(NodeFeaturesTest, NameTheMachineAsItsFirmwareDoes) {
  EXPECT_EQ(machine_name(machine_.kernel), "");
  machine_.kernel.file("sys/class/dmi/id/product_name", "Rack Server 2U\n");
  EXPECT_EQ(machine_name(machine_.kernel), "Rack Server 2U");
}

}  // namespace
}  // namespace ferry::host
