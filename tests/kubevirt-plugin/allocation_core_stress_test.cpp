// SPDX-License-Identifier: Apache-2.0
// Whatever happens to a core, at once with everything else: allocations, rescans, hot-unplug, a kubelet that
// restarts and says anew who holds what, requests for a group that another pod has, VMs that outlive their
// pods; and with each allocation a place. Meant for ThreadSanitizer, and true without it. The test keeps its
// own account of who has which group, as the hardware would.
//
// Two events meet when one begins while the other is on its way. Nothing makes them: two threads for each
// event start at once, a thousand times, in an order and with pauses that chance makes from fixed seeds, and
// the host's answers pause too. How often each pair has met is printed; one that never did fails the test.
#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kubevirt-plugin/allocation/allocation_core.h"
#include "tests/kubevirt-plugin/core_fixture.h"

namespace ferry::plugin {
namespace {

constexpr std::size_t kGroups = 4;
constexpr int kInterleavings = 1000;

enum Event : std::size_t { allocate, rescan, unplug, restart, conflict, outlive, kEvents };
constexpr std::array<const char*, kEvents> kNames = {"allocate",        "rescan",         "hot-unplug",
                                                     "kubelet restart", "group conflict", "outliving VM"};

/// Which events are on their way, and which have met.
class Meetings {
 public:
  void begin(Event event) {
    ++under_way_.at(event);
    for (std::size_t other = 0; other < kEvents; ++other) {
      const int count = under_way_.at(other).load() - (other == event ? 1 : 0);
      if (count <= 0) continue;
      ++met_.at(event).at(other);
      if (other != event) ++met_.at(other).at(event);
    }
  }
  void end(Event event) { --under_way_.at(event); }
  int met(std::size_t one, std::size_t other) const { return met_.at(one).at(other).load(); }

 private:
  std::array<std::atomic<int>, kEvents> under_way_{};
  std::array<std::array<std::atomic<int>, kEvents>, kEvents> met_{};
};

class During {
 public:
  During(Meetings& meetings, Event event) : meetings_(meetings), event_(event) {
    meetings_.begin(event_);
    std::this_thread::yield();  // where there is one processor, others begin theirs now
  }
  During(const During&) = delete;
  During& operator=(const During&) = delete;
  During(During&&) = delete;
  During& operator=(During&&) = delete;
  ~During() { meetings_.end(event_); }

 private:
  Meetings& meetings_;
  const Event event_;
};

/// A host that is slow to answer, so that others come in between, and at times says no.
class YieldingCheck final : public DeviceCheck {
 public:
  std::optional<std::uint32_t> group_of(std::string_view id) const override {
    const bool of_function = id.find('.') == 1;
    return of_function ? std::optional<std::uint32_t>(id.front() - '0') : std::nullopt;
  }
  std::optional<std::uint32_t> group_numbered(std::string_view /*id*/) const override { return {}; }
  /// At times another thread answers, as for one that the host holds up.
  void ask(HandOut what, Answered answered) const override {
    std::this_thread::yield();
    HostAnswer answer;
    for (const auto group : what.groups) {
      answer.groups[group] = open.at(group) ? GroupState::open : GroupState::closed;
      if (open.at(group)) return reply(std::move(answer), answered);
    }
    for (const auto& devices : what.containers) {
      auto& container = answer.containers.emplace_back();
      for (const auto& device : devices) container.nodes.push_back(nodes_now(device));
    }
    reply(std::move(answer), answered);
  }
  std::set<std::uint32_t> open_groups(const std::set<std::uint32_t>& those) const override {
    std::this_thread::yield();
    std::set<std::uint32_t> found;
    for (const auto group : those)
      if (open.at(group)) found.insert(group);
    return found;
  }

  std::array<std::atomic<bool>, kGroups> open{};  // by a VM

 private:
  Result<std::vector<std::string>> nodes_now(const ScannedDevice& advertised) const {
    const auto count = calls_.fetch_add(1, std::memory_order_relaxed);
    for (unsigned i = 0; i < count % 8; ++i) std::this_thread::yield();
    if (count % 17 == 16) return fail(Errc::differs, "its driver changed");
    return advertised.nodes;
  }

  void reply(HostAnswer answer, const Answered& answered) const {
    if (calls_ % 5 != 4) return answered(std::move(answer));
    std::jthread([&] { answered(std::move(answer)); }).join();
  }

  mutable std::atomic<unsigned> calls_ = 0;
};

ScannedDevice member(std::size_t group, int function) {
  return {.id = std::to_string(group) + "." + std::to_string(function),
          .model = "m",
          .driver = "vfio-pci",
          .iommu_group = static_cast<std::uint32_t>(group),
          .numa_node = {},
          .nodes = {"/dev/vfio/" + std::to_string(group)},
          .problem = {}};
}

const char* resource_of(const std::string& id) {
  return id.ends_with(".0") ? "nvidia.com/CARD" : "nvidia.com/AUDIO";
}

Companion usb_of(const ScannedDevice& card) {
  return {.address = card.id + "-usb",
          .model = "m",
          .driver = "vfio-pci",
          .resource = "nvidia.com/USB",
          .env_name = "USB"};
}

std::vector<Resource> machine(std::size_t without = kGroups) {
  Resource cards{.name = *ResourceName::parse("nvidia.com/CARD"), .devices = {}};
  Resource audio{.name = *ResourceName::parse("nvidia.com/AUDIO"), .devices = {}};
  const Resource usb{.name = *ResourceName::parse("nvidia.com/USB"), .devices = {}, .places = true};
  for (std::size_t group = 0; group < kGroups; ++group) {
    if (group == without) continue;
    auto& card = cards.devices.emplace_back(member(group, 0));
    card.companions = {usb_of(card)};
    audio.devices.push_back(member(group, 1));
  }
  return {cards, audio, usb};
}

/// What the kubelet knows: which IDs are out.
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
    for (const auto& id : out_) held.push_back({resource_of(id), {id}});
    held.push_back({"nvidia.com/USB", {usb_of(member(0, 0)).place()}});
    return held;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> out_;
};

class AllocationCoreStress : public testing::Test {
 protected:
  void SetUp() override { core.replace(machine()); }

  /// A pod's life: it is given a device, uses it, and ends.
  void pod(std::mt19937& random, Event event, std::size_t group, int function) {
    const auto device = member(group, function);
    const std::string& id = device.id;
    if (!kubelet.take(id)) return;
    bool given = false;
    {
      const During during(meetings, event);
      const auto answer = core_test::allocate_from(core, resource_of(id), std::vector<core_test::Ids>{{id}});
      given = answer.has_value();
      if (given && function == 0) {
        EXPECT_EQ(answer->front().companions.at("USB"), usb_of(device).address);
      }
      ask_for_place(random() % kGroups);
    }
    if (given) {
      ++granted;
      EXPECT_EQ(users.at(group).fetch_add(1), 0) << "group " << group << " has two users";
      if (event == outlive) {
        check.open.at(group) = true;
        kubelet.give_back(id);  // its pod is removed by force
      }
      for (auto i = random() % 4; i > 0; --i) std::this_thread::yield();
      users.at(group).fetch_sub(1);
      if (event == outlive) {
        check.open.at(group) = false;
        return;
      }
    } else {
      ++refused;
    }
    kubelet.give_back(id);
  }

  /// It is given unless it is unplugged, and with nothing.
  void ask_for_place(std::size_t group) {
    const auto answer = core_test::allocate_from(
        core, "nvidia.com/USB", std::vector<core_test::Ids>{{usb_of(member(group, 0)).place()}});
    if (!answer) return;
    ++places;
    EXPECT_TRUE(answer->front().nodes.empty() && answer->front().companions.empty());
  }

  void happen(Event event, std::mt19937& random) {
    switch (event) {
      case allocate:
        return pod(random, event, random() % kGroups, 0);
      case outlive:
        return pod(random, event, random() % kGroups, static_cast<int>(random() % 2));
      case conflict:  // for the other function of the group that everybody wants
        return pod(random, event, 0, static_cast<int>(random() % 2));
      case rescan: {
        const During during(meetings, event);
        return core.replace(machine());
      }
      case unplug: {
        const During during(meetings, event);
        const std::size_t group = random() % kGroups;
        const std::vector<NotAdvertised> lost = {{member(group, 0).id, "off the bus"}};
        return core.replace(machine(group),
                            random() % 2 == 0 ? std::span(lost) : std::span<const NotAdvertised>());
      }
      case restart: {
        const During during(meetings, event);
        const auto settled = core.ticket();  // of before the list
        core.reconcile(kubelet.holdings(), {.asked = settled, .settled = settled});
        const auto stream = core.watch("nvidia.com/AUDIO", [this] { ++wakes; });
        ASSERT_TRUE(stream);
        while ((*stream)->take() != nullptr) ++lists;
        return;
      }
      case kEvents:
        return;
    }
  }

  YieldingCheck check;
  AllocationCore core{check};
  Kubelet kubelet;
  Meetings meetings;
  std::array<std::atomic<int>, kGroups> users{};
  std::atomic<int> granted = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> places = 0;
  std::atomic<int> lists = 0;
  std::atomic<int> wakes = 0;
};

// An interleaving: two threads for each event, in an order and with pauses that chance makes, each for some
// rounds. With fewer processors than threads they meet where one is interrupted, waits for another's lock or
// yields.
TEST_F(AllocationCoreStress, NeverGivesAGroupToTwoPodsWhateverElseHappens) {
  for (unsigned interleaving = 0; interleaving < kInterleavings; ++interleaving) {
    std::mt19937 order(interleaving);
    std::vector<Event> events = {allocate, rescan, unplug, restart, conflict, outlive,
                                 allocate, rescan, unplug, restart, conflict, outlive};
    std::shuffle(events.begin(), events.end(), order);
    std::atomic<std::size_t> ready = 0;
    std::vector<std::jthread> threads;  // after what they read: ended before it goes
    threads.reserve(events.size());
    for (const Event event : events) {
      threads.emplace_back([&, event, seed = order()] {
        std::mt19937 random(seed);
        ++ready;
        while (ready < events.size()) std::this_thread::yield();  // all at once
        for (unsigned round = 0; round < 4; ++round) {
          for (auto i = random() % 3; i > 0; --i) std::this_thread::yield();
          happen(event, random);
        }
      });
    }
  }

  std::string table = fmt::format("{:16}", "met");
  for (const char* const name : kNames) table += fmt::format(" {:>15}", name);
  for (std::size_t one = 0; one < kEvents; ++one) {
    table += fmt::format("\n{:16}", kNames.at(one));
    for (std::size_t other = 0; other < kEvents; ++other) {
      table += fmt::format(" {:>15}", meetings.met(one, other));
      EXPECT_GT(meetings.met(one, other), 0) << kNames.at(one) << " never met " << kNames.at(other);
    }
  }
  std::cout << table << "\n" << std::flush;  // before another test forks
  EXPECT_GT(granted.load(), 0);
  EXPECT_GT(refused.load(), 0) << "no two pods ever wanted one group";
  EXPECT_GT(places.load(), 0);
  EXPECT_GT(lists.load(), 0);

  // Nothing is left over.
  core.reconcile({}, {.asked = core.ticket(), .settled = core.ticket()});
  core.replace(machine());
  for (const auto& resource : core.snapshot()->resources)
    for (const auto& device : resource->devices) EXPECT_EQ(device.reason, "") << device.id;
  EXPECT_FALSE(core.snapshot()->awaits_release);
}

}  // namespace
}  // namespace ferry::plugin
