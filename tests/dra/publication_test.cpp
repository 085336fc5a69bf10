// SPDX-License-Identifier: Apache-2.0
#include "dra/slices/publication.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "dra/names.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::hold;
using test::kGiB;
using test::l4;
using test::mixed;
using test::names_of;
using test::node_with;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

const Device& device(const Publication& publication, std::string_view name) {
  const PublishedDevice* const found = publication.device(name);
  if (found == nullptr) throw std::runtime_error("no device " + std::string(name));
  return found->device;
}

Counters consumed(const Publication& publication, std::string_view name) {
  return device(publication, name).consumes.at(0).counters;
}

std::vector<std::string> tainted(const Publication& publication) {
  std::vector<std::string> out;
  for (const PublishedDevice& published : publication.devices)
    if (!published.device.taints.empty()) out.push_back(published.device.name);
  return out;
}

// One GPU.

TEST(Publication, OfAGpuHasItsVgpusAndTheWholeGpuLast) {
  const Publication published = publication_of(node_with({l4("0000:3b:00.0", 42)}));
  EXPECT_THAT(published.counter_sets,
              ElementsAre(CounterSet{.name = "group-42", .counters = {{"framebuffer", 24 * kGiB}}}));
  EXPECT_THAT(names_of(published),
              ElementsAre("vgpu-0000-3b-00-0-1150-0", "vgpu-0000-3b-00-0-1150-1", "vgpu-0000-3b-00-0-1150-2",
                          "vgpu-0000-3b-00-0-1150-3", "vgpu-0000-3b-00-0-1152-0", "vgpu-0000-3b-00-0-1152-1",
                          "whole-0000-3b-00-0"));
  EXPECT_EQ(consumed(published, "vgpu-0000-3b-00-0-1150-3"), (Counters{{"framebuffer", 6 * kGiB}}));
  EXPECT_EQ(consumed(published, "vgpu-0000-3b-00-0-1152-1"), (Counters{{"framebuffer", 12 * kGiB}}));
  EXPECT_EQ(consumed(published, "whole-0000-3b-00-0"), (Counters{{"framebuffer", 24 * kGiB}}));
  EXPECT_THAT(tainted(published), IsEmpty());
  EXPECT_THAT(published.notes, IsEmpty());
}

TEST(Publication, GivesEachDeviceTheSameAttributes) {
  const Publication published = publication_of(node_with({l4("0000:3b:00.0", 42)}));
  const Device& whole = device(published, "whole-0000-3b-00-0");
  EXPECT_EQ(whole.attributes, (Attributes{{"type", "whole"},
                                          {"productName", "AD104GL [L4]"},
                                          {"vendorID", "0x10de"},
                                          {"deviceID", "0x27b8"},
                                          {"iommuGroup", 42},
                                          {"profile", ""},
                                          {"vgpuType", ""},
                                          {"typeID", 0},
                                          {"vgpuFramework", ""},
                                          {"resource.kubernetes.io/numaNode", 1},
                                          {"resource.kubernetes.io/pcieRoot", "pci0000:3a"},
                                          {"resource.kubernetes.io/pciBusID", "0000:3b:00.0"}}));
  EXPECT_EQ(whole.capacity, (Counters{{"framebuffer", 23034ULL << 20U}}));
  const Device& vgpu = device(published, "vgpu-0000-3b-00-0-1152-0");
  EXPECT_EQ(vgpu.attributes.at("type"), Attribute("vgpu"));
  EXPECT_EQ(vgpu.attributes.at("profile"), Attribute("NVIDIA L4-12Q"));
  EXPECT_EQ(vgpu.attributes.at("vgpuType"), Attribute("L4-12Q"));
  EXPECT_EQ(vgpu.attributes.at("typeID"), Attribute(1152));
  EXPECT_EQ(vgpu.attributes.at("vgpuFramework"), Attribute("vdev"));
  EXPECT_EQ(vgpu.capacity, (Counters{{"framebuffer", 12 * kGiB}}));
  EXPECT_FALSE(vgpu.attributes.contains("resource.kubernetes.io/pciBusID"))
      << "its function is not known yet";
  EXPECT_EQ(vgpu.attributes.size() + 1, whole.attributes.size());
}

TEST(Publication, LeavesOutWhatTheServerWouldRefuse) {
  Gpu gpu = l4("10000:e1:00.0", 42);
  gpu.product = std::string(100, 'x');
  gpu.numa_node = {};
  gpu.pcie_root = {};
  const Device whole = device(publication_of(node_with({gpu})), "whole-10000-e1-00-0");
  EXPECT_FALSE(whole.attributes.contains("resource.kubernetes.io/pciBusID"));
  EXPECT_FALSE(whole.attributes.contains("resource.kubernetes.io/numaNode"));
  EXPECT_FALSE(whole.attributes.contains("resource.kubernetes.io/pcieRoot"));
  EXPECT_EQ(whole.attributes.at("productName"), Attribute(std::string(64, 'x')));
}

TEST(Publication, CountsInstancesOnlyWhereMemoryWouldAllowMore) {
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.types = {test::vgpu_type("1", "L4-1Q", 1, 16), test::vgpu_type("2", "L4-1B", 1, 12),
               test::vgpu_type("3", "L4-12Q", 12, 2)};
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_EQ(published.counter_sets.at(0).counters, (Counters{{"framebuffer", 24 * kGiB}, {"instances", 48}}));
  EXPECT_EQ(consumed(published, "vgpu-0000-3b-00-0-1-15"),
            (Counters{{"framebuffer", kGiB}, {"instances", 3}}));
  EXPECT_EQ(consumed(published, "vgpu-0000-3b-00-0-2-11"),
            (Counters{{"framebuffer", kGiB}, {"instances", 4}}));
  EXPECT_EQ(consumed(published, "vgpu-0000-3b-00-0-3-1"), (Counters{{"framebuffer", 12 * kGiB}}));
  EXPECT_EQ(consumed(published, "whole-0000-3b-00-0"), published.counter_sets.at(0).counters);
}

TEST(Publication, LetsEachTypeReachItsMaximumAndNotOneMore) {
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.memory_mib = 24 * 1024;
  gpu.types.clear();
  for (std::uint32_t most = 1; most <= 23; ++most)
    gpu.types.push_back(test::vgpu_type(std::to_string(most), fmt::format("L4-{}", most), 1, most));
  const Publication published = publication_of(node_with({gpu}));
  const std::uint64_t total = published.counter_sets.at(0).counters.at("instances");
  for (std::uint32_t most = 1; most <= 23; ++most) {
    const std::uint64_t one =
        consumed(published, fmt::format("vgpu-0000-3b-00-0-{}-0", most)).at("instances");
    EXPECT_LE(one * most, total) << most;
    EXPECT_GT(one * (most + 1), total) << most;
  }
}

TEST(Publication, OfAGpuWithoutDriverHasTheWholeGpu) {
  const Publication published =
      publication_of(node_with({{.address = test::at("0000:3b:00.0"), .iommu_group = 42}}));
  EXPECT_THAT(published.counter_sets, ElementsAre(CounterSet{.name = "group-42", .counters = {{"gpu", 1}}}));
  EXPECT_THAT(names_of(published), ElementsAre("whole-0000-3b-00-0"));
  EXPECT_EQ(device(published, "whole-0000-3b-00-0").capacity, (Counters{{"framebuffer", 0}}));
}

// A BAR of 64 GiB belongs to more than 32 GiB, such as the 46,068 MiB of an L40S.
TEST(Publication, HasAtLeastHalfOfTheBarAsMemoryWhereNoTableKnowsIt) {
  const auto memory_of = [](const Gpu& gpu) {
    return device(publication_of(node_with({gpu})), "whole-0000-3b-00-0").capacity.at("framebuffer") / kGiB;
  };
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.bar_mib = 128 * 1024;
  gpu.memory_mib = 48 * 1024;
  EXPECT_EQ(memory_of(gpu), 48U);
  gpu.memory_mib = 0;
  EXPECT_EQ(memory_of(gpu), 24U) << "its vGPUs tell more than its BAR";
  gpu.types.clear();
  EXPECT_EQ(memory_of(gpu), 64U);
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_THAT(published.counter_sets, ElementsAre(CounterSet{.name = "group-42", .counters = {{"gpu", 1}}}));
}

TEST(Publication, PutsAGpuWithoutAGroupIntoNoOthersGroup) {
  NodeModel node = node_with({l4("0000:3b:00.0", 0), l4("0000:3c:00.0", 0), l4("0000:3d:00.0", 0)});
  node.gpus[1].iommu_group.reset();
  node.gpus[2].iommu_group.reset();
  const Publication published = publication_of(node);
  std::vector<std::string> sets;
  for (const CounterSet& set : published.counter_sets) sets.push_back(set.name);
  EXPECT_THAT(sets, UnorderedElementsAre("group-0", "gpu-0000-3c-00-0", "gpu-0000-3d-00-0"));
  EXPECT_EQ(device(published, "whole-0000-3b-00-0").attributes.at("iommuGroup"), Attribute(std::int64_t{0}));
  EXPECT_EQ(device(published, "whole-0000-3c-00-0").attributes.at("iommuGroup"), Attribute(std::int64_t{-1}));
}

TEST(Publication, NamesTypesThatItCannotPublish) {
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.memory_mib = 0;
  gpu.types = {{.id = "1", .short_name = "L4-1Q", .framebuffer_mib = 1024},
               {.id = "2", .short_name = "L4-2Q", .most_per_gpu = 4}};
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_THAT(names_of(published), ElementsAre("whole-0000-3b-00-0"));
  EXPECT_THAT(published.notes,
              ElementsAre("GPU 0000:3b:00.0: L4-1Q is left out, since its size or its number is unknown",
                          "GPU 0000:3b:00.0: L4-2Q is left out, since its size or its number is unknown"));
}

TEST(Publication, TakesATypeOnceThatIsListedTwice) {
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.types.push_back(gpu.types[0]);
  EXPECT_THAT(publication_of(node_with({gpu})).devices, SizeIs(7))
      << "two devices of one name spoil the pool";
}

TEST(Publication, FollowsThePolicy) {
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.types[1].allowed = false;
  gpu.whole = false;
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_THAT(published.devices, SizeIs(4)) << "vGPUs of the allowed type alone";
  EXPECT_EQ(published.counter_sets, publication_of(node_with({l4("0000:3b:00.0", 42)})).counter_sets)
      << "policies do not change counters";
  gpu.for_dra = false;
  gpu.types[0].framebuffer_mib = 0;
  const Publication none = publication_of(node_with({gpu}));
  EXPECT_THAT(none.devices, IsEmpty());
  EXPECT_THAT(none.counter_sets, IsEmpty());
  EXPECT_THAT(none.notes, IsEmpty()) << "the GPU is the device plugin's";
}

// Several GPUs.

TEST(Publication, OrdersDevicesSoThatVgpusFillSomeGpus) {
  const Publication published =
      publication_of(node_with({l4("0000:b1:00.0", 9), l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)}));
  const std::vector<std::string> names = names_of(published);
  ASSERT_THAT(names, SizeIs(21));
  EXPECT_EQ(names[0], "vgpu-0000-3b-00-0-1150-0");
  EXPECT_EQ(names[4], "vgpu-0000-5e-00-0-1150-0");
  EXPECT_EQ(names[12], "vgpu-0000-3b-00-0-1152-0");
  EXPECT_THAT(std::vector(names.end() - 3, names.end()),
              ElementsAre("whole-0000-b1-00-0", "whole-0000-5e-00-0", "whole-0000-3b-00-0"));
  EXPECT_THAT(published.counter_sets, SizeIs(3));
  EXPECT_EQ(published.counter_sets[0].name, "group-7");
  EXPECT_EQ(published.counter_sets[2].name, "group-42");
}

TEST(Publication, OfAGroupWithSeveralGpusHasOneWholeDevice) {
  const NodeModel node = node_with({l4("0000:3c:00.0", 42), l4("0000:3b:00.0", 42)});
  const Publication published = publication_of(node);
  EXPECT_THAT(published.counter_sets,
              ElementsAre(CounterSet{.name = "group-42",
                                     .counters = {{"framebuffer-0000-3b-00-0", 24 * kGiB},
                                                  {"framebuffer-0000-3c-00-0", 24 * kGiB}}}));
  ASSERT_THAT(published.devices, SizeIs(13));
  EXPECT_EQ(published.devices.back().device.name, "whole-0000-3b-00-0");
  EXPECT_EQ(consumed(published, "whole-0000-3b-00-0"), published.counter_sets[0].counters);
  EXPECT_EQ(consumed(published, "vgpu-0000-3c-00-0-1150-0"),
            (Counters{{"framebuffer-0000-3c-00-0", 6 * kGiB}}));
  EXPECT_THAT(published.notes,
              ElementsAre("IOMMU group 42: its 2 GPUs are one device, which shows the memory of "
                          "GPU 0000:3b:00.0 alone; KubeVirt gives a VM only that GPU"));
  NodeModel shared = node;
  shared.gpus[0].for_dra = false;
  EXPECT_THAT(publication_of(shared).devices, IsEmpty()) << "the group can only be given whole";
  NodeModel one_not_whole = node;
  one_not_whole.gpus[0].whole = false;
  EXPECT_EQ(publication_of(one_not_whole).device("whole-0000-3b-00-0"), nullptr);
}

TEST(Publication, OfAGroupWithVeryManyGpusHasOnlyTheWholeDevice) {
  std::vector<Gpu> gpus;
  for (int i = 0; i < 17; ++i) gpus.push_back(l4(fmt::format("0000:{:02x}:00.0", i), 1));
  const Publication published = publication_of(node_with(gpus));
  EXPECT_THAT(names_of(published), ElementsAre("whole-0000-00-00-0"));
  EXPECT_THAT(published.notes, SizeIs(17 + 1));
}

// Mixed sizes.

TEST(Publication, OfMixedSizesCountsPlacementUnits) {
  const Publication published = publication_of(node_with({mixed("0000:65:00.0", 5)}));
  Counters all = {{"framebuffer", 16 * kGiB}};
  for (int i = 0; i < 8; ++i) all[fmt::format("unit-{:02}", i)] = 1;
  EXPECT_EQ(published.counter_sets.at(0).counters, all) << "a unit is 2 of the driver's";
  EXPECT_THAT(names_of(published),
              ElementsAre("vgpu-0000-65-00-0-590-0", "vgpu-0000-65-00-0-590-2", "vgpu-0000-65-00-0-590-4",
                          "vgpu-0000-65-00-0-590-6", "vgpu-0000-65-00-0-590-8", "vgpu-0000-65-00-0-590-10",
                          "vgpu-0000-65-00-0-590-12", "vgpu-0000-65-00-0-590-14", "vgpu-0000-65-00-0-592-0",
                          "vgpu-0000-65-00-0-592-4", "vgpu-0000-65-00-0-592-8", "vgpu-0000-65-00-0-592-12",
                          "vgpu-0000-65-00-0-594-0", "vgpu-0000-65-00-0-594-8", "whole-0000-65-00-0"));
  EXPECT_EQ(consumed(published, "vgpu-0000-65-00-0-592-12"),
            (Counters{{"framebuffer", 4 * kGiB}, {"unit-06", 1}, {"unit-07", 1}}));
  EXPECT_EQ(consumed(published, "whole-0000-65-00-0"), all);
  EXPECT_EQ(device(published, "vgpu-0000-65-00-0-592-12").attributes.at("vgpuFramework"), Attribute("mdev"));
}

TEST(Publication, OfMixedSizesLeavesOutSizesThatNeedTooManyCounters) {
  Gpu gpu = mixed("0000:65:00.0", 5);
  gpu.memory_mib = 48 * 1024;
  gpu.types.clear();
  for (const std::uint32_t gib : {1U, 2U, 3U, 6U, 12U, 24U})
    gpu.types.push_back(test::placed_type(std::to_string(gib), fmt::format("A40-{}Q", gib), gib, gib, 48));
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_THAT(published.counter_sets.at(0).counters, SizeIs(25)) << "24 units and the memory";
  EXPECT_EQ(published.device("vgpu-0000-65-00-0-1-0"), nullptr);
  EXPECT_NE(published.device("vgpu-0000-65-00-0-2-46"), nullptr);
  EXPECT_THAT(published.notes, ElementsAre(HasSubstr("48 of 48 placements of A40-1Q"),
                                           HasSubstr("16 of 16 placements of A40-3Q")));
  EXPECT_EQ(consumed(published, "vgpu-0000-65-00-0-6-6"),
            (Counters{{"framebuffer", 6 * kGiB}, {"unit-03", 1}, {"unit-04", 1}, {"unit-05", 1}}));
}

TEST(Publication, OfMixedSizesUsesAllCountersForUnitsWhereItMust) {
  Gpu gpu = mixed("0000:65:00.0", 5);
  gpu.types = {test::placed_type("1", "A-1Q", 1, 1, 32), test::placed_type("2", "A-32Q", 32, 32, 32)};
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_THAT(published.counter_sets.at(0).counters, SizeIs(kMostCounters));
  EXPECT_FALSE(published.counter_sets.at(0).counters.contains("framebuffer"));
  EXPECT_THAT(published.devices, SizeIs(34));
}

TEST(Publication, OfMixedSizesTakesNoImpossiblePlacements) {
  Gpu gpu = mixed("0000:65:00.0", 5);
  gpu.types = {
      {.id = "1", .short_name = "A-1Q", .framebuffer_mib = 1024, .size = 1, .placements = {4294967295U}},
      {.id = "2", .short_name = "A-2Q", .framebuffer_mib = 1024}};
  const Publication published = publication_of(node_with({gpu}));
  EXPECT_THAT(names_of(published), ElementsAre("whole-0000-65-00-0"));
  EXPECT_THAT(published.notes, ElementsAre(HasSubstr("no vGPUs"), HasSubstr("A-2Q is left out")));
}

// Equal sizes.

TEST(Publication, OfAGpuInMigModeCountsItsGpuInstances) {
  NodeModel node = node_with({test::in_instances("0000:ca:00.0", 9)});
  node.server.compatibility_groups = true;
  const Publication out = publication_of(node);
  ASSERT_EQ(out.counter_sets.size(), 1U);
  EXPECT_EQ(out.counter_sets[0].counters, (Counters{{"gi-1g-5gb", 2}, {"gi-2g-10gb", 1}}));
  EXPECT_THAT(test::names_of(out),
              ElementsAre("vgpu-0000-ca-00-0-474-0", "vgpu-0000-ca-00-0-474-1", "vgpu-0000-ca-00-0-475-0",
                          "vgpu-0000-ca-00-0-475-1", "vgpu-0000-ca-00-0-476-0"))
      << "and no whole GPU, with which its instances would end";
  for (const PublishedDevice& one : out.devices) {
    EXPECT_EQ(one.device.consumes.at(0).counters.size(), 1U) << one.device.name;
    EXPECT_FALSE(has_compatibility_groups(one.device)) << "sizes exist side by side";
  }
  hold(node, "vgpu-0000-ca-00-0-474-0", "a");
  for (const PublishedDevice& one : publication_of(node).devices)
    EXPECT_EQ(one.device.taints.empty(), one.device.name != "vgpu-0000-ca-00-0-474-0") << one.device.name;
  EXPECT_TRUE(
      check_available(node, publication_of(node), std::vector<std::string>{"vgpu-0000-ca-00-0-476-0"}, "b"));
  hold(node, "vgpu-0000-ca-00-0-475-1", "b");
  EXPECT_FALSE(
      check_available(node, publication_of(node), std::vector<std::string>{"vgpu-0000-ca-00-0-474-1"}, "c"));
}

TEST(Publication, TaintsOtherSizesWhileAClaimHasAVgpu) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)});
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  Publication published = publication_of(node);
  EXPECT_THAT(tainted(published), ElementsAre("vgpu-0000-3b-00-0-1150-2", "vgpu-0000-3b-00-0-1152-0",
                                              "vgpu-0000-3b-00-0-1152-1"));
  EXPECT_THAT(device(published, "vgpu-0000-3b-00-0-1150-2").taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/in-use", .value = ""}));
  EXPECT_THAT(device(published, "vgpu-0000-3b-00-0-1152-0").taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/other-size", .value = "6144"}));
  EXPECT_THAT(published.devices, SizeIs(14)) << "they are tainted, not removed";
  node.server.taints = false;
  EXPECT_THAT(tainted(publication_of(node)), IsEmpty());
  EXPECT_THAT(publication_of(node).devices, SizeIs(14)) << "a claim for them is refused on the node";
  node.server.taints = true;
  node.held.clear();
  EXPECT_THAT(tainted(publication_of(node)), IsEmpty());
}

TEST(Publication, HasCompatibilityGroupsWhereTheServerStoresThem) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), mixed("0000:65:00.0", 5)});
  node.server.compatibility_groups = true;
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  const Publication published = publication_of(node);
  const auto groups = [&](std::string_view name) {
    return device(published, name).consumes.at(0).compatibility_groups;
  };
  EXPECT_THAT(groups("vgpu-0000-3b-00-0-1150-0"), ElementsAre("size-6144"));
  EXPECT_THAT(groups("vgpu-0000-3b-00-0-1152-0"), ElementsAre("size-12288"));
  EXPECT_THAT(groups("whole-0000-3b-00-0"), ElementsAre("whole"));
  EXPECT_THAT(groups("vgpu-0000-65-00-0-590-0"), IsEmpty());
  EXPECT_THAT(groups("whole-0000-65-00-0"), IsEmpty());
  EXPECT_THAT(tainted(published),
              ElementsAre("vgpu-0000-3b-00-0-1150-2", "vgpu-0000-3b-00-0-1152-0", "vgpu-0000-3b-00-0-1152-1"))
      << "it is in use, and the API may forget its claim";
}

TEST(Publication, HasNoCompatibilityGroupsThatWouldSayTooMuch) {
  NodeModel two = node_with({l4("0000:3b:00.0", 42), l4("0000:3c:00.0", 42)});
  two.server.compatibility_groups = true;
  EXPECT_THAT(publication_of(two).devices.front().device.consumes.at(0).compatibility_groups, IsEmpty())
      << "the GPUs of a group may have vGPUs of different sizes";

  NodeModel upgraded = node_with({l4("0000:3b:00.0", 42)});
  hold(upgraded, "vgpu-0000-3b-00-0-1150-2", "a");
  upgraded.server.compatibility_groups = true;
  const Publication published = publication_of(upgraded);
  EXPECT_THAT(device(published, "vgpu-0000-3b-00-0-1150-0").consumes.at(0).compatibility_groups, IsEmpty())
      << "the claim's allocation has none, so that no further vGPU would fit";
  EXPECT_THAT(tainted(published), SizeIs(1 + 2));
}

// Devices that claims have.

TEST(Publication, KeepsAHeldDeviceWhosePolicyHasChanged) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  const Publication before = publication_of(node);
  node.gpus[0].types[0].allowed = false;
  node.gpus[0].for_dra = false;
  const Publication published = publication_of(node);
  EXPECT_THAT(names_of(published), ElementsAre("vgpu-0000-3b-00-0-1150-2"));
  EXPECT_EQ(published.counter_sets, before.counter_sets);
  EXPECT_EQ(device(published, "vgpu-0000-3b-00-0-1150-2"), device(before, "vgpu-0000-3b-00-0-1150-2"));
}

TEST(Publication, KeepsTheCountersOfHeldDevices) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)});
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  const Publication before = publication_of(node);
  node.gpus[0].types = {test::vgpu_type("1150", "L4-6Q", 6, 2)};
  node.gpus[0].memory_mib = 12000;
  const Publication published = publication_of(node);
  EXPECT_EQ(published.counter_sets, before.counter_sets);
  EXPECT_EQ(device(published, "vgpu-0000-3b-00-0-1150-2").consumes,
            device(before, "vgpu-0000-3b-00-0-1150-2").consumes);
  EXPECT_THAT(published.devices, SizeIs(1 + 7)) << "nothing else of its group, and the other GPU";
  EXPECT_THAT(published.notes, ElementsAre(HasSubstr("IOMMU group 42: only the devices that claims have")));
  node.held.clear();
  EXPECT_EQ(publication_of(node).counter_set("group-42")->counters.at("framebuffer"), 12 * kGiB);
}

TEST(Publication, KeepsAHeldDeviceOfAGpuThatIsGone) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  hold(node, "whole-0000-3b-00-0", "a");
  node.held.push_back(node.held[0]);  // a claim with admin access to it
  const CounterSet set = publication_of(node).counter_sets.at(0);
  node.gpus.clear();
  const Publication published = publication_of(node);
  EXPECT_THAT(names_of(published), ElementsAre("whole-0000-3b-00-0"));
  EXPECT_THAT(published.counter_sets, ElementsAre(set));
  EXPECT_THAT(published.devices[0].device.taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/gone", .value = "", .evicts = true},
                          Taint{.key = "gpu-ferry.io/in-use", .value = ""}));
  node.gpus = {l4("0000:86:00.0", 42)};
  EXPECT_THAT(names_of(publication_of(node)), ElementsAre("whole-0000-3b-00-0"))
      << "another GPU that has got its group waits, since a pool with two sets of one name is invalid";
  node.gpus = {l4("0000:3b:00.0", 43)};
  const Publication renumbered = publication_of(node);
  EXPECT_THAT(names_of(renumbered), ElementsAre("whole-0000-3b-00-0"));
  EXPECT_THAT(renumbered.counter_sets, ElementsAre(set));
}

// The scheduler does not count a device whose claim the API has forgotten.

TEST(Publication, TaintsAllBesideAForgottenWholeGpu) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7), l4("0000:5f:00.0", 7)});
  hold(node, "whole-0000-5e-00-0", "a");
  EXPECT_THAT(tainted(publication_of(node)), ElementsAre("whole-0000-5e-00-0"));
  const Publication before = publication_of(node);
  node.allocated.clear();
  const Publication published = publication_of(node);
  EXPECT_THAT(tainted(published), SizeIs(6 + 6 + 1)) << "all of both GPUs of its group, none of the other";
  EXPECT_THAT(device(published, "vgpu-0000-5f-00-0-1150-0").taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/in-use", .value = ""}));
  EXPECT_EQ(published.counter_sets, before.counter_sets);
  EXPECT_EQ(generation_for(slices_of(before, node.owner, 9), slices_of(published, node.owner, 0)), 9U);
}

TEST(Publication, TaintsDevicesThatAForgottenVgpuLeavesNoRoomFor) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.gpus[0].types.push_back(test::vgpu_type("1151", "L4-6B", 6, 4));
  for (const bool groups : {false, true}) {
    node.server.compatibility_groups = groups;
    node.held.clear();
    hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
    node.allocated.clear();
    EXPECT_THAT(tainted(publication_of(node)),
                ElementsAre("vgpu-0000-3b-00-0-1150-2", "vgpu-0000-3b-00-0-1152-0",
                            "vgpu-0000-3b-00-0-1152-1", "whole-0000-3b-00-0"));
  }
  node.allocated = {"vgpu-0000-3b-00-0-1150-0", "vgpu-0000-3b-00-0-1150-1"};
  EXPECT_THAT(tainted(publication_of(node)), SizeIs(4)) << "there is room for one more";
  node.allocated.insert("vgpu-0000-3b-00-0-1150-3");
  EXPECT_THAT(tainted(publication_of(node)), SizeIs(4 + 4)) << "none of its other type fits now";
}

TEST(Publication, TaintsPlacementsThatAForgottenVgpuCovers) {
  NodeModel node = node_with({mixed("0000:65:00.0", 5)});
  hold(node, "vgpu-0000-65-00-0-592-4", "a");
  node.allocated.clear();
  EXPECT_THAT(tainted(publication_of(node)),
              ElementsAre("vgpu-0000-65-00-0-590-4", "vgpu-0000-65-00-0-590-6", "vgpu-0000-65-00-0-592-4",
                          "vgpu-0000-65-00-0-594-0", "whole-0000-65-00-0"));
}

TEST(Publication, TaintsGpusThatAreNotReady) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:3c:00.0", 42)});
  hold(node, "vgpu-0000-3c-00-0-1150-0", "a");
  node.gpus[1].health = GpuHealth::unhealthy;
  node.gpus[1].reason = "fatal PCIe errors";
  const Publication published = publication_of(node);
  EXPECT_THAT(tainted(published), SizeIs(6 + 1)) << "the vGPUs of that GPU, and the whole group";
  EXPECT_THAT(device(published, "whole-0000-3b-00-0").taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/unhealthy", .value = "fatal-PCIe-errors"}));
  EXPECT_THAT(device(published, "vgpu-0000-3c-00-0-1150-0").taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/unhealthy", .value = "fatal-PCIe-errors"},
                          Taint{.key = "gpu-ferry.io/in-use", .value = ""}));
  node.server.taints = false;
  EXPECT_THAT(publication_of(node).devices, SizeIs(6 + 1)) << "left out, where the server stores no taints";
}

TEST(Publication, TaintsTheVgpusOfAGpuThatMakesNone) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:3c:00.0", 43)});
  node.gpus[1].vgpu_reason = "its virtual functions are missing";
  const Publication published = publication_of(node);
  EXPECT_THAT(tainted(published), SizeIs(6));
  EXPECT_THAT(device(published, "whole-0000-3c-00-0").taints, IsEmpty());
  EXPECT_THAT(
      device(published, "vgpu-0000-3c-00-0-1150-0").taints,
      ElementsAre(Taint{.key = "gpu-ferry.io/unhealthy", .value = "its-virtual-functions-are-missing"}));
}

TEST(Publication, KeepsHealthTaintsOfHeldDevicesWhoseCountersHaveChanged) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:3c:00.0", 42)});
  hold(node, "whole-0000-3b-00-0", "a");
  node.gpus[0].memory_mib = 12000;
  node.gpus[0].types.clear();
  node.gpus[1].health = GpuHealth::unhealthy;
  EXPECT_THAT(device(publication_of(node), "whole-0000-3b-00-0").taints,
              ElementsAre(Taint{.key = "gpu-ferry.io/unhealthy", .value = ""},
                          Taint{.key = "gpu-ferry.io/in-use", .value = ""}));
}

TEST(Publication, HasNoFieldOfAHeldDeviceThatTheServerWouldDrop) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.server.compatibility_groups = true;
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  node.gpus.clear();
  node.server = {.counters = true, .taints = true};
  const Device without_groups = device(publication_of(node), "vgpu-0000-3b-00-0-1150-2");
  EXPECT_THAT(without_groups.consumes.at(0).compatibility_groups, IsEmpty());
  node.server = {};
  for (const bool present : {false, true}) {
    if (present) node.gpus = {l4("0000:3b:00.0", 42)};
    const Publication published = publication_of(node);
    EXPECT_THAT(names_of(published), ElementsAre("vgpu-0000-3b-00-0-1150-2"));
    EXPECT_THAT(published.devices.at(0).device.consumes, IsEmpty());
    EXPECT_THAT(published.devices[0].device.taints, IsEmpty());
    EXPECT_THAT(published.counter_sets, IsEmpty());
  }
}

// Devices that are allocated and not prepared yet.

TEST(Publication, KeepsAnAllocatedDeviceWhosePolicyHasChanged) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.allocated = {"vgpu-0000-3b-00-0-1150-2", "vgpu-of-another-node"};
  const Publication before = publication_of(node);
  EXPECT_THAT(tainted(before), IsEmpty()) << "its claim may be removed before it is prepared";
  node.gpus[0].types[0].allowed = false;
  node.gpus[0].for_dra = false;
  const Publication published = publication_of(node);
  EXPECT_THAT(names_of(published), ElementsAre("vgpu-0000-3b-00-0-1150-2"));
  EXPECT_EQ(published.counter_sets, before.counter_sets);
  EXPECT_EQ(consumed(published, "vgpu-0000-3b-00-0-1150-2"), (Counters{{"framebuffer", 6 * kGiB}}));
  EXPECT_THAT(tainted(published), SizeIs(1)) << "no further claim gets it";
}

TEST(Publication, KeepsAnAllocatedDeviceBesideHeldOnesWhoseCountersHaveChanged) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  node.allocated = {"vgpu-0000-3b-00-0-1150-2", "vgpu-0000-3b-00-0-1150-1"};
  node.gpus[0].types = {test::vgpu_type("1150", "L4-6Q", 6, 3)};
  node.gpus[0].memory_mib = 18 * 1024;
  const Publication published = publication_of(node);
  EXPECT_THAT(names_of(published), ElementsAre("vgpu-0000-3b-00-0-1150-1", "vgpu-0000-3b-00-0-1150-2"));
  EXPECT_EQ(published.counter_set("group-42")->counters.at("framebuffer"), 24 * kGiB);
  EXPECT_THAT(published.notes, SizeIs(1));
  node.gpus[0].types[0].most_per_gpu = 2U;
  const Publication other = publication_of(node);
  EXPECT_THAT(names_of(other), ElementsAre("vgpu-0000-3b-00-0-1150-2"))
      << "it would consume a counter that the held one's set has not, and the pool would be invalid";
  EXPECT_THAT(other.notes, testing::Contains(HasSubstr("vgpu-0000-3b-00-0-1150-1: a claim has it")));
}

TEST(Publication, TaintsAGroupThatClaimsOverdraw) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)});
  node.allocated = {"whole-0000-3b-00-0", "vgpu-0000-3b-00-0-1150-2"};
  const Publication published = publication_of(node);
  EXPECT_THAT(tainted(published), SizeIs(7)) << "all of the one GPU, none of the other";
  EXPECT_EQ(published.counter_set("group-42")->counters.at("framebuffer"), 24 * kGiB);
  const std::vector<ResourceSlice> slices = slices_of(published, node.owner, 1);
  EXPECT_EQ(slices.at(0).counter_sets.at(0).counters.at("framebuffer"), 24 * kGiB);
  EXPECT_EQ(slices.at(0).counter_sets.at(1).counters.at("framebuffer"), 30 * kGiB)
      << "as much as the claims use, so that nothing is left and no counter is negative";
  node.server.taints = false;
  EXPECT_THAT(publication_of(node).devices, SizeIs(2 + 7));
}

// A server without counters.

TEST(Publication, WithoutCountersHasOneKindOfDevice) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.server.counters = false;
  const Publication whole = publication_of(node);
  EXPECT_THAT(whole.counter_sets, IsEmpty());
  EXPECT_THAT(names_of(whole), ElementsAre("whole-0000-3b-00-0"));
  EXPECT_THAT(whole.devices[0].device.consumes, IsEmpty());
  EXPECT_THAT(whole.notes, ElementsAre(HasSubstr("DRAPartitionableDevices")));

  node.gpus[0].whole = false;
  EXPECT_THAT(publication_of(node).devices, IsEmpty()) << "vGPUs of two types would share memory";
  node.gpus[0].types[0].allowed = false;
  EXPECT_THAT(names_of(publication_of(node)),
              ElementsAre("vgpu-0000-3b-00-0-1152-0", "vgpu-0000-3b-00-0-1152-1"));
  hold(node, "vgpu-0000-3b-00-0-1152-1", "a");
  EXPECT_THAT(names_of(publication_of(node)),
              ElementsAre("vgpu-0000-3b-00-0-1152-0", "vgpu-0000-3b-00-0-1152-1"))
      << "the GPU serves more than one vGPU";
  node.gpus[0].types[0].allowed = true;
  node.gpus[0].types[1].allowed = false;
  EXPECT_THAT(names_of(publication_of(node)), ElementsAre("vgpu-0000-3b-00-0-1152-1"))
      << "the vGPUs of the allowed type have another size";
  node.gpus[0].types[1].allowed = true;
  node.gpus[0].whole = true;
  EXPECT_THAT(names_of(publication_of(node)), ElementsAre("vgpu-0000-3b-00-0-1152-1"))
      << "the whole GPU is in use";
}

TEST(Publication, WithoutCountersHasNothingBesideAWholeGpu) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.server.counters = false;
  hold(node, "whole-0000-3b-00-0", "a");
  node.gpus[0].whole = false;
  node.gpus[0].types[0].allowed = false;
  EXPECT_THAT(names_of(publication_of(node)), ElementsAre("whole-0000-3b-00-0"));
  node.held.clear();
  node.allocated.clear();
  EXPECT_THAT(publication_of(node).devices, SizeIs(2));
  node.allocated = {"whole-0000-3b-00-0"};
  EXPECT_THAT(names_of(publication_of(node)), ElementsAre("whole-0000-3b-00-0"))
      << "nor before it is prepared";
}

TEST(Publication, WithoutCountersTellsTypesApartByTheirIds) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.server.counters = false;
  node.gpus[0].whole = false;
  node.gpus[0].types[1].short_name = node.gpus[0].types[0].short_name;
  EXPECT_THAT(publication_of(node).devices, IsEmpty()) << "two types of one name share memory";
}

// Slices.

TEST(Slices, KeepTheLimitsOfTheServer) {
  std::vector<Gpu> gpus;
  for (std::uint32_t i = 0; i < 8; ++i) {
    Gpu gpu = l4(fmt::format("10000:{:02x}:00.0", 0x10 + i), i);
    gpu.types.clear();
    for (std::uint32_t type = 0; type < 12; ++type)
      gpu.types.push_back(test::vgpu_type(std::to_string(1100 + type), fmt::format("L4-1Q{}", type), 1, 16));
    gpus.push_back(gpu);
  }
  gpus.push_back(l4("0000:3b:00.0", 100));
  const NodeModel node = node_with(gpus);
  const Publication published = publication_of(node);
  EXPECT_THAT(published.devices, SizeIs(8 * (12 * 16 + 1) + 7));
  const std::vector<ResourceSlice> slices = slices_of(published, node.owner, 4);
  ASSERT_THAT(slices, SizeIs(2 + 25)) << "9 counter sets, 1551 devices";
  std::set<std::string> names;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    EXPECT_EQ(slices[i].index, i);
    EXPECT_EQ(slices[i].count, slices.size());
    EXPECT_EQ(slices[i].generation, 4U);
    EXPECT_EQ(slices[i].pool, "node7/gpu-ferry");
    EXPECT_NE(slices[i].counter_sets.empty(), slices[i].devices.empty());
    EXPECT_LE(slices[i].counter_sets.size(), kMostCounterSets);
    EXPECT_LE(slices[i].devices.size(), kMostDevicesWithExtras);
    for (const Device& one : slices[i].devices) {
      EXPECT_TRUE(names.insert(one.name).second) << one.name;
      EXPECT_LE(one.name.size(), kLongestName);
      EXPECT_LE(one.attributes.size() + one.capacity.size(), 32U);
    }
  }
}

TEST(Slices, OfAnEmptyPoolAreOne) {
  const std::vector<ResourceSlice> slices = slices_of({}, {.node = "n"}, 1);
  EXPECT_THAT(slices, ElementsAre(ResourceSlice{
                          .owner = {.node = "n"}, .pool = "n/gpu-ferry", .generation = 1, .count = 1}));
}

TEST(Slices, WithoutCountersAndTaintsHave128Devices) {
  Publication published;
  for (int i = 0; i < 129; ++i)
    published.devices.push_back({.asked = {}, .device = {.name = std::to_string(i)}});
  EXPECT_THAT(slices_of(published, {.node = "n"}, 1), SizeIs(2));
  published.devices.back().device.taints.push_back({.key = "k", .value = ""});
  EXPECT_THAT(slices_of(published, {.node = "n"}, 1), SizeIs(3));
}

TEST(Slices, KeepTheirGenerationWhileOnlyTaintsAndAttributesChange) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  const auto slices = [&](std::uint64_t generation) {
    return slices_of(publication_of(node), node.owner, generation);
  };
  std::vector<ResourceSlice> published = slices(9);
  EXPECT_EQ(generation_for({}, published), 1U);
  EXPECT_EQ(generation_for({}, published, 9), 10U) << "the kubelet has removed all slices";
  EXPECT_EQ(generation_for(published, slices(0)), 9U);
  std::ranges::reverse(published);
  EXPECT_EQ(generation_for(published, slices(0)), 9U);
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  node.gpus[0].numa_node = 0;
  EXPECT_EQ(generation_for(published, slices(0)), 9U);
  EXPECT_EQ(generation_for(published, slices(0), 12), 13U);
  node.gpus[0].types[0].allowed = false;
  EXPECT_EQ(generation_for(published, slices(0)), 10U) << "devices have gone";
  for (const std::uint64_t last : {(1ULL << 53U) - 1, 1ULL << 53U, (1ULL << 63U) - 1, ~0ULL}) {
    for (ResourceSlice& slice : published) slice.generation = last;
    EXPECT_EQ(generation_for(published, slices(0)), 1U) << last;
    EXPECT_EQ(generation_for({}, slices(0), last), 1U) << last;
  }
  for (ResourceSlice& slice : published) slice.generation = 9;
  node.gpus[0].types[0].allowed = true;
  std::vector<ResourceSlice> half = published;
  half.pop_back();
  EXPECT_EQ(generation_for(half, slices(0)), 10U) << "a slice is missing";
  half.push_back(published.back());
  half.back().generation = 8;
  EXPECT_EQ(generation_for(half, slices(0)), 10U) << "a slice is old";
}

TEST(Slices, KeepTheTimesOfTheirTaints) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  hold(node, "vgpu-0000-3b-00-0-1150-2", "a");
  std::vector<ResourceSlice> published = slices_of(publication_of(node), node.owner, 9);
  const std::vector<ResourceSlice> fresh = published;
  ASSERT_THAT(published, SizeIs(2));
  for (Device& one : published[1].devices)
    for (Taint& taint : one.taints) taint.time_added = "2026-11-26T08:00:00Z";
  std::vector<ResourceSlice> next = fresh;
  published.push_back(fresh[1]);
  published.back().generation = 8;
  published.back().devices[2].taints.clear();
  keep_taint_times(published, next);
  EXPECT_EQ(next[1].devices, published[1].devices) << "the newest slice counts";
  EXPECT_EQ(generation_for(std::span(published).first(2), next), 9U);
  node.gpus[0].health = GpuHealth::unhealthy;
  next = slices_of(publication_of(node), node.owner, 9);
  keep_taint_times(published, next);
  for (const Device& one : next.at(1).devices)
    for (const Taint& taint : one.taints)
      EXPECT_EQ(taint.time_added.empty(), taint.key == kUnhealthyTaint) << one.name << " " << taint.key;
}

}  // namespace
}  // namespace ferry::dra
