// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <fcntl.h>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/kind_node.h"
#include "vgpu-dm/apply/gpu_run.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::KindNode;
using test::message_of;
using test::on;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Two vGPUs on a GPU that makes them on itself.
class RemovalFenceTest : public testing::Test {
 protected:
  RemovalFenceTest() { node_.make(on("[0]", "{T4-4Q: 2}")); }
  std::vector<VgpuStep> removals() {
    return plan_profile(on("[0]", "{}"), node_.snapshot()).gpus.at(0).steps;
  }
  mdev::VgpuGpu gpu() { return node_.snapshot().inventory.gpus.at(0); }
  /// The node of the vGPU that goes as the `number`th.
  std::string group_node(std::size_t number) {
    const mdev::VgpuGpu now = gpu();
    const auto device = std::ranges::find(now.devices, removals().at(number).id, &mdev::VgpuDevice::id);
    return "dev/vfio/" + std::to_string(device->iommu_group.value());
  }
  /// Nodes of groups that this process has open.
  std::vector<std::string> held() const {
    std::vector<std::string> out;
    const std::string nodes = (node_.kernel.root() / "dev/vfio/").string();
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed_meanwhile;
      const std::string file = std::filesystem::read_symlink(entry.path(), closed_meanwhile).string();
      if (file.starts_with(nodes)) out.push_back(file.substr(nodes.size()));
    }
    return out;
  }
  KindNode node_{&mdev::mediated_on_gpu()};
};

TEST_F(RemovalFenceTest, HoldsAllUntilItGoes) {
  {
    RemovalFence fence(node_.kernel);
    ASSERT_TRUE(fence.close(gpu(), removals()));
    EXPECT_THAT(held(), SizeIs(2));
    for (const VgpuStep& step : removals()) EXPECT_FALSE(fence.leaves_open(step));
  }
  EXPECT_THAT(held(), IsEmpty());
}

// The kernel gives a group's node to one opener.
TEST_F(RemovalFenceTest, RefusesAllWhereSomebodyHasOne) {
  const std::string taken = group_node(1);
  RemovalFence fence([&](const std::filesystem::path& relative) -> Result<UniqueFd> {
    if (relative == taken) return fail(error_from_errno(EBUSY, "open /" + relative.string()));
    return node_.kernel.open(relative, O_RDWR);
  });
  const auto closed = fence.close(gpu(), removals());
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, Errc::refused);
  EXPECT_EQ(closed.error().message, "GPU 0 (0000:05:00.0): vGPU " + removals().at(1).id.text +
                                        " (T4-4Q) would have to be removed: /" + taken +
                                        " was opened after the check for device users");
  EXPECT_THAT(held(), IsEmpty());
}

TEST_F(RemovalFenceTest, LeavesOpenWhatItMayNotOpen) {
  const std::string denied = group_node(0);
  RemovalFence fence([&](const std::filesystem::path& relative) -> Result<UniqueFd> {
    if (relative == denied) return fail(error_from_errno(EPERM, "open /" + relative.string()));
    return node_.kernel.open(relative, O_RDWR);
  });
  ASSERT_TRUE(fence.close(gpu(), removals()));
  EXPECT_TRUE(fence.leaves_open(removals().at(0)));
  EXPECT_FALSE(fence.leaves_open(removals().at(1)));
}

TEST(RemovalFenceOfVendorVfio, IsTheDrivers) {
  KindNode node(&mdev::vendor_vfio());
  node.make(on("[0]", "{T4-4Q: 1}"));
  const auto steps = plan_profile(on("[0]", "{}"), node.snapshot()).gpus.at(0).steps;
  RemovalFence fence(
      [](const std::filesystem::path&) -> Result<UniqueFd> { return fail(error_from_errno(EBUSY, "open")); });
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_TRUE(fence.close(node.snapshot().inventory.gpus.at(0), steps));
  EXPECT_FALSE(fence.leaves_open(steps.front()));
}

TEST_F(RemovalFenceTest, IsClosedOverTheRemovals) {
  std::size_t most = 0;
  ASSERT_TRUE(apply_profile(node_.host(), on("[0]", "{}"),
                            [&](const VgpuStep&, const Result<>&) { most = std::max(most, held().size()); }));
  EXPECT_EQ(most, 2U);
  EXPECT_THAT(held(), IsEmpty());
}

// A container without the nodes: a VM takes the second one while the first one goes.
TEST_F(RemovalFenceTest, WhereThereIsNoneUsersAreLookedForBeforeEach) {
  node_.kernel.remove(group_node(0));
  node_.kernel.remove(group_node(1));
  const std::string first = removals().at(0).id.text;
  const std::string second = removals().at(1).id.text;
  const auto before = node_.devices();
  node_.probe.before_scan = [&](int) {
    if (node_.devices().size() == 1) node_.probe.hold(second);
  };
  const GpuOutcome outcome = node_.apply(on("[0]", "{}")).gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("vGPU " + second + " (T4-4Q) would have to be removed"));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_EQ(node_.devices(), before);
}

}  // namespace
}  // namespace ferry::vgpu
