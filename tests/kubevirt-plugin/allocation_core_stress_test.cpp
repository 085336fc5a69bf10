// SPDX-License-Identifier: Apache-2.0
// Pods, scans, hot-unplug, releases and streams against one core at once; meant for ThreadSanitizer, and true
// without it. The test keeps its own account of who has which group, as the hardware would.
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kubevirt-plugin/allocation_core.h"

namespace ferry {
namespace {

constexpr std::size_t kGroups = 6;
constexpr int kRounds = 600;
constexpr int kPods = 4;

class YieldingCheck final : public HostCheck {
 public:
  Result<std::vector<std::string>> nodes_now(const OfferedDevice& offered) const override {
    const auto count = calls_.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::yield();
    if (count % 17 == 16) return fail(Errc::differs, "its driver changed");
    return offered.nodes;
  }

 private:
  mutable std::atomic<unsigned> calls_ = 0;
};

OfferedDevice member(std::size_t group, int function) {
  return {.id = std::to_string(group) + "." + std::to_string(function),
          .model = "m",
          .driver = "vfio-pci",
          .iommu_group = static_cast<std::uint32_t>(group),
          .numa_node = {},
          .nodes = {"/dev/vfio/" + std::to_string(group)},
          .problem = {}};
}

std::vector<Resource> machine(std::size_t without) {
  Resource cards{.name = *ResourceName::parse("nvidia.com/CARD"), .devices = {}};
  Resource audio{.name = *ResourceName::parse("nvidia.com/AUDIO"), .devices = {}};
  for (std::size_t group = 0; group < kGroups; ++group) {
    if (group == without) continue;
    cards.devices.push_back(member(group, 0));
    audio.devices.push_back(member(group, 1));
  }
  return {cards, audio};
}

/// What the kubelet knows: which IDs are out, by pod.
class Kubelet {
 public:
  bool take(const std::string& id) {
    const std::scoped_lock lock(mutex_);
    return out_.insert(id).second;
  }
  void give_back(const std::string& id) {
    const std::scoped_lock lock(mutex_);
    out_.erase(id);
  }
  std::vector<Holding> holdings() const {
    const std::scoped_lock lock(mutex_);
    std::vector<Holding> held;
    held.reserve(out_.size());
    for (const auto& id : out_)
      held.push_back({id.ends_with(".0") ? "nvidia.com/CARD" : "nvidia.com/AUDIO", {id}});
    return held;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> out_;
};

TEST(AllocationCoreStress, NeverGivesAGroupToTwoPods) {
  const YieldingCheck check;
  AllocationCore core(check);
  core.replace(machine(kGroups));
  Kubelet kubelet;
  std::array<std::atomic<int>, kGroups> users{};
  std::atomic<int> granted = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> releases = 0;
  std::atomic<int> lists = 0;
  std::atomic<bool> done = false;

  const auto pod = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kRounds; ++i) {
      const std::size_t group = random() % kGroups;
      const int function = static_cast<int>(random() % 2);
      const std::string id = member(group, function).id;
      if (!kubelet.take(id)) continue;
      const auto answer = core.allocate(function == 0 ? "nvidia.com/CARD" : "nvidia.com/AUDIO",
                                        std::vector<std::vector<std::string>>{{id}});
      if (answer) {
        granted.fetch_add(1);
        EXPECT_EQ(users.at(group).fetch_add(1), 0) << "group " << group << " has two users";
        std::this_thread::yield();
        users.at(group).fetch_sub(1);
      } else {
        refused.fetch_add(1);
      }
      kubelet.give_back(id);
    }
  };
  const auto scanner = [&] {
    std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same run each time is what is wanted
    while (!done) core.replace(machine(random() % (2 * kGroups)));
  };
  // Only tickets that were there before the list was read are settled.
  const auto reconciler = [&] {
    while (!done) {
      const auto settled = core.ticket();
      core.reconcile(kubelet.holdings(), settled);
      releases.fetch_add(1);
      std::this_thread::yield();
    }
  };
  const auto reader = [&] {
    std::atomic<int> wakes = 0;
    while (!done) {
      auto stream = core.watch("nvidia.com/AUDIO", [&wakes] { wakes.fetch_add(1); });
      ASSERT_TRUE(stream);
      for (int i = 0; i < 20; ++i)
        if ((*stream)->take() != nullptr) lists.fetch_add(1);
      const auto snapshot = core.snapshot();
      EXPECT_EQ(snapshot->resources.size(), 2U);
    }
  };

  {
    std::vector<std::jthread> others;
    others.emplace_back(scanner);
    others.emplace_back(reconciler);
    others.emplace_back(reader);
    {
      std::vector<std::jthread> pods;
      for (unsigned i = 0; i < kPods; ++i) pods.emplace_back(pod, i + 100);
    }
    done = true;
  }
  EXPECT_GT(granted.load(), 0);
  EXPECT_GT(refused.load(), 0) << "no two pods ever met";
  EXPECT_GT(releases.load(), 0);
  EXPECT_GT(lists.load(), 0);
  core.reconcile({}, core.ticket());
  core.replace(machine(kGroups));
  for (const auto& resource : core.snapshot()->resources)
    for (const auto& device : resource->devices) EXPECT_EQ(device.reason, "") << device.id;
}

}  // namespace
}  // namespace ferry
