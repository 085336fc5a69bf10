// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kubevirt-plugin/allocation/allocation_core.h"

namespace ferry::plugin {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using Ids = std::vector<std::string>;

/// The facts about a device that the choice uses.
struct Candidate {
  std::string id;
  std::optional<int> numa_node;
  std::uint32_t iommu_group = 0;
  std::vector<std::string> bus_path = {};
  std::string gpu = {};
};

std::vector<ScannedDevice> devices(const std::vector<Candidate>& candidates) {
  std::vector<ScannedDevice> out;
  for (const Candidate& candidate : candidates) {
    ScannedDevice& device = out.emplace_back();
    device.id = candidate.id;
    device.numa_node = candidate.numa_node;
    device.iommu_group = candidate.iommu_group;
    device.bus_path = candidate.bus_path;
    device.gpu = candidate.gpu;
  }
  return out;
}

// p, q, r on node 2; s, t on node 3; u and v on none.
const std::vector<ScannedDevice>& machine() {
  static const std::vector<ScannedDevice> kMachine =
      devices({{"p", 2, 1}, {"q", 2, 2}, {"r", 2, 3}, {"s", 3, 4}, {"t", 3, 5}, {"u", {}, 6}, {"v", {}, 7}});
  return kMachine;
}

struct Preference {
  std::string row;
  Ids available;
  Ids must_include;
  int size = 0;
  Ids chosen;
};
class PreferredAllocation : public testing::TestWithParam<Preference> {};

TEST_P(PreferredAllocation, Chooses) {
  const auto& desired_state = GetParam();
  const auto chosen = preferred_allocation(machine(), desired_state.available, desired_state.must_include,
                                           desired_state.size);
  ASSERT_TRUE(chosen);
  EXPECT_THAT(*chosen, ElementsAreArray(desired_state.chosen));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PreferredAllocation,
    testing::Values(Preference{"NodeThatHoldsAll", {"s", "p", "q", "t", "r"}, {}, 3, {"p", "q", "r"}},
                    Preference{"WholeOnAnotherNodeThanTheIncluded", {"s", "p", "t"}, {"p"}, 2, {"p", "s"}},
                    Preference{"NoNodeHoldsAll", {"t", "q"}, {}, 2, {"t", "q"}},
                    Preference{"IncludedTwice", {"s", "t"}, {"s", "s", "t"}, 2, {"s", "t"}},
                    Preference{"IncludedNodeFirst", {"p", "q", "r", "s", "t"}, {"t"}, 2, {"t", "s"}},
                    Preference{"OneOfTheEmptierNode", {"p", "t", "q"}, {}, 1, {"t"}},
                    Preference{"FewestNodes", {"s", "p", "t", "q", "r"}, {}, 4, {"s", "p", "q", "r"}},
                    Preference{"AvailableTwice", {"p", "p", "s"}, {}, 2, {"p", "s"}},
                    Preference{"UnknownNodesTogether", {"p", "u", "v"}, {}, 2, {"u", "v"}},
                    Preference{"StrangersCountAsUnknown", {"p", "x", "u"}, {}, 2, {"x", "u"}},
                    Preference{"MoreThanThereIs", {"p", "s"}, {}, 5, {"p", "s"}},
                    Preference{"NothingAsked", {"p"}, {}, 0, {}}, Preference{"NothingThere", {}, {}, 2, {}}),
    [](const auto& row) { return row.param.row; });

// Two switches below one root port: four cards below the first, two below the second; one card beside them.
const std::vector<ScannedDevice>& tree() {
  using Path = std::vector<std::string>;
  static const Path kFirst = {"pci0000:00", "port", "switch-1"};
  static const Path kSecond = {"pci0000:00", "port", "switch-2"};
  static const std::vector<ScannedDevice> kTree = devices({{"a1", 0, 1, kFirst},
                                                           {"a2", 0, 2, kFirst},
                                                           {"a3", 0, 3, kFirst},
                                                           {"a4", 0, 4, kFirst},
                                                           {"b1", 0, 5, kSecond},
                                                           {"b2", 0, 6, kSecond},
                                                           {"c", 0, 7, Path{"pci0000:80"}}});
  return kTree;
}

class PreferredByDistance : public testing::TestWithParam<Preference> {};

TEST_P(PreferredByDistance, Chooses) {
  const auto& desired_state = GetParam();
  const auto chosen =
      preferred_allocation(tree(), desired_state.available, desired_state.must_include, desired_state.size);
  ASSERT_TRUE(chosen);
  EXPECT_THAT(*chosen, ElementsAreArray(desired_state.chosen));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PreferredByDistance,
    testing::Values(
        Preference{"TwoBelowOneSwitch", {"a1", "b1", "c", "b2", "a2", "a3", "a4"}, {}, 2, {"b1", "b2"}},
        Preference{
            "FourBelowOneSwitch", {"b1", "a1", "c", "a2", "b2", "a3", "a4"}, {}, 4, {"a1", "a2", "a3", "a4"}},
        Preference{"OneWhereNothingIsBroken", {"a1", "a2", "b1", "b2", "c"}, {}, 1, {"c"}},
        Preference{"BesideTheIncluded", {"a1", "b2", "c", "a2"}, {"b1"}, 2, {"b1", "b2"}},
        Preference{
            "FiveBelowOnePort", {"c", "a1", "a2", "a3", "a4", "b1"}, {}, 5, {"a1", "a2", "a3", "a4", "b1"}},
        Preference{"All", {"c", "b1", "a1"}, {}, 3, {"c", "b1", "a1"}}),
    [](const auto& row) { return row.param.row; });

TEST(PreferredByGroup, BreaksNoGroupThatHasAnotherToGive) {
  const std::vector<ScannedDevice> cards = devices({{"a", 0, 1}, {"b", 0, 1}, {"c", 0, 2}});
  EXPECT_THAT(*preferred_allocation(cards, Ids{"a", "b", "c"}, Ids{}, 1), ElementsAreArray({"c"}));
  EXPECT_THAT(*preferred_allocation(cards, Ids{"c", "a", "b"}, Ids{}, 2), ElementsAreArray({"a", "b"}));
}

// The kubelet's IDs come from sets.
TEST(PreferredAllocationOrder, DoesNotMatter) {
  const std::vector<ScannedDevice> vgpus = devices({{"a1", 0, 1, {}, "a"},
                                                    {"a2", 0, 2, {}, "a"},
                                                    {"b1", 0, 3, {}, "b"},
                                                    {"b2", 0, 4, {}, "b"},
                                                    {"c1", 1, 5, {}, "c"},
                                                    {"c2", 1, 6, {}, "c"}});
  for (const auto& candidates : {machine(), tree(), vgpus}) {
    Ids ids;
    for (const auto& candidate : candidates) ids.push_back(candidate.id);
    for (int size = 1; size <= 4; ++size) {
      std::set<Ids> answers;
      do {
        for (const std::size_t included : {0U, 1U, 2U}) {
          if (static_cast<int>(included) > size) continue;
          Ids must(candidates.size() > included ? included : 0);
          for (std::size_t i = 0; i < must.size(); ++i) must[i] = candidates[2 * i].id;
          if (ids.front() > ids.back()) std::ranges::reverse(must);
          auto chosen = *preferred_allocation(candidates, ids, must, size);
          std::ranges::sort(chosen);
          chosen.push_back(std::to_string(included));
          answers.insert(std::move(chosen));
        }
      } while (std::ranges::next_permutation(ids).found);
      EXPECT_EQ(answers.size(), size == 1 ? 2 : 3) << size << " of " << candidates.size();
    }
  }
}

// Of x two are taken, of y none.
TEST(PreferredVgpus, PacksOrSpreads) {
  const std::vector<ScannedDevice> vgpus = devices({{"x1", 0, 1, {}, "x"},
                                                    {"x2", 0, 2, {}, "x"},
                                                    {"x3", 0, 3, {}, "x"},
                                                    {"x4", 0, 4, {}, "x"},
                                                    {"y1", 0, 5, {}, "y"},
                                                    {"y2", 0, 6, {}, "y"},
                                                    {"y3", 0, 7, {}, "y"},
                                                    {"y4", 0, 8, {}, "y"}});
  const Ids available = {"y1", "y2", "y3", "y4", "x3", "x4"};
  const auto choose = [&](int size, VgpuPlacement placement) {
    return *preferred_allocation(vgpus, available, Ids{}, size, placement);
  };
  EXPECT_THAT(choose(1, VgpuPlacement::pack), ElementsAreArray({"x3"}));
  EXPECT_THAT(choose(3, VgpuPlacement::pack), ElementsAreArray({"y1", "x3", "x4"}));
  EXPECT_THAT(choose(1, VgpuPlacement::spread), ElementsAreArray({"y1"}));
  EXPECT_THAT(choose(4, VgpuPlacement::spread), ElementsAreArray({"y1", "y2", "y3", "x3"}));
}

// On node 0 nothing of x is taken and one of y; on node 1 two of z; on node 2 three of w, and one is left.
TEST(PreferredVgpus, ComeFromTheBestGpuOfAllNodesThatHoldThemAll) {
  const std::vector<ScannedDevice> vgpus = devices({{"x1", 0, 1, {}, "x"},
                                                    {"x2", 0, 2, {}, "x"},
                                                    {"y1", 0, 3, {}, "y"},
                                                    {"y2", 0, 4, {}, "y"},
                                                    {"z1", 1, 5, {}, "z"},
                                                    {"z2", 1, 6, {}, "z"},
                                                    {"z3", 1, 7, {}, "z"},
                                                    {"z4", 1, 8, {}, "z"},
                                                    {"w1", 2, 9, {}, "w"},
                                                    {"w2", 2, 10, {}, "w"},
                                                    {"w3", 2, 11, {}, "w"},
                                                    {"w4", 2, 12, {}, "w"}});
  const Ids available = {"y2", "x1", "x2", "z3", "z4", "w4"};
  const auto choose = [&](int size, VgpuPlacement placement, const Ids& must_include = {}) {
    return *preferred_allocation(vgpus, available, must_include, size, placement);
  };
  EXPECT_THAT(choose(1, VgpuPlacement::pack), ElementsAreArray({"w4"}));
  EXPECT_THAT(choose(2, VgpuPlacement::pack), ElementsAreArray({"z3", "z4"})) << "node 2 has one only";
  EXPECT_THAT(choose(3, VgpuPlacement::pack), ElementsAreArray({"y2", "x1", "x2"}));
  EXPECT_THAT(choose(1, VgpuPlacement::spread), ElementsAreArray({"x1"}));
  EXPECT_THAT(choose(2, VgpuPlacement::spread), ElementsAreArray({"x1", "x2"}));
  EXPECT_THAT(choose(2, VgpuPlacement::pack, {"x2"}), ElementsAreArray({"x2", "x1"})) << "its own node first";
  EXPECT_THAT(choose(2, VgpuPlacement::spread, {"w4"}), ElementsAreArray({"w4", "x1"}))
      << "no more on its node";
}

TEST(PreferredAllocationErrors, MoreIncludedThanFit) {
  const auto chosen = preferred_allocation(machine(), Ids{}, Ids{"p", "q"}, 1);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, Errc::usage);
  EXPECT_THAT(chosen.error().message, HasSubstr("2 devices must be included in an allocation of 1"));
}

TEST(PreferredAllocationErrors, NegativeSize) {
  EXPECT_FALSE(preferred_allocation(machine(), Ids{"p"}, Ids{}, -1));
}

}  // namespace
}  // namespace ferry::plugin
