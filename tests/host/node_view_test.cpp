// SPDX-License-Identifier: Apache-2.0
// One word for each accelerator, and its reason: what comes before what.
#include "host/node_view.h"

#include <algorithm>
#include <iterator>

#include <gmock/gmock.h>

#include "mdev/vgpu_inventory.h"
#include "policy/accelerators.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NodeViewTest : public testing::Test {
 protected:
  NodeSight sight_of(const std::string& machine) {
    test::composed_machine(machine).build(machine_);
    NodeSight sight;
    sight.inventory = must(scan(machine_.kernel));
    sight.vgpus = must(scan_vgpus(machine_.kernel, sight.inventory, default_accelerator_rules()));
    sight.use.holders = machine_.holders;
    return sight;
  }
  static AcceleratorView of(const NodeSight& sight, const std::string& address) {
    const NodePicture view = view_of(sight, default_accelerator_rules(), {});
    return *view.find(must(PciAddress::parse(address)));
  }
  static AcceleratorState said(const std::string& address, Standing standing) {
    AcceleratorState state;
    state.address = must(PciAddress::parse(address));
    state.driver = "nvidia";
    state.state = standing;
    state.reason = "why";
    state.hint = "what to do";
    return state;
  }

  test::Machine machine_;
};

TEST_F(NodeViewTest, WhatHostdSaysComesBeforeWhatIsSeen) {
  NodeSight sight = sight_of("t4-server");
  struct Row {
    Standing standing;
    std::string word;
    Health health;
  };
  for (const Row& row :
       {Row{Standing::failed, "failed", Health::bad}, Row{Standing::refused, "refused", Health::bad},
        Row{Standing::waiting, "changing", Health::attention}}) {
    sight.state.emplace().accelerators = {said("0000:3b:00.0", row.standing)};
    const Condition condition = of(sight, "0000:3b:00.0").condition;
    EXPECT_EQ(condition.word, row.word);
    EXPECT_EQ(condition.health, row.health);
    EXPECT_EQ(condition.reason, "why");
    EXPECT_EQ(condition.hint, "what to do");
  }
  for (const Standing standing : {Standing::as_wanted, Standing::left_alone}) {
    sight.state.emplace().accelerators = {said("0000:3b:00.0", standing)};
    EXPECT_EQ(of(sight, "0000:3b:00.0").condition.word, "free");
  }
}

// Its file outlives it, and others move devices too.
TEST_F(NodeViewTest, WhatHostdSaidOfAnotherDriverIsNotBelieved) {
  NodeSight sight = sight_of("t4-server");
  AcceleratorState old = said("0000:3b:00.0", Standing::refused);
  old.driver = "vfio-pci";
  old.mode = Mode::passthrough;
  sight.state.emplace().accelerators = {old};
  EXPECT_EQ(of(sight, "0000:3b:00.0").condition.word, "free");
}

TEST_F(NodeViewTest, AnActThatHangsComesFirstAndIsOfTheWholeGroup) {
  NodeSight sight = sight_of("laptop");
  sight.stuck = {{.pid = 7,
                  .act = "write /sys/bus/pci/drivers/snd_hda_intel/unbind",
                  .value = "0000:01:00.1",
                  .kernel_state = {}}};
  sight.state.emplace().accelerators = {said("0000:01:00.0", Standing::refused)};
  const Condition condition = of(sight, "0000:01:00.0").condition;
  EXPECT_EQ(condition.word, "stuck");
  EXPECT_THAT(condition.reason, HasSubstr("snd_hda_intel/unbind (pid 7)"));
}

TEST_F(NodeViewTest, AVgpuThatNoVmCanBeGivenIsToldOf) {
  NodeSight sight = sight_of("t4-server");
  for (VgpuGpu& gpu : sight.vgpus.gpus)
    if (!gpu.devices.empty()) gpu.devices.front().iommu_group.reset();
  const Condition condition = of(sight, "0000:af:00.0").condition;
  EXPECT_EQ(condition.word, "unusable");
  EXPECT_THAT(condition.hint, testing::HasSubstr("made anew"));
  EXPECT_THAT(condition.reason, HasSubstr("has no IOMMU group"));
}

TEST_F(NodeViewTest, AHolderOfAnyMemberIsOneOfTheGroups) {
  NodeSight sight = sight_of("one-group");
  sight.use.holders["0000:45:00.0"] = {test::vm_holder("net", 9, "/dev/vfio/7")};
  for (const char* gpu : {"0000:41:00.0", "0000:44:00.0"}) {
    EXPECT_EQ(of(sight, gpu).condition.word, "in use");
    EXPECT_EQ(of(sight, gpu).holders.size(), 1U);
  }
}

// On vfio, on the host's driver, with vGPUs.
TEST_F(NodeViewTest, WhereAHolderMayHaveGoneUnseenNothingIsCalledFree) {
  NodeSight sight = sight_of("t4-server");
  sight.use.holders.clear();
  std::vector<std::string> free;
  for (const AcceleratorView& view : view_of(sight, default_accelerator_rules(), {}).accelerators)
    if (view.condition.word == "free") free.push_back(view.address().text());
  ASSERT_GE(free.size(), 3U);
  sight.use.blind = "process 7 could not be looked into";
  for (const std::string& gpu : free) {
    const Condition condition = of(sight, gpu).condition;
    EXPECT_EQ(condition.word, "use unknown") << gpu;
    EXPECT_EQ(condition.health, Health::attention);
    EXPECT_FALSE(condition.reason.empty());
  }
}

TEST_F(NodeViewTest, AMemberThatIsNotSeenIntoKeepsItsGroupFromBeingCalledFree) {
  NodeSight sight = sight_of("one-group");
  sight.use.holders.clear();
  sight.use.unseen["0000:45:00.0"] = "no permission";
  EXPECT_EQ(of(sight, "0000:44:00.0").condition.word, "use unknown");
  sight.use.holders["0000:45:00.0"] = {test::vm_holder("net", 9, "/dev/vfio/7")};
  EXPECT_EQ(of(sight, "0000:44:00.0").condition.word, "in use") << "one is seen";
}

TEST_F(NodeViewTest, KatasNumberIsKnownByItsGroup) {
  NodeSight sight = sight_of("t4-server");
  sight.offered.emplace().devices = {
      {.resource = "nvidia.com/pgpu", .id = "0", .iommu_group = 31},
      {.resource = "nvidia.com/TU104GL_TESLA_T4",
       .id = "0000:5e:00.0",
       .iommu_group = 31,
       .healthy = false,
       .reason = "gone"},
      {.resource = "nvidia.com/other", .id = "0000:d8:00.0", .iommu_group = 31}};
  sight.offered->not_offered = {{"0000:3b:00.0", "on driver nvidia"}};
  const AcceleratorView view = of(sight, "0000:5e:00.0");
  std::vector<std::string> names;
  std::ranges::transform(view.offers, std::back_inserter(names), &OfferedAs::resource);
  EXPECT_THAT(names, ElementsAre("nvidia.com/pgpu", "nvidia.com/TU104GL_TESLA_T4"));
  EXPECT_EQ(view.condition.word, "unhealthy");
  EXPECT_THAT(view.condition.hint, testing::HasSubstr("bound anew"));
  EXPECT_EQ(view.condition.reason, "gone");
  EXPECT_EQ(of(sight, "0000:3b:00.0").not_offered, "on driver nvidia");
  EXPECT_THAT(of(sight, "0000:3b:00.0").offers, IsEmpty());
}

// A pod has another function of its group: it is taken, and well.
TEST_F(NodeViewTest, WhatIsHeldWithItsGroupIsInUse) {
  NodeSight sight = sight_of("t4-server");
  sight.offered.emplace().devices = {{.resource = "nvidia.com/TU104GL_TESLA_T4",
                                      .id = "0000:5e:00.0",
                                      .iommu_group = 31,
                                      .healthy = false,
                                      .reason = "held back: 0000:5e:00.1 of its IOMMU group 31 is allocated",
                                      .held_with_group = true}};
  const AcceleratorView view = of(sight, "0000:5e:00.0");
  EXPECT_EQ(view.condition.word, "in use");
  EXPECT_EQ(view.condition.health, Health::good);
}

TEST(OfferedDevicesTest, TellWhatIsHeldWithItsGroup) {
  const auto read = must(read_offered_devices(
      R"({"version":1,"resources":[{"name":"r","devices":[
          {"id":"a","iommu_group":1,"allocated":false,"healthy":false,"held_with_group":true},
          {"id":"b","iommu_group":1,"allocated":false,"healthy":false},
          {"id":"c","iommu_group":1,"allocated":false,"healthy":false,"held_with_group":"yes"}]}]})"));
  ASSERT_EQ(read.devices.size(), 3U);
  EXPECT_TRUE(read.devices[0].held_with_group);
  EXPECT_FALSE(read.devices[1].held_with_group) << "of a plugin that does not say it";
  EXPECT_FALSE(read.devices[2].held_with_group);
}

TEST(OfferedDevicesTest, TellWhatIsNotHealthyAndWhatIsNotOffered) {
  const auto read = must(read_offered_devices(
      R"({"version":1,"resources":[{"name":"r","devices":[
          {"id":"a","iommu_group":1,"allocated":false,"healthy":false,"reason":"x"},
          {"id":"b","iommu_group":2,"allocated":true},
          {"id":"c","iommu_group":3,"allocated":true,"healthy":"no","reason":7}]}],
          "not_offered":[{"id":"d","reason":"y"},{"id":"e"},7,{"id":5,"reason":"z"}]})"));
  ASSERT_EQ(read.devices.size(), 3U);
  EXPECT_FALSE(read.devices[0].healthy);
  EXPECT_EQ(read.devices[0].reason, "x");
  EXPECT_TRUE(read.devices[1].healthy) << "of one that does not say so nothing is held against it";
  EXPECT_TRUE(read.devices[2].healthy);
  EXPECT_EQ(read.not_offered, (std::map<std::string, std::string>{{"d", "y"}}));
  EXPECT_TRUE(read.resource("r")->registered) << "one that does not say so is read";
  EXPECT_EQ(read.stands_back, "");
}

TEST(OfferedDevicesTest, TellWhetherTheKubeletIsToldOfThem) {
  const auto read = must(read_offered_devices(
      R"({"version":1,"stands_back":"another serves","resources":[
          {"name":"a","registered":false,"devices":[]},
          {"name":"b","registered":true,"devices":[],"places":[{"id":"place-x"},{"id":"place-y"}]},
          {"name":"c","registered":"no","devices":[],"places":7}]})"));
  EXPECT_EQ(read.stands_back, "another serves");
  EXPECT_FALSE(read.resource("a")->registered);
  EXPECT_EQ(read.resource("b")->places, 2U);
  EXPECT_TRUE(read.resource("c")->registered);
  EXPECT_EQ(read.resource("c")->places, 0U);
  EXPECT_EQ(read.resource("d"), nullptr);
}

}  // namespace
}  // namespace ferry
