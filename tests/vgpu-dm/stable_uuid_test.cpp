// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/stable_uuid.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/fake_kernel.h"

namespace ferry::vgpu {
namespace {

const vfio::PciAddress kGpu = vfio::PciAddress::parse("0000:05:00.0").value();

// If this changes, every node's vGPUs get other UUIDs at the next reboot.
TEST(StableUuid, IsTheSameForEver) {
  EXPECT_EQ(stable_uuid("node-a", kGpu, "T4-4Q", 0).text, "bd40a3eb-561e-5804-8816-a0891d245ae7");
}

TEST(StableUuid, OfAClaimIsTheSameForEver) {
  constexpr const char* kClaim = "5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711";
  EXPECT_EQ(claim_uuid(kClaim, 0).text, "4e6f5e95-038f-5a9e-bbcd-05b340b6a27e");
  EXPECT_EQ(claim_uuid(kClaim, 1).text, "1c4c6161-9e48-58c0-938d-256c997981ed");
}

TEST(StableUuid, IsANameBasedUuid) {
  const mdev::VgpuId id = stable_uuid("node-a", kGpu, "T4-4Q", 0);
  EXPECT_EQ(mdev::parse_mdev_uuid(id.text).value(), id);
  EXPECT_EQ(id.text[14], '5');
}

TEST(StableUuid, DiffersByEachPartOfItsName) {
  const vfio::PciAddress other = vfio::PciAddress::parse("0000:05:00.1").value();
  const std::set<mdev::VgpuId> ids = {
      stable_uuid("node-a", kGpu, "T4-4Q", 0),  stable_uuid("node-b", kGpu, "T4-4Q", 0),
      stable_uuid("node-a", other, "T4-4Q", 0), stable_uuid("node-a", kGpu, "T4-4C", 0),
      stable_uuid("node-a", kGpu, "T4-4Q", 1),
  };
  EXPECT_EQ(ids.size(), 5U);
}

mdev::VgpuDevice device(const mdev::VgpuId& id) {
  return {.id = id,
          .parent = kGpu,
          .type_id = "nvidia-232",
          .type_name = "GRID T4-4Q",
          .short_name = "T4-4Q",
          .iommu_group = {},
          .driver = {},
          .gpu_instance = {},
          .nodes = {}};
}

TEST(StableUuid, ShowsWhoseAVgpuIs) {
  EXPECT_TRUE(is_ours("node-a", device(stable_uuid("node-a", kGpu, "T4-4Q", 17))));
  EXPECT_FALSE(is_ours("node-b", device(stable_uuid("node-a", kGpu, "T4-4Q", 17))));
  EXPECT_FALSE(is_ours("node-a", device(stable_uuid("node-a", kGpu, "T4-4C", 17))));
  EXPECT_FALSE(is_ours("node-a", device({"5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10"})));
  EXPECT_FALSE(is_ours("node-a", device({"5b6c0f0e-3b1d-5f0e-9a57-2f6f5f1f7a10"})));
  EXPECT_FALSE(is_ours("node-a", device({""})));
}

TEST(NodeIdentity, IsTheMachineId) {
  const test::FakeKernel kernel;
  kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  EXPECT_EQ(node_identity(kernel).value(), "0123456789abcdef0123456789abcdef");
}

TEST(NodeIdentity, IsRefusedWhereTheHostHasNone) {
  const test::FakeKernel kernel;
  const auto missing = node_identity(kernel);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::unsupported);
  EXPECT_EQ(missing.error().message, "open /etc/machine-id: No such file or directory");
  EXPECT_EQ(missing.error().hint,
            "`systemd-machine-id-setup` gives the host one: its vGPUs keep their UUIDs by it");
  for (const char* text :
       {"", "uninitialized\n", "0123456789ABCDEF0123456789ABCDEF\n", "0123456789abcdef\n"}) {
    kernel.file("etc/machine-id", text);
    const auto identity = node_identity(kernel);
    ASSERT_FALSE(identity) << text;
    EXPECT_EQ(identity.error().message, "/etc/machine-id holds no machine ID");
  }
}

}  // namespace
}  // namespace ferry::vgpu
