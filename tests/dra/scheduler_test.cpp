// SPDX-License-Identifier: Apache-2.0
// Published slices, as the scheduler allocates from them.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "dra/names.h"
#include "dra/slices/publication.h"
#include "tests/dra/scheduler_model.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::device_named;
using test::hold;
using test::kGiB;
using test::l4;
using test::mixed;
using test::must;
using test::node_with;
using test::SchedulerModel;
using test::vgpu_of_type;
using test::vgpu_with_memory;
using test::whole_gpu;
using testing::HasSubstr;
using testing::StartsWith;

/// A node, the slices that it has published, and the scheduler that sees them.
class Cluster {
 public:
  explicit Cluster(NodeModel model, SchedulerModel::Gates gates = {})
      : node(std::move(model)), scheduler(gates) {
    publish();
  }

  /// The slices go through the JSON of the API. The node has seen all claims.
  void publish() {
    node.allocated.clear();
    for (const auto& [claim, results] : scheduler.claims())
      for (const SchedulerModel::Result& result : results) node.allocated.insert(result.device);
    const std::vector<ResourceSlice> next = slices_of(publication_of(node), node.owner, 0);
    const std::uint64_t generation = generation_for(slices, next);
    std::vector<ResourceSlice> read;
    for (ResourceSlice slice : next) {
      slice.generation = generation;
      const std::string bytes = slice_json(slice).dump();
      read.push_back(must(read_slice(nlohmann::json::parse(bytes))));
    }
    slices = std::move(read);
    scheduler.see(slices);
  }

  /// The device of the claim's only request; or the reason why there is none.
  std::string ask(const std::string& claim, test::DeviceRequest::Selector selector) {
    if (!scheduler.allocate(claim, {{.name = "card", .alternatives = {std::move(selector)}}}))
      return scheduler.problem();
    return scheduler.find(claim)->at(0).device;
  }

  /// The number of claims of this kind that can be allocated from now on.
  std::size_t count(const test::DeviceRequest::Selector& selector) {
    std::size_t out = 0;
    while (scheduler.allocate(fmt::format("count-{}", out), {{.name = "card", .alternatives = {selector}}}))
      ++out;
    for (std::size_t i = 0; i < out; ++i) scheduler.deallocate(fmt::format("count-{}", i));
    return out;
  }

  NodeModel node;
  SchedulerModel scheduler;
  std::vector<ResourceSlice> slices;
};

constexpr const char* kNone = "cannot allocate all claims";

// The model itself.

TEST(SchedulerModel, TakesNothingFromAnIncompleteOrInvalidPool) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  std::vector<ResourceSlice> slices = cluster.slices;
  ASSERT_EQ(slices.size(), 2U);
  cluster.scheduler.see(std::span(slices).subspan(1));
  EXPECT_EQ(cluster.ask("a", whole_gpu()), "the pool is incomplete: 1 of 2 slices");
  for (ResourceSlice& slice : slices) slice.count = 1;
  cluster.scheduler.see(slices);
  EXPECT_EQ(cluster.ask("a", whole_gpu()), "the pool is incomplete: 2 of 1 slices");
  slices = cluster.slices;
  slices[0].generation = 7;
  cluster.scheduler.see(slices);
  EXPECT_EQ(cluster.ask("a", whole_gpu()), "the pool is incomplete: 1 of 2 slices")
      << "the newest generation counts";
  slices = cluster.slices;
  slices[1].devices.push_back(slices[1].devices[0]);
  cluster.scheduler.see(slices);
  EXPECT_THAT(cluster.ask("a", whole_gpu()),
              StartsWith("invalid resource pools were encountered: device twice"));
  slices = cluster.slices;
  slices[0].counter_sets.push_back(slices[0].counter_sets[0]);
  cluster.scheduler.see(slices);
  EXPECT_THAT(cluster.ask("a", whole_gpu()), HasSubstr("counter set twice"));
  slices = cluster.slices;
  slices[0].counter_sets[0].counters = {{"other", 1}};
  cluster.scheduler.see(slices);
  EXPECT_THAT(cluster.ask("a", whole_gpu()), HasSubstr("which do not exist"));
  cluster.scheduler.see({});
  EXPECT_EQ(cluster.ask("a", whole_gpu()), "the pool has no slices");
}

TEST(SchedulerModel, GivesMemoryOutTwiceIfAnAllocatedDeviceIsNoLongerListed) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  ASSERT_THAT(cluster.ask("a", vgpu_of_type("L4-6Q")), StartsWith("vgpu-"));
  EXPECT_EQ(cluster.ask("b", whole_gpu()), kNone);
  std::erase_if(cluster.slices[1].devices, [](const Device& device) { return !is_whole(device); });
  cluster.scheduler.see(cluster.slices);
  EXPECT_EQ(cluster.ask("b", whole_gpu()), "whole-0000-3b-00-0") << "the fault that the schedules look for";
}

TEST(SchedulerModel, TakesNoDeviceWhileACounterOfThePoolIsNegative) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)}));
  ASSERT_EQ(cluster.ask("a", whole_gpu()), "whole-0000-5e-00-0");
  cluster.slices[0].counter_sets[0].counters["framebuffer"] = 6 * kGiB;
  cluster.scheduler.see(cluster.slices);
  EXPECT_EQ(cluster.ask("b", whole_gpu()), kNone) << "the other GPU is free";
}

TEST(SchedulerModel, FollowsItsGates) {
  const auto device = [](SchedulerModel::Gates gates, ServerFeatures server) {
    NodeModel node = node_with({l4("0000:3b:00.0", 42)});
    node.server = server;
    return Cluster(node, gates).ask("a", whole_gpu());
  };
  const ServerFeatures counters{.counters = true, .taints = true};
  const ServerFeatures groups{.counters = true, .taints = true, .compatibility_groups = true};
  EXPECT_EQ(device({}, counters), "whole-0000-3b-00-0");
  EXPECT_EQ(device({.partitionable = false}, counters), kNone);
  EXPECT_EQ(device({.partitionable = false}, {}), "whole-0000-3b-00-0");
  EXPECT_EQ(device({.compatibility_groups = false}, groups), kNone);
  EXPECT_EQ(device({}, groups), "whole-0000-3b-00-0");
}

// Slices of one GPU.

TEST(PublishedSlices, FillAGpuWithVgpus) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), 4U);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-12Q")), 2U);
  EXPECT_EQ(cluster.count(whole_gpu()), 1U);
  EXPECT_EQ(cluster.ask("a", vgpu_with_memory(7 * kGiB)), "vgpu-0000-3b-00-0-1152-0");
  EXPECT_EQ(cluster.count(whole_gpu()), 0U) << "no whole GPU while a vGPU is on it";
  cluster.scheduler.deallocate("a");
  EXPECT_EQ(cluster.ask("a", whole_gpu()), "whole-0000-3b-00-0");
  EXPECT_EQ(cluster.count(vgpu_with_memory(0)), 0U) << "and no vGPU on a GPU that is given whole";
}

TEST(PublishedSlices, FillAGpuWithMixedSizes) {
  Cluster cluster(node_with({mixed("0000:65:00.0", 5)}));
  EXPECT_EQ(cluster.count(vgpu_of_type("A10-2Q")), 8U);
  EXPECT_EQ(cluster.count(vgpu_of_type("A10-8Q")), 2U);
  EXPECT_EQ(cluster.ask("a", vgpu_of_type("A10-2Q")), "vgpu-0000-65-00-0-590-0");
  EXPECT_EQ(cluster.ask("b", vgpu_of_type("A10-4Q")), "vgpu-0000-65-00-0-592-4");
  EXPECT_EQ(cluster.ask("c", vgpu_of_type("A10-8Q")), "vgpu-0000-65-00-0-594-8");
  EXPECT_EQ(cluster.ask("d", vgpu_of_type("A10-4Q")), kNone);
  EXPECT_EQ(cluster.ask("d", vgpu_of_type("A10-2Q")), "vgpu-0000-65-00-0-590-2");
  EXPECT_EQ(cluster.ask("e", vgpu_with_memory(0)), kNone) << "the GPU is full";
  EXPECT_EQ(cluster.ask("e", whole_gpu()), kNone);
}

TEST(PublishedSlices, GivePlacementsAtBothEndsOfTheMemory) {
  Gpu gpu = mixed("0000:65:00.0", 5);
  gpu.memory_mib = 143771;
  gpu.types = {test::placed_type("1500", "H200X-35C", 35, 1, 4),
               test::placed_type("1501", "H200X-70C", 70, 2, 4)};
  gpu.types[0].placements = {0, 3};
  gpu.types[1].placements = {1, 2};
  Cluster cluster(node_with({gpu}));
  EXPECT_EQ(cluster.count(vgpu_of_type("H200X-35C")), 2U);
  EXPECT_EQ(cluster.count(vgpu_of_type("H200X-70C")), 1U);
  EXPECT_EQ(cluster.ask("a", vgpu_of_type("H200X-70C")), "vgpu-0000-65-00-0-1501-1");
  EXPECT_EQ(cluster.ask("b", vgpu_of_type("H200X-35C")), "vgpu-0000-65-00-0-1500-0");
  EXPECT_EQ(cluster.ask("c", vgpu_of_type("H200X-35C")), "vgpu-0000-65-00-0-1500-3");
  EXPECT_EQ(cluster.ask("d", whole_gpu()), kNone);
  cluster.scheduler.deallocate("a");
  cluster.scheduler.deallocate("c");
  cluster.publish();
  EXPECT_EQ(cluster.count(vgpu_of_type("H200X-70C")), 1U) << "at 1 or at 2, which overlap";
}

/// hostd changes the mode only on an empty GPU. A claim that is being prepared meanwhile loses nothing
/// either.
TEST(PublishedSlices, KeepAClaimOfOneSizeWhenItsGpuGetsMixedSizes) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  ASSERT_EQ(cluster.ask("a", vgpu_of_type("L4-6Q")), "vgpu-0000-3b-00-0-1150-0");
  hold(cluster.node, "vgpu-0000-3b-00-0-1150-0", "a");
  Gpu& gpu = cluster.node.gpus.front();
  gpu.mixed_sizes = true;
  gpu.types = {test::placed_type("1150", "L4-6Q", 6, 1, 4), test::placed_type("1152", "L4-12Q", 12, 2, 4)};
  cluster.publish();
  EXPECT_EQ(cluster.count(vgpu_with_memory(0)), 0U);
  EXPECT_EQ(cluster.count(whole_gpu()), 0U);
  cluster.node.held.clear();
  cluster.scheduler.deallocate("a");
  cluster.publish();
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), 4U);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-12Q")), 2U);
  EXPECT_EQ(cluster.count(whole_gpu()), 1U);
}

TEST(PublishedSlices, KeepTheMaximumOfATypeThatIsBelowItsMemory) {
  Gpu gpu = l4("0000:3b:00.0", 42);
  gpu.types = {test::vgpu_type("1", "L4-1Q", 1, 16), test::vgpu_type("2", "L4-1B", 1, 12)};
  Cluster cluster(node_with({gpu}));
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-1Q")), 16U);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-1B")), 12U);
  EXPECT_EQ(cluster.count(vgpu_with_memory(kGiB)), 16U) << "of both types";
}

TEST(PublishedSlices, GiveTheLastOfMoreThan64Devices) {
  std::vector<Gpu> gpus;
  for (std::uint32_t i = 0; i < 4; ++i) {
    Gpu gpu = l4(fmt::format("10000:{:02x}:00.0", i), i);
    gpu.types = {test::vgpu_type("1150", "L4-1Q", 1, 24)};
    gpus.push_back(gpu);
  }
  Cluster cluster(node_with(gpus));
  ASSERT_EQ(cluster.slices.size(), 1U + 2U);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-1Q")), 96U);
  EXPECT_EQ(cluster.ask("a", device_named("vgpu-10000-03-00-0-1150-23")), "vgpu-10000-03-00-0-1150-23");
  EXPECT_EQ(cluster.count(whole_gpu()), 3U);
}

// Choices.

TEST(PublishedSlices, PackVgpusAndKeepOtherGpusWhole) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7), l4("0000:86:00.0", 9)}));
  EXPECT_EQ(cluster.ask("a", vgpu_with_memory(kGiB)), "vgpu-0000-3b-00-0-1150-0");
  hold(cluster.node, "vgpu-0000-3b-00-0-1150-0", "a");
  cluster.publish();
  EXPECT_EQ(cluster.ask("b", vgpu_with_memory(kGiB)), "vgpu-0000-3b-00-0-1150-1");
  EXPECT_EQ(cluster.ask("c", vgpu_with_memory(7 * kGiB)), "vgpu-0000-5e-00-0-1152-0")
      << "the first has 6 GiB each";
  EXPECT_EQ(cluster.ask("d", whole_gpu()), "whole-0000-86-00-0");
}

TEST(PublishedSlices, ServeAlternativesInTheirOrder) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  const std::vector<test::DeviceRequest> requests = {
      {.name = "card", .alternatives = {whole_gpu(), vgpu_of_type("L4-12Q"), vgpu_of_type("L4-6Q")}}};
  ASSERT_TRUE(cluster.scheduler.allocate("a", requests));
  EXPECT_EQ(cluster.scheduler.find("a")->at(0).request, "card/0");
  cluster.scheduler.deallocate("a");
  EXPECT_THAT(cluster.ask("a", vgpu_of_type("L4-6Q")), StartsWith("vgpu-"));
  hold(cluster.node, "vgpu-0000-3b-00-0-1150-0", "a");
  cluster.publish();
  ASSERT_TRUE(cluster.scheduler.allocate("b", requests));
  EXPECT_EQ(cluster.scheduler.find("b")->at(0).request, "card/2") << "12 GiB has a taint now";
}

TEST(PublishedSlices, ServeSeveralRequestsOfAClaim) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)}));
  ASSERT_TRUE(cluster.scheduler.allocate("a", {{.name = "first", .alternatives = {vgpu_with_memory(kGiB)}},
                                               {.name = "second", .alternatives = {whole_gpu()}}}));
  EXPECT_EQ(cluster.scheduler.find("a")->at(0).device, "vgpu-0000-3b-00-0-1150-0");
  EXPECT_EQ(cluster.scheduler.find("a")->at(1).device, "whole-0000-5e-00-0");
  EXPECT_FALSE(cluster.scheduler.allocate("b", {{.name = "first", .alternatives = {whole_gpu()}},
                                                {.name = "second", .alternatives = {whole_gpu()}}}));
}

// Other sizes.

TEST(PublishedSlices, LetAWrongSizeThroughOnlyUntilTheyAreWrittenAgain) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  const std::string small = cluster.ask("a", vgpu_of_type("L4-6Q"));
  const std::string large = cluster.ask("b", vgpu_of_type("L4-12Q"));
  EXPECT_EQ(large, "vgpu-0000-3b-00-0-1152-0") << "memory is left, and the scheduler knows nothing of sizes";
  hold(cluster.node, small, "a");
  const std::vector<std::string> devices = {large};
  const auto available = check_available(cluster.node, publication_of(cluster.node), devices, "b");
  ASSERT_FALSE(available);
  EXPECT_THAT(available.error().message, HasSubstr("have 6144 MiB each now, and this one needs 12288 MiB"));
  cluster.publish();
  EXPECT_EQ(cluster.ask("c", vgpu_of_type("L4-12Q")), kNone);
  EXPECT_EQ(cluster.ask("c", vgpu_of_type("L4-6Q")), "vgpu-0000-3b-00-0-1150-1");
  cluster.node.held.clear();
  cluster.scheduler.deallocate("a");
  cluster.scheduler.deallocate("c");
  cluster.publish();
  EXPECT_TRUE(check_available(cluster.node, publication_of(cluster.node), devices, "b"))
      << "the claim has waited";
}

TEST(PublishedSlices, NeverLetAWrongSizeThroughWithCompatibilityGroups) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.server.compatibility_groups = true;
  Cluster cluster(node);
  ASSERT_THAT(cluster.ask("a", vgpu_of_type("L4-6Q")), StartsWith("vgpu-"));
  EXPECT_EQ(cluster.ask("b", vgpu_of_type("L4-12Q")), kNone);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), 3U);
  EXPECT_EQ(cluster.count(whole_gpu()), 0U);
}

// Without counters.

TEST(PublishedSlices, WithoutCountersServeAllVgpusOfAGpu) {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.server.counters = false;
  node.gpus[0].whole = false;
  node.gpus[0].types[1].allowed = false;
  Cluster cluster(node, {.partitionable = false});
  for (int i = 0; i < 4; ++i) {
    const std::string device = cluster.ask(fmt::format("claim-{}", i), vgpu_of_type("L4-6Q"));
    EXPECT_EQ(device, fmt::format("vgpu-0000-3b-00-0-1150-{}", i));
    hold(cluster.node, device, fmt::format("claim-{}", i));
    cluster.publish();
  }
  EXPECT_EQ(cluster.ask("more", vgpu_with_memory(0)), kNone);
}

// Claims that outlive slices.

TEST(PublishedSlices, CountADeviceThatIsAllocatedAndNotPreparedYet) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  ASSERT_EQ(cluster.ask("a", vgpu_of_type("L4-6Q")), "vgpu-0000-3b-00-0-1150-0");
  cluster.node.gpus[0].types[0].allowed = false;
  cluster.publish();
  EXPECT_EQ(cluster.count(whole_gpu()), 0U) << "the policy has changed before the claim was prepared";
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-12Q")), 1U);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), 0U);
  cluster.scheduler.deallocate("a");
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), 0U) << "it stays tainted until it goes";
  cluster.publish();
  EXPECT_EQ(cluster.count(whole_gpu()), 1U);
}

TEST(PublishedSlices, NeverStopOtherGpusWhenClaimsOverdrawOne) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)}));
  ASSERT_EQ(cluster.ask("a", vgpu_of_type("L4-6Q")), "vgpu-0000-3b-00-0-1150-0");
  std::vector<ResourceSlice> slices = cluster.slices;
  std::erase_if(slices[1].devices, [](const Device& device) { return !is_whole(device); });
  cluster.scheduler.see(slices);
  ASSERT_EQ(cluster.ask("b", device_named("whole-0000-3b-00-0")), "whole-0000-3b-00-0");
  cluster.publish();
  EXPECT_EQ(cluster.count(whole_gpu()), 1U) << "that of the other GPU";
  EXPECT_EQ(cluster.count(vgpu_with_memory(0)), 4U) << "those of the other GPU";
  cluster.scheduler.deallocate("a");
  EXPECT_EQ(cluster.count(device_named("vgpu-0000-3b-00-0-1150-1")), 0U)
      << "the other claim has the whole GPU";
  cluster.publish();
  EXPECT_EQ(cluster.count(device_named("vgpu-0000-3b-00-0-1150-1")), 0U);
  cluster.scheduler.deallocate("b");
  cluster.publish();
  EXPECT_EQ(cluster.count(whole_gpu()), 2U);
}

TEST(PublishedSlices, LetAClaimPassADeviceThatTheNodeHasNotFreedYet) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42)}));
  const std::string former = cluster.ask("a", vgpu_of_type("L4-6Q"));
  hold(cluster.node, former, "a");
  cluster.scheduler.deallocate("a");
  cluster.publish();
  const std::string next = cluster.ask("b", vgpu_of_type("L4-6Q"));
  EXPECT_EQ(former, "vgpu-0000-3b-00-0-1150-0");
  EXPECT_EQ(next, "vgpu-0000-3b-00-0-1150-1") << "the API has forgotten the claim that has the first";
  const std::vector<std::string> devices = {next};
  EXPECT_TRUE(check_available(cluster.node, publication_of(cluster.node), devices, "b"));
}

TEST(PublishedSlices, LetClaimsPassAGpuThatTheNodeHasNotFreedYet) {
  for (const bool groups : {false, true}) {
    NodeModel node = node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)});
    node.server.compatibility_groups = groups;
    for (const char* const former : {"whole-0000-3b-00-0", "vgpu-0000-3b-00-0-1150-0"}) {
      SCOPED_TRACE(fmt::format("{}{}", former, groups ? ", with compatibility groups" : ""));
      Cluster cluster(node);
      ASSERT_EQ(cluster.ask("a", device_named(former)), former);
      hold(cluster.node, former, "a");
      cluster.scheduler.deallocate("a");
      cluster.publish();
      EXPECT_EQ(cluster.count(whole_gpu()), 1U) << "the free GPU";
      EXPECT_EQ(cluster.ask("b", vgpu_of_type("L4-12Q")), "vgpu-0000-5e-00-0-1152-0")
          << "the node would refuse those of the first GPU until its VM has ended";
      cluster.scheduler.deallocate("b");
      EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), former == std::string("whole-0000-3b-00-0") ? 4U : 7U);
      cluster.node.held.clear();
      cluster.publish();
      EXPECT_EQ(cluster.count(whole_gpu()), 2U);
    }
  }
}

TEST(PublishedSlices, CountADeviceThatAClaimHasWhateverHappens) {
  Cluster cluster(node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 7)}));
  const std::string device = cluster.ask("a", vgpu_of_type("L4-6Q"));
  hold(cluster.node, device, "a");
  const NodeModel before = cluster.node;
  const auto whole = [&] {
    cluster.publish();
    return cluster.count(whole_gpu());
  };
  EXPECT_EQ(whole(), 1U);
  cluster.slices.clear();
  EXPECT_EQ(whole(), 1U) << "the kubelet has removed all slices";
  cluster.node.gpus[0].types[0].allowed = false;
  EXPECT_EQ(whole(), 1U) << "the type is not allowed any more";
  cluster.node.gpus[0].types.clear();
  EXPECT_EQ(whole(), 1U) << "the driver lists no type any more";
  cluster.node.gpus.erase(cluster.node.gpus.begin());
  EXPECT_EQ(whole(), 1U) << "the GPU is gone";
  cluster.node = before;
  cluster.node.gpus[0].health = GpuHealth::unhealthy;
  EXPECT_EQ(whole(), 1U);
  EXPECT_EQ(cluster.count(vgpu_of_type("L4-6Q")), 4U) << "those of the other GPU";
  cluster.node.held.clear();
  cluster.scheduler.deallocate("a");
  cluster.node.gpus[0].health = GpuHealth::ready;
  EXPECT_EQ(whole(), 2U);
}

}  // namespace
}  // namespace ferry::dra
