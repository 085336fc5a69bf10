// SPDX-License-Identifier: Apache-2.0
// Which GPUs DRA has: tables without a host.
#include "host/claims/gpu_allocation.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr vfio::PciAddress kFirst{.domain = 0, .bus = 5, .device = 0, .function = 0};
constexpr vfio::PciAddress kSound{.domain = 0, .bus = 5, .device = 0, .function = 1};
constexpr vfio::PciAddress kSecond{.domain = 0, .bus = 6, .device = 0, .function = 0};
constexpr vfio::PciAddress kThird{.domain = 0, .bus = 7, .device = 0, .function = 0};
constexpr const char* kVgpu = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

/// The first two GPUs and a sound function share a group; the third GPU has one of its own.
ScannedNode three_gpus() {
  ScannedNode out;
  const auto add = [&](const vfio::PciAddress& address, std::uint32_t group, std::uint32_t class_code) {
    vfio::PciFunction function;
    function.address = address;
    function.vendor = 0x10de;
    function.class_code = class_code;
    function.iommu_group = group;
    out.inventory.groups[group].push_back(address);
    out.inventory.functions.emplace(address, function);
    return function;
  };
  for (const auto& [address, group] : {std::pair{kFirst, 5U}, {kSecond, 5U}, {kThird, 7U}}) {
    mdev::VgpuGpu gpu;
    gpu.function = add(address, group, 0x030200);
    out.vgpus.gpus.push_back(std::move(gpu));
  }
  add(kSound, 5, 0x040300);
  return out;
}

AllocationFacts for_dra(const std::vector<vfio::PciAddress>& gpus) {
  AllocationFacts out;
  for (const vfio::PciAddress& gpu : gpus) out.for_dra[gpu] = {};
  return out;
}

GpuUse used_by_a_vm() {
  const vfio::DeviceUser vm{
      .kind = vfio::DeviceUser::Kind::virtual_machine, .name = "tenant", .pid = 412, .what = "its group"};
  return {.users = {vm}, .reasons = {kFirst.text() + " is in use: " + vm.text()}};
}

std::set<std::string> ids(const Allocations& allocations) {
  return ids_of(allocations.unavailable);
}

TEST(GpuAllocation, IsTheDevicePluginsByDefault) {
  const Allocations out = allocate(three_gpus(), {});
  EXPECT_THAT(out.dra, IsEmpty());
  EXPECT_THAT(out.conditions, IsEmpty());
  EXPECT_THAT(out.unavailable, IsEmpty());
}

TEST(GpuAllocation, ChangesToDraOnceThePluginHasWithdrawnTheGpu) {
  const ScannedNode node = three_gpus();
  AllocationFacts facts = for_dra({kThird});
  facts.plugin_is_asked = true;
  const Allocations asked = allocate(node, facts);
  EXPECT_THAT(asked.dra, IsEmpty());
  EXPECT_EQ(asked.conditions.at(kThird).state, api::GpuState::pending);
  EXPECT_THAT(ids(asked), ElementsAre("0000:07:00.0"));
  EXPECT_EQ(asked.unavailable.at(0).reason, "the policy gives this GPU to DRA claims");
  facts.plugin_is_asked = false;
  const Allocations done = allocate(node, facts);
  EXPECT_THAT(done.dra, ElementsAre(kThird));
  EXPECT_THAT(done.conditions, IsEmpty());
  EXPECT_THAT(ids(done), ElementsAre("0000:07:00.0")) << "the plugin does not get it back";
}

TEST(GpuAllocation, StaysWithDraWithoutAnotherLook) {
  AllocationFacts facts = for_dra({kThird});
  facts.published = {kThird};
  facts.plugin_is_asked = true;
  facts.use[kThird] = used_by_a_vm();
  EXPECT_THAT(on_the_way_to_dra(three_gpus(), facts), IsEmpty());
  const Allocations out = allocate(three_gpus(), facts);
  EXPECT_THAT(out.dra, ElementsAre(kThird)) << "its user has it by a claim";
  EXPECT_THAT(out.conditions, IsEmpty());
}

TEST(GpuAllocation, WaitsForAllUsersOfTheIommuGroup) {
  const ScannedNode node = three_gpus();
  AllocationFacts facts = for_dra({kFirst, kSecond, kThird});
  facts.use[kFirst] = used_by_a_vm();
  const Allocations out = allocate(node, facts);
  EXPECT_THAT(out.dra, ElementsAre(kThird));
  for (const vfio::PciAddress& gpu : {kFirst, kSecond}) {
    const GpuCondition& condition = out.conditions.at(gpu);
    EXPECT_EQ(condition.state, api::GpuState::blocked);
    EXPECT_TRUE(condition.only_in_use());
    EXPECT_EQ(condition.users.size(), 1U);
    EXPECT_THAT(condition.reasons, ElementsAre(HasSubstr("VM tenant (pid 412)")));
    EXPECT_FALSE(condition.hint.empty());
  }
  EXPECT_THAT(ids(out), UnorderedElementsAre("0000:05:00.0", "0000:05:00.1", "0000:06:00.0", "0000:07:00.0"))
      << "no other pod gets them once the VM ends";
}

TEST(GpuAllocation, WaitsWhileAUserMayHaveBeenMissed) {
  AllocationFacts facts = for_dra({kThird});
  facts.use[kThird] = {.users = {}, .reasons = {"Ferry cannot find out whether it is in use"}};
  const Allocations out = allocate(three_gpus(), facts);
  EXPECT_THAT(out.dra, IsEmpty());
  EXPECT_EQ(out.conditions.at(kThird).state, api::GpuState::blocked);
  EXPECT_FALSE(out.conditions.at(kThird).only_in_use());
}

TEST(GpuAllocation, WaitsForVgpusThatNoClaimMade) {
  ScannedNode node = three_gpus();
  mdev::VgpuDevice vgpu;
  vgpu.id.text = kVgpu;
  node.vgpus.gpus[2].devices.push_back(vgpu);
  node.vgpus.gpus[2].functions = {{.domain = 0, .bus = 7, .device = 0, .function = 4}};
  AllocationFacts facts = for_dra({kThird});
  const Allocations waits = allocate(node, facts);
  EXPECT_THAT(waits.dra, IsEmpty());
  EXPECT_THAT(waits.conditions.at(kThird).reasons, ElementsAre("0000:07:00.0 has a vGPU that no claim made"));
  EXPECT_THAT(waits.conditions.at(kThird).hint, HasSubstr("ferry vgpu delete --device 0000:07:00.0"));
  EXPECT_THAT(ids(waits), UnorderedElementsAre("0000:07:00.0", "0000:07:00.4", kVgpu));
  facts.claimed = {kThird};
  EXPECT_THAT(allocate(node, facts).dra, ElementsAre(kThird)) << "a claim has the vGPU";
}

TEST(GpuAllocation, StaysWithClaimsWhateverThePolicySays) {
  const ScannedNode node = three_gpus();
  AllocationFacts facts;
  facts.published = {kFirst, kSecond, kThird};
  facts.claimed = {kSecond};
  EXPECT_THAT(kept_by_claims(node, facts), ElementsAre(kFirst, kSecond));
  const Allocations kept = allocate(node, facts);
  EXPECT_THAT(kept.dra, ElementsAre(kFirst, kSecond)) << "the whole group; the third GPU goes back";
  EXPECT_THAT(kept.conditions.at(kFirst).reasons, ElementsAre("a ResourceClaim has it"));
  EXPECT_EQ(kept.conditions.at(kFirst).state, api::GpuState::blocked);
  facts.use[kFirst] = used_by_a_vm();
  EXPECT_TRUE(allocate(node, facts).conditions.at(kFirst).only_in_use()) << "its pod can be evicted";
  facts.claimed.clear();
  EXPECT_THAT(allocate(node, facts).dra, IsEmpty());
}

TEST(GpuAllocation, LosesAGpuThatIsUnplugged) {
  constexpr vfio::PciAddress kGone{.domain = 0, .bus = 9, .device = 0, .function = 0};
  AllocationFacts facts;
  facts.claimed = {kGone};
  const Allocations out = allocate(three_gpus(), facts);
  EXPECT_THAT(out.dra, ElementsAre(kGone));
  EXPECT_THAT(out.conditions, IsEmpty());
  EXPECT_THAT(out.unavailable, IsEmpty());
}

TEST(GpuAllocation, ShowsInTheStatus) {
  const ScannedNode node = three_gpus();
  const auto described = describe(node, {{kFirst, policy::Mode::host}}, {}, {}, {kThird});
  ASSERT_EQ(described.size(), 3U);
  EXPECT_EQ(described[0].allocation, api::Allocation::device_plugin);
  EXPECT_EQ(described[1].state, api::GpuState::unmanaged);
  EXPECT_EQ(described[2].allocation, api::Allocation::dra);
  EXPECT_EQ(described[2].state, api::GpuState::ready);
  EXPECT_EQ(described[2].desired, std::nullopt);
}

}  // namespace
}  // namespace ferry::host
