// SPDX-License-Identifier: Apache-2.0
// Devices that hostd sanitizes after each use: what the core makes of its orders.
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kubevirt-plugin/advertised_file.h"
#include "tests/kubevirt-plugin/allocation_node.h"

namespace ferry::plugin {
namespace {

using namespace core_test;
using api::SanitizeState;
using testing::HasSubstr;

constexpr const char* kOne = "0000:01:00.0";
constexpr const char* kTwo = "0000:02:00.0";
constexpr const char* kReason = "0000:01:00.0 is being sanitized after its last use";

class SanitizedDevicesTest : public AllocationCoreTest {
 protected:
  void order(SanitizeState state, std::uint64_t count, const std::string& id = kOne) {
    core.follow(std::vector{api::SanitizedDevice{.id = id, .state = state, .count = count}});
  }
  /// Two lists do not name any device.
  void release_all() { reconcile({}, core.ticket()); }
  /// hostd has seen the allocation of `kOne`, and its count is 3.
  void give_one() {
    order(SanitizeState::available, 3);
    ASSERT_TRUE(allocate("CARD", {kOne}));
    order(SanitizeState::in_use, 3);
  }
  ListedDevice listed(const std::string& id) const {
    for (const auto& resource : core.snapshot()->resources)
      for (const auto& device : resource->devices)
        if (device.id == id) return device;
    return {.id = "not listed"};
  }
  std::optional<std::uint64_t> used_since(const std::string& id) const { return listed(id).used_since; }
  std::error_code refused_with(const Ids& ids) {
    const auto answer = allocate("CARD", ids);
    return answer ? std::error_code() : answer.error().code;
  }
};

TEST_F(SanitizedDevicesTest, AreUnhealthyFromTheirReleaseOn) {
  give_one();
  EXPECT_EQ(used_since(kOne), std::nullopt);
  EXPECT_EQ(reason(kOne), "");
  release_all();
  EXPECT_EQ(used_since(kOne), 3U);
  EXPECT_EQ(reason(kOne), kReason);
  EXPECT_FALSE(listed(kOne).allocated);
  EXPECT_TRUE(listed(kOne).awaits_release) << "it is not sick";
  EXPECT_EQ(reason(kTwo), "");
}

TEST_F(SanitizedDevicesTest, AreGivenAgainOnceTheCountHasChanged) {
  give_one();
  release_all();
  EXPECT_EQ(refused_with({kOne}), kBeingSanitized);
  order(SanitizeState::sanitizing, 3);
  EXPECT_EQ(refused_with({kOne}), kBeingSanitized);
  EXPECT_EQ(used_since(kOne), 3U);
  order(SanitizeState::available, 4);
  EXPECT_EQ(used_since(kOne), std::nullopt);
  EXPECT_EQ(reason(kOne), "");
  EXPECT_EQ(refused_with({kOne}), std::error_code());
}

// hostd may not have seen the allocation when it ends.
TEST_F(SanitizedDevicesTest, AreUsedThoughHostdSaysThatTheyAreAvailable) {
  order(SanitizeState::available, 3);
  ASSERT_TRUE(allocate("CARD", {kOne}));
  release_all();
  EXPECT_EQ(used_since(kOne), 3U);
  EXPECT_EQ(refused_with({kOne}), kBeingSanitized);
}

TEST_F(SanitizedDevicesTest, AreNotUsedAnyMoreOnceHostdNamesThemNot) {
  give_one();
  release_all();
  core.follow({});
  EXPECT_EQ(reason(kOne), "");
  order(SanitizeState::available, 3);
  EXPECT_EQ(reason(kOne), "") << "the mark is over";
  EXPECT_EQ(refused_with({kOne}), std::error_code());
}

TEST_F(SanitizedDevicesTest, AreReleasedByARequestThatDoesNotGetThemYet) {
  give_one();
  const auto answer = allocate("CARD", {kOne});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, kBeingSanitized);
  EXPECT_EQ(answer.error().message,
            "allocate nvidia.com/CARD: 0000:01:00.0: it is being sanitized after its last use");
  EXPECT_FALSE(allocated(kOne));
  EXPECT_EQ(used_since(kOne), 3U);
  EXPECT_EQ(reason("0000:01:00.1"), "") << "its group is free";
  order(SanitizeState::available, 4);
  EXPECT_EQ(refused_with({kOne}), std::error_code());
  EXPECT_TRUE(allocated(kOne));
}

TEST_F(SanitizedDevicesTest, ReleasedSoAreNotTakenUpFromAnOlderList) {
  give_one();
  const auto asked = core.ticket();
  ASSERT_EQ(refused_with({kOne}), kBeingSanitized);
  const Holding before{.resource = "nvidia.com/CARD", .ids = {kOne}, .pod = "default/before"};
  core.reconcile(std::vector{before}, {.asked = asked});
  EXPECT_FALSE(allocated(kOne));
  EXPECT_EQ(used_since(kOne), 3U);
}

TEST_F(SanitizedDevicesTest, StayWithTheirUserWhoseVmStillRuns) {
  give_one();
  check.open = {15};
  EXPECT_EQ(refused_with({kOne}), Errc::refused);
  EXPECT_TRUE(allocated(kOne));
  release_all();
  EXPECT_TRUE(allocated(kOne));
  check.open = {};
  release_all();
  EXPECT_EQ(used_since(kOne), 3U);
}

TEST_F(SanitizedDevicesTest, AreReleasedByTheRequestAfterTheEndOfTheVm) {
  give_one();
  check.open = {15};
  EXPECT_EQ(refused_with({kOne}), Errc::refused);
  EXPECT_THAT(reason("0000:01:00.1"), HasSubstr("15"));
  check.open = {};
  EXPECT_EQ(refused_with({kOne}), kBeingSanitized);
  EXPECT_EQ(reason("0000:01:00.1"), "") << "the group is closed";
}

TEST_F(SanitizedDevicesTest, AreReleasedWithTheRestOfTheirContainer) {
  order(SanitizeState::in_use, 7, kTwo);
  order(SanitizeState::available, 7, kTwo);
  ASSERT_TRUE(allocate("CARD", {kOne, kTwo}));
  EXPECT_EQ(refused_with({kOne}), std::error_code()) << "hostd does not sanitize this one";
  EXPECT_TRUE(allocated(kOne));
  EXPECT_FALSE(allocated(kTwo));
  EXPECT_EQ(used_since(kTwo), 7U);
}

TEST_F(SanitizedDevicesTest, AreAwaitedWhereHostdHasNotSeenTheEndOfTheirUse) {
  for (const auto state : {SanitizeState::in_use, SanitizeState::sanitizing}) {
    order(state, 1);
    EXPECT_EQ(refused_with({kOne}), kBeingSanitized) << text(state);
  }
  order(SanitizeState::available, 2);
  EXPECT_EQ(refused_with({kOne}), std::error_code());
}

TEST_F(SanitizedDevicesTest, AreAwaitedThoughHostdHasAFindingMeanwhile) {
  auto sick = device(kOne, 15);
  sick.problem = "it is being sanitized";
  core.replace(std::vector{resource("CARD", {sick})});
  order(SanitizeState::sanitizing, 1);
  EXPECT_EQ(refused_with({kOne}), kBeingSanitized);
  EXPECT_EQ(reason(kOne), "it is being sanitized");
}

TEST_F(SanitizedDevicesTest, ThatFailedAreRefusedWithTheReason) {
  give_one();
  release_all();
  order(SanitizeState::failed, 4);
  EXPECT_EQ(used_since(kOne), std::nullopt);
  const auto without = allocate("CARD", {kOne});
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, Errc::refused);
  EXPECT_THAT(without.error().message, HasSubstr("it could not be sanitized after its last use"));
  auto sick = device(kOne, 15);
  sick.problem = "its reset failed";
  core.replace(std::vector{resource("CARD", {sick})});
  const auto with = allocate("CARD", {kOne});
  ASSERT_FALSE(with);
  EXPECT_EQ(with.error().code, Errc::refused);
  EXPECT_THAT(with.error().message, HasSubstr("its reset failed"));
}

TEST_F(SanitizedDevicesTest, StayUsedWhileTheyAreNotListed) {
  give_one();
  release_all();
  core.replace(std::vector{resource("CARD", {device(kTwo, 16)})});
  ASSERT_EQ(reason(kOne), "not listed");
  order(SanitizeState::in_use, 3);
  core.replace(machine());
  EXPECT_EQ(used_since(kOne), 3U);
}

// A claim: the allocation has no list entry of its own.
TEST_F(SanitizedDevicesTest, AreUsedUnderAnEarlierName) {
  check.groups[kOne] = 15;
  order(SanitizeState::in_use, 3);
  const Holding former{.resource = "nvidia.com/FORMER", .ids = {kOne}, .pod = "default/former"};
  reconcile({former}, 0);
  EXPECT_EQ(used_since(kOne), std::nullopt);
  release_all();
  EXPECT_EQ(used_since(kOne), 3U);
}

TEST_F(SanitizedDevicesTest, HaveTheirNameInSysfsForHostd) {
  auto number = device("15", 15);
  number.sysfs_name = kOne;
  core.replace(std::vector{resource("CARD", {number}, EnvPrefix::none)});
  order(SanitizeState::available, 3);
  ASSERT_TRUE(allocate("CARD", {"15"}));
  release_all();
  EXPECT_EQ(used_since("15"), 3U);
  EXPECT_EQ(reason("15"), kReason);
}

// For Kata and KubeVirt the same GPU has two IDs.
TEST_F(SanitizedDevicesTest, AreUsedUnderEachOfTheirIds) {
  auto number = device("15", 15);
  number.sysfs_name = kOne;
  const std::vector both{resource("CARD", {device(kOne, 15)}), resource("KATA", {number}, EnvPrefix::none)};
  for (const std::string& id : Ids{"15", kOne}) {
    SCOPED_TRACE(id);
    core.replace(both);
    order(SanitizeState::available, 3);
    ASSERT_TRUE(allocate(id == kOne ? "CARD" : "KATA", {id}));
    release_all();
    EXPECT_EQ(used_since("15"), 3U);
    EXPECT_EQ(used_since(kOne), 3U);
    EXPECT_EQ(reason("15"), kReason);
    EXPECT_EQ(refused_with({kOne}), kBeingSanitized);
    order(SanitizeState::available, 4);
    EXPECT_EQ(reason("15"), "");
    EXPECT_EQ(reason(kOne), "");
  }
}

TEST_F(SanitizedDevicesTest, AreUsedWithTheirIommuGroup) {
  core.replace(std::vector{resource("CARD", {device(kOne, 15), device(kTwo, 15)})});
  core.follow(std::vector<api::SanitizedDevice>{{.id = kOne, .count = 3}, {.id = kTwo, .count = 7}});
  ASSERT_TRUE(allocate("CARD", {kOne}));
  release_all();
  EXPECT_EQ(used_since(kOne), 3U);
  EXPECT_EQ(used_since(kTwo), 7U);
  EXPECT_EQ(refused_with({kTwo}), kBeingSanitized);
}

// A claim with a number, whose resource has another name now.
TEST_F(SanitizedDevicesTest, AreUsedUnderAnEarlierNumber) {
  check.groups["15"] = 15;
  core.came_before({"nvidia.com/FORMER"});
  order(SanitizeState::in_use, 3);
  const Holding former{.resource = "nvidia.com/FORMER", .ids = {"15"}, .pod = "default/former"};
  reconcile({former}, 0);
  release_all();
  EXPECT_EQ(used_since(kOne), 3U);
}

TEST_F(SanitizedDevicesTest, KeepTheMarkOfAnEarlierProcessUnderANumber) {
  auto number = device("15", 15);
  number.sysfs_name = kOne;
  AllocationCore next(check);
  next.remember_used({{"15", 3}});
  for (int scans = 0; scans < 2; ++scans)
    next.replace(std::vector{resource("CARD", {number}, EnvPrefix::none)});
  next.follow(std::vector{api::SanitizedDevice{.id = kOne, .count = 3}});
  EXPECT_EQ(next.snapshot()->resources.front()->devices.front().used_since, 3U);
}

TEST_F(SanitizedDevicesTest, AreTakenUpFromThePodThatHasThem) {
  give_one();
  release_all();
  const Holding held{.resource = "nvidia.com/CARD", .ids = {kOne}, .pod = "default/vm"};
  reconcile({held}, 0);
  EXPECT_TRUE(allocated(kOne));
  EXPECT_EQ(used_since(kOne), std::nullopt);
  EXPECT_EQ(reason(kOne), "");
}

TEST_F(SanitizedDevicesTest, LetTheirReleaseBeAwaited) {
  ASSERT_TRUE(allocate("VGPU", {"uuid-1"})) << "no other device is in its group";
  ASSERT_FALSE(core.snapshot()->awaits_release);
  order(SanitizeState::in_use, 3, "uuid-1");
  EXPECT_TRUE(core.snapshot()->awaits_release);
  core.follow({});
  EXPECT_FALSE(core.snapshot()->awaits_release);
}

TEST_F(SanitizedDevicesTest, AreHandedToTheNextProcess) {
  give_one();
  release_all();
  const auto text = api::advertised_resources_text(advertised_resources(*core.snapshot(), {}, {}, 7));
  const auto file = api::read_allocations(text);
  ASSERT_TRUE(file);
  AllocationCore next(check);
  next.remember_used(used_by(*file));
  next.replace(machine());
  next.follow(std::vector{api::SanitizedDevice{.id = kOne, .state = SanitizeState::in_use, .count = 3}});
  next.reconcile(allocated_by(*file), {});
  const auto& device = next.snapshot()->resources.front()->devices.front();
  EXPECT_EQ(device.used_since, 3U);
  EXPECT_FALSE(device.allocated);
  next.follow(std::vector{api::SanitizedDevice{.id = kOne, .state = SanitizeState::available, .count = 4}});
  EXPECT_EQ(next.snapshot()->resources.front()->devices.front().used_since, std::nullopt);
}

}  // namespace
}  // namespace ferry::plugin
