// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "dra/names.h"
#include "dra/publish/slice_publisher.h"
#include "dra/slices/publication.h"
#include "tests/dra/scheduler_model.h"
#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using test::l4;
using test::node_with;
using testing::ElementsAre;
using testing::IsEmpty;

using Action = SliceRequest::Action;

/// An API server that does what a plan asks for, one request after the other.
class Store {
 public:
  explicit Store(NodeModel model) : node(std::move(model)) {}

  SlicePlan plan(std::uint64_t last = 0) const {
    return plan_slices(stored(), slices_of(publication_of(node), node.owner, 0), last);
  }
  std::vector<StoredSlice> stored() const {
    std::vector<StoredSlice> out;
    for (const auto& [name, slice] : slices)
      out.push_back({.name = name, .uid = "uid-of-" + name, .version = "1", .slice = slice});
    return out;
  }
  void send(const SliceRequest& request) {
    ResourceSlice slice = request.slice;
    for (Device& device : slice.devices)
      for (Taint& taint : device.taints)
        if (taint.time_added.empty()) taint.time_added = now;
    switch (request.action) {
      case Action::create:
        slices[slice_name_prefix(slice.index, slice.owner.node) + std::to_string(++last_name_)] = slice;
        break;
      case Action::update:
        slices.at(request.name) = slice;
        break;
      case Action::remove:
        slices.erase(request.name);
        break;
    }
  }
  void publish() {
    const SlicePlan all = plan();
    for (const SliceRequest& request : all.requests) send(request);
  }
  std::vector<ResourceSlice> read() const {
    std::vector<ResourceSlice> out;
    for (const auto& [name, slice] : slices) out.push_back(slice);
    return out;
  }

  NodeModel node;
  std::map<std::string, ResourceSlice> slices;
  std::string now = "2026-11-28T00:00:00Z";

 private:
  int last_name_ = 0;
};

std::vector<Action> actions_of(const SlicePlan& plan) {
  std::vector<Action> out;
  for (const SliceRequest& request : plan.requests) out.push_back(request.action);
  return out;
}

TEST(SlicePlan, CreatesAllAndThenNothing) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  const SlicePlan first = store.plan();
  EXPECT_EQ(first.generation, 1U);
  EXPECT_THAT(actions_of(first), ElementsAre(Action::create, Action::create));
  EXPECT_EQ(first.requests.front().slice.counter_sets.size(), 1U) << "devices name the counters";
  store.publish();
  EXPECT_THAT(store.plan().requests, IsEmpty());
  EXPECT_EQ(store.plan().generation, 1U);
}

TEST(SlicePlan, UpdatesTaintsAloneAndKeepsTheTimeOfTheFormerOnes) {
  Store store(node_with({l4("0000:3b:00.0", 42), l4("0000:5e:00.0", 57)}));
  store.publish();
  store.node.gpus.front().health = GpuHealth::unhealthy;
  const SlicePlan tainted = store.plan();
  EXPECT_EQ(tainted.generation, 1U);
  EXPECT_THAT(actions_of(tainted), ElementsAre(Action::update)) << "the counters stay as they are";
  store.publish();
  store.now = "2026-11-28T01:00:00Z";
  store.node.gpus.back().health = GpuHealth::unhealthy;
  store.publish();
  std::map<std::string, int> times;
  for (const ResourceSlice& slice : store.read())
    for (const Device& device : slice.devices)
      for (const Taint& taint : device.taints) ++times[taint.time_added];
  EXPECT_EQ(times.size(), 2U);
  EXPECT_THAT(store.plan().requests, IsEmpty());
}

TEST(SlicePlan, WritesSlicesWithMoreTaintsFirst) {
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 20; ++i) gpus.push_back(l4(fmt::format("0000:{:02x}:00.0", i + 1), i + 1));
  Store store(node_with(gpus));
  store.node.gpus.front().health = GpuHealth::unhealthy;
  store.publish();
  store.node.gpus.front().health = GpuHealth::ready;
  store.node.gpus.back().health = GpuHealth::unhealthy;
  const SlicePlan plan = store.plan();
  ASSERT_GE(plan.requests.size(), 2U);
  const auto taints = [](const ResourceSlice& slice) {
    std::size_t out = 0;
    for (const Device& device : slice.devices) out += device.taints.size();
    return out;
  };
  EXPECT_GT(taints(plan.requests.front().slice), 0U);
  EXPECT_EQ(taints(plan.requests.back().slice), 0U);
}

TEST(SlicePlan, TheSchedulerAllocatesNothingWhileTheDevicesChange) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  store.node.gpus.push_back(l4("0000:5e:00.0", 57));
  const SlicePlan plan = store.plan();
  EXPECT_EQ(plan.generation, 2U);
  for (std::size_t i = 0; i < plan.requests.size(); ++i) {
    test::SchedulerModel scheduler;
    if (i > 0) {
      scheduler.see(store.read());
      EXPECT_FALSE(scheduler.allocate("a", {{.name = "card", .alternatives = {test::whole_gpu()}}}))
          << i << " of " << plan.requests.size();
    }
    store.send(plan.requests[i]);
  }
  test::SchedulerModel scheduler;
  scheduler.see(store.read());
  EXPECT_TRUE(scheduler.allocate("a", {{.name = "card", .alternatives = {test::whole_gpu()}}}));
  EXPECT_THAT(store.plan().requests, IsEmpty());
}

TEST(SlicePlan, RemovesSlicesOnlyAfterTheOthersAreWritten) {
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < 20; ++i) gpus.push_back(l4(fmt::format("0000:{:02x}:00.0", i + 1), i + 1));
  Store store(node_with(gpus));
  store.publish();
  const std::size_t before = store.slices.size();
  store.node.gpus.resize(1);
  const SlicePlan plan = store.plan();
  EXPECT_THAT(actions_of(plan).front(), Action::update);
  EXPECT_THAT(actions_of(plan).back(), Action::remove);
  bool removes = false;
  for (const Action action : actions_of(plan)) {
    EXPECT_TRUE(!removes || action == Action::remove);
    removes = removes || action == Action::remove;
  }
  store.publish();
  EXPECT_LT(store.slices.size(), before);
  EXPECT_EQ(store.slices.size(), 2U);
}

TEST(SlicePlan, AnEmptyNodeHasOneSlice) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  store.node.gpus.clear();
  store.publish();
  ASSERT_EQ(store.slices.size(), 1U);
  EXPECT_THAT(store.read().front().devices, IsEmpty());
  EXPECT_THAT(store.read().front().counter_sets, IsEmpty()) << "its first slice had counters before";
}

TEST(SlicePlan, AWipedPoolGetsAGenerationAboveTheLastOne) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  store.slices.clear();
  const SlicePlan plan = store.plan(7);
  EXPECT_EQ(plan.generation, 8U);
  EXPECT_THAT(actions_of(plan), ElementsAre(Action::create, Action::create));
}

TEST(SlicePlan, OneSliceThatWasRemovedRenewsAll) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  store.slices.erase(store.slices.begin());
  const SlicePlan plan = store.plan();
  EXPECT_EQ(plan.generation, 2U);
  EXPECT_THAT(actions_of(plan), ElementsAre(Action::create, Action::update));
  store.publish();
  EXPECT_THAT(store.plan().requests, IsEmpty());
}

TEST(SlicePlan, RemovesADoubleOfALostAnswer) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  store.slices["00000-gpu-ferry.io-node7-zz"] = store.slices.begin()->second;
  store.publish();
  EXPECT_EQ(store.slices.size(), 2U);
  EXPECT_THAT(store.plan().requests, IsEmpty());
}

TEST(SlicePlan, RemovesUnreadableSlicesAndThoseOfAnotherPool) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  std::vector<StoredSlice> stored = store.stored();
  ResourceSlice other = *stored.front().slice;
  other.pool = "node7";
  other.generation = 99;
  stored.push_back({.name = "other", .uid = "o", .version = "1", .slice = other});
  stored.push_back({.name = "unreadable", .uid = "u", .version = "1"});
  const SlicePlan plan =
      plan_slices(std::move(stored), slices_of(publication_of(store.node), store.node.owner, 0));
  EXPECT_EQ(plan.generation, 1U);
  ASSERT_THAT(actions_of(plan), ElementsAre(Action::remove, Action::remove));
  EXPECT_EQ(plan.requests.front().name, "other");
  EXPECT_EQ(plan.requests.back().uid, "u");
}

TEST(SlicePlan, AnUnknownNodeKeepsTheOwner) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.publish();
  store.node.owner.node_uid.clear();
  EXPECT_THAT(store.plan().requests, IsEmpty());
  store.node.owner.node_uid = "another";
  EXPECT_THAT(actions_of(store.plan()), ElementsAre(Action::update, Action::update));
}

TEST(SlicePlan, KnowsAnAnswerThatLacksFields) {
  Store store(node_with({l4("0000:3b:00.0", 42)}));
  store.node.gpus.front().health = GpuHealth::unhealthy;
  const ResourceSlice sent = store.plan().requests.back().slice;
  ResourceSlice kept = sent;
  for (Device& device : kept.devices) device.taints.front().time_added = store.now;
  EXPECT_TRUE(is_stored_as_sent(kept, sent));
  kept.devices.front().consumes.clear();
  EXPECT_FALSE(is_stored_as_sent(kept, sent));
}

}  // namespace
}  // namespace ferry::dra
