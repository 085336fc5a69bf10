// SPDX-License-Identifier: Apache-2.0
// A GPU whose driver has not returned from a write may keep a lock that its attributes take: whoever reads
// one hangs too. Here what such a read would give is there, and must not be seen.
#include <gmock/gmock.h>

#include "tests/vgpu-dm/kind_node.h"

namespace ferry::vgpu {
namespace {

using test::KindNode;
using test::on;
using testing::IsEmpty;

class StuckGpu : public testing::TestWithParam<const mdev::Framework*> {
 protected:
  StuckGpu() {
    carrier_ = GetParam() == &mdev::mediated_on_gpu() ? KindNode::gpu(0) : node.vf(7);
    node.add_vgpu(carrier_, "nvidia-232");
    node.kernel.hang_change(GetParam() == &mdev::vendor_vfio() ? 2 : 1);  // behind the file of names
    EXPECT_EQ(test::code_of(apply("{T4-4Q: 2}").error), Errc::stuck);
    node.kernel.forget_changes();
  }
  GpuOutcome apply(const char* vgpus) { return node.apply(on("[0]", vgpus)).gpus.at(0); }
  KindNode node{GetParam(), 2};
  std::string carrier_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, StuckGpu, testing::ValuesIn(test::frameworks()),
                         [](const auto& row) { return test::name_of(row.param); });

TEST_P(StuckGpu, IsReportedWithoutItsDriver) {
  const mdev::VgpuInventory now = node.snapshot().inventory;
  const mdev::VgpuGpu& stuck = now.gpus.at(0);
  EXPECT_EQ(stuck.framework, GetParam());
  ASSERT_FALSE(stuck.parents.empty());
  for (const mdev::VgpuParent& parent : stuck.parents) {
    EXPECT_THAT(parent.types, IsEmpty());
    EXPECT_EQ(test::code_of(parent.problem), Errc::stuck) << "also of those that the write was not to";
  }
  for (const mdev::VgpuDevice& device : stuck.devices) {
    EXPECT_FALSE(device.params);
    EXPECT_FALSE(device.placement);
    EXPECT_FALSE(device.nodes.empty()) << "which the kernel serves";
  }
  EXPECT_EQ(stuck.devices.size(), GetParam() == &mdev::vendor_vfio() ? 0U : 1U);
  EXPECT_TRUE(mdev::carriers_of_vgpus(now).contains(stuck.address()));
  for (const mdev::VgpuParent& parent : now.gpus.at(1).parents) EXPECT_FALSE(parent.problem);
  EXPECT_FALSE(now.gpus.at(1).parents.front().types.empty());
}

TEST_P(StuckGpu, IsReadAgainWithoutItsDriver) {
  const vfio::Inventory inventory = vfio::scan(node.kernel).value();
  mdev::VgpuGpu again =
      mdev::scan_gpu_again(node.kernel, inventory, node.snapshot().inventory.gpus.at(0)).value();
  mdev::scan_devices_again(node.kernel, inventory, mdev::VgpuFacts::all, again);
  for (const mdev::VgpuParent& parent : again.parents) EXPECT_EQ(test::code_of(parent.problem), Errc::stuck);
  for (const mdev::VgpuDevice& device : again.devices) EXPECT_FALSE(device.placement || device.params);
}

TEST_P(StuckGpu, IsLeftAlone) {
  for (const char* vgpus : {"{T4-4Q: 1}", "{T4-4Q: 2}", "{}"})
    EXPECT_EQ(test::code_of(apply(vgpus).error), Errc::stuck) << vgpus;
  const auto removed = remove_vgpus(node.host(), {.gpus = {}, .foreign = true});
  ASSERT_TRUE(removed);
  EXPECT_EQ(test::code_of(removed->gpus.at(0).error), Errc::stuck);
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
  node.kernel.release_stuck();
  EXPECT_EQ(apply("{T4-4Q: 2}").kind, GpuOutcome::Kind::changed);
}

}  // namespace
}  // namespace ferry::vgpu
