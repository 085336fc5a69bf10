// SPDX-License-Identifier: Apache-2.0
// One word for each accelerator, and its reason: what comes before what.
#include "host/node_description.h"

#include <algorithm>
#include <iterator>

#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "policy/accelerators.h"
#include "tests/support/machines.h"
#include "tests/support/must.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NodeDescriptionTest : public testing::Test {
 protected:
  NodeSnapshot snapshot_of(const std::string& machine) {
    test::composed_machine(machine).build(machine_);
    NodeSnapshot snapshot;
    snapshot.inventory = must(vfio::scan(machine_.kernel));
    vfio::read_unit_facts(machine_.kernel, policy::default_accelerator_rules(), snapshot.inventory);
    snapshot.vgpus =
        must(mdev::scan_vgpus(machine_.kernel, snapshot.inventory, policy::default_accelerator_rules()));
    snapshot.use.users = machine_.users;
    return snapshot;
  }
  static AcceleratorDescription of(const NodeSnapshot& snapshot, const std::string& address) {
    const NodeDescription description = describe_node(snapshot, policy::default_accelerator_rules(), {});
    return *description.find(must(vfio::PciAddress::parse(address)));
  }
  static api::AcceleratorStatus said(const std::string& address, api::GpuState condition) {
    api::AcceleratorStatus state;
    state.address = must(vfio::PciAddress::parse(address));
    state.driver = "nvidia";
    state.state = condition;
    state.reason = "why";
    state.hint = "what to do";
    return state;
  }

  test::Machine machine_;
};

TEST_F(NodeDescriptionTest, WhatHostdSaysComesBeforeWhatIsSeen) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  struct Row {
    api::GpuState condition;
    std::string word;
    Health health;
  };
  for (const Row& row : {Row{api::GpuState::failed, "failed", Health::bad},
                         Row{api::GpuState::blocked, "blocked", Health::bad},
                         Row{api::GpuState::pending, "pending", Health::attention}}) {
    snapshot.status.emplace().accelerators = {said("0000:3b:00.0", row.condition)};
    const Condition condition = of(snapshot, "0000:3b:00.0").condition;
    EXPECT_EQ(condition.word, row.word);
    EXPECT_EQ(condition.health, row.health);
    EXPECT_EQ(condition.reason, "why");
    EXPECT_EQ(condition.hint, "what to do");
  }
  for (const api::GpuState condition : {api::GpuState::ready, api::GpuState::unmanaged}) {
    snapshot.status.emplace().accelerators = {said("0000:3b:00.0", condition)};
    EXPECT_EQ(of(snapshot, "0000:3b:00.0").condition.word, "free");
  }
}

// A host driver may offer no types yet, for example until nvidia-vgpud lists them.
TEST_F(NodeDescriptionTest, AGpuThatCannotHaveItsVgpusYetHasAWordForTheReason) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  api::AcceleratorStatus asked = said("0000:3b:00.0", api::GpuState::ready);
  asked.desired = api::Mode::vgpu;
  snapshot.status.emplace().accelerators = {asked};
  const Condition without = of(snapshot, "0000:3b:00.0").condition;
  EXPECT_EQ(without.word, "no vGPU host driver");
  EXPECT_EQ(without.health, Health::attention);
  EXPECT_THAT(without.reason, HasSubstr("is no vGPU host driver"));
  for (mdev::VgpuGpu& gpu : snapshot.vgpus.gpus) {
    if (gpu.address().text() != "0000:3b:00.0") continue;
    gpu.host_driver = true;
    gpu.obstacle = "its driver nvidia offers no vGPU types until nvidia-vgpud lists them";
  }
  const Condition awaited = of(snapshot, "0000:3b:00.0").condition;
  EXPECT_EQ(awaited.word, "no vGPU types");
  EXPECT_EQ(awaited.health, Health::attention);
  EXPECT_THAT(awaited.reason, HasSubstr("until nvidia-vgpud lists them"));
}

TEST_F(NodeDescriptionTest, AGpuWithSriovAndWithoutVirtualFunctionsIsJudgedAsAWhole) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  machine_.kernel.add_function(test::kinds::kDisk, "0000:3c:00.0", 30, "nvme");
  snapshot.inventory = must(vfio::scan(machine_.kernel));
  const auto address = must(vfio::PciAddress::parse("0000:3b:00.0"));
  const auto gpu = std::ranges::find_if(snapshot.vgpus.gpus,
                                        [&](const mdev::VgpuGpu& one) { return one.address() == address; });
  ASSERT_NE(gpu, snapshot.vgpus.gpus.end());
  gpu->framework = &mdev::whole_functions();
  EXPECT_EQ(of(snapshot, "0000:3b:00.0").condition.word, "not viable");
  snapshot.inventory.functions.at(address).sriov_numvfs = 2;
  EXPECT_EQ(of(snapshot, "0000:3b:00.0").condition.word, "free");
  snapshot.inventory.functions.at(address).sriov_numvfs = 0;
  gpu->framework = &mdev::vendor_vfio();
  gpu->obstacle.clear();
  EXPECT_EQ(of(snapshot, "0000:3b:00.0").condition.word, "free") << "its driver makes vGPUs";
}

// Its file outlives it, and others bind devices too.
TEST_F(NodeDescriptionTest, WhatHostdSaidOfAnotherDriverIsNotBelieved) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  api::AcceleratorStatus old = said("0000:3b:00.0", api::GpuState::blocked);
  old.driver = "vfio-pci";
  old.mode = policy::Mode::passthrough;
  snapshot.status.emplace().accelerators = {old};
  EXPECT_EQ(of(snapshot, "0000:3b:00.0").condition.word, "free");
}

TEST_F(NodeDescriptionTest, AnActThatHangsComesFirstAndIsOfTheWholeGroup) {
  NodeSnapshot snapshot = snapshot_of("laptop");
  snapshot.stuck = {{.pid = 7,
                     .act = "write /sys/bus/pci/drivers/snd_hda_intel/unbind",
                     .value = "0000:01:00.1",
                     .kernel_state = {}}};
  snapshot.status.emplace().accelerators = {said("0000:01:00.0", api::GpuState::blocked)};
  const Condition condition = of(snapshot, "0000:01:00.0").condition;
  EXPECT_EQ(condition.word, "stuck");
  EXPECT_THAT(condition.reason, HasSubstr("snd_hda_intel/unbind (pid 7)"));
}

// A bind of a GPU that is on vfio already needs no record.
TEST_F(NodeDescriptionTest, IsMovableWhereABindIsNotRefused) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  const std::vector<std::string> gpus = {"0000:3b:00.0", "0000:5e:00.0"};  // the host has one, vfio the other
  for (const std::string& gpu : gpus) {
    const auto group = snapshot.inventory.find(must(vfio::PciAddress::parse(gpu)))->iommu_group;
    EXPECT_TRUE(of(snapshot, gpu).bindable) << gpu;
    snapshot.journal.unreadable.emplace(group.value(), Error{.code = Errc::failed, .message = "it is torn"});
  }
  EXPECT_THAT(of(snapshot, gpus[0]).bindable_reasons, ElementsAre("it is torn"));
  EXPECT_TRUE(of(snapshot, gpus[1]).bindable);
  snapshot.journal.unreadable.clear();
  for (const std::string& gpu : gpus)
    snapshot.stuck.push_back({.pid = 7, .act = "write x", .value = gpu, .kernel_state = {}});
  for (const std::string& gpu : gpus)
    EXPECT_THAT(of(snapshot, gpu).bindable_reasons,
                ElementsAre("an earlier write to " + gpu + " has not returned from the kernel"));
}

// The judgement is that of `plan` and `assert`, which name it.
TEST_F(NodeDescriptionTest, AFunctionThatCountsByNameIsJudgedToo) {
  snapshot_of("nvswitch-board");
  test::FakeKernel& kernel = machine_.kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.add_driver({.name = "igb", .ids = {"8086:1533"}});
  unsigned group = 80;
  for (const char* address : {"0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0", "0000:0d:00.0", "0000:0e:00.0"})
    kernel.add_function(test::kinds::kNvSwitch, address, group++, "vfio-pci");
  kernel.file("sys/kernel/iommu_groups/81/reserved_regions",
              "0x0000000080000000 0x0000000080ffffff direct\n");
  const std::string dead(64, '\xff');
  kernel.file("sys/devices/pci0000:00/0000:0c:00.0/config", dead);
  kernel.file("sys/devices/pci0000:00/0000:06:00.0/config", dead);  // the host has this one
  kernel.add_function({"8086:1533", 0x020000}, "0000:0d:00.1", 83, "igb");
  kernel.add_function({"8086:1533", 0x020000}, "0000:07:00.1", 70, "igb");
  NodeSnapshot snapshot;
  snapshot.inventory = must(vfio::scan(kernel));
  const vfio::AcceleratorRules rules = policy::default_accelerator_rules();
  vfio::read_unit_facts(kernel, rules, snapshot.inventory);
  snapshot.use.users["0000:0e:00.0"] = {
      {.kind = vfio::DeviceUser::Kind::fabric, .name = "nv-fabricmanager", .what = "the NVLink fabric"}};
  const auto members = asked_of(snapshot.inventory, rules);
  const NodeDescription description = describe_node(snapshot, rules, {});
  const std::map<std::string, std::string> troubles = {{"0000:05:00.0", "none"},
                                                       {"0000:06:00.0", "off-the-bus"},
                                                       {"0000:07:00.0", "none"},
                                                       {"0000:0a:00.0", "none"},
                                                       {"0000:0b:00.0", "reserved-region"},
                                                       {"0000:0c:00.0", "off-the-bus"},
                                                       {"0000:0d:00.0", "group-not-viable"},
                                                       {"0000:0e:00.0", "fabric-switch"}};
  for (const auto& [text, trouble] : troubles) {
    const auto address = must(vfio::PciAddress::parse(text));
    const NamedDescription* named = description.find_by_name(address);
    ASSERT_NE(named, nullptr) << text;
    const vfio::Finding* found = named->trouble();
    EXPECT_EQ(found == nullptr ? "none" : vfio::rule(found->rule).name, trouble) << text;
    EXPECT_THAT(members, testing::Contains(address)) << "its users count, too";
  }
}

TEST_F(NodeDescriptionTest, AVgpuThatNoVmCanBeGivenIsReported) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  for (mdev::VgpuGpu& gpu : snapshot.vgpus.gpus)
    if (!gpu.devices.empty()) gpu.devices.front().iommu_group.reset();
  const Condition condition = of(snapshot, "0000:af:00.0").condition;
  EXPECT_EQ(condition.word, "unusable");
  EXPECT_THAT(condition.hint, HasSubstr("made again"));
  EXPECT_THAT(condition.reason, HasSubstr("has no IOMMU group"));
}

TEST_F(NodeDescriptionTest, AUserOfAnyMemberIsOneOfTheGroup) {
  NodeSnapshot snapshot = snapshot_of("one-group");
  snapshot.use.users["0000:45:00.0"] = {test::vm_user("net", 9, "/dev/vfio/7")};
  for (const char* gpu : {"0000:41:00.0", "0000:44:00.0"}) {
    EXPECT_EQ(of(snapshot, gpu).condition.word, "in use");
    EXPECT_EQ(of(snapshot, gpu).users.size(), 1U);
  }
}

// On vfio, on the host's driver, with vGPUs.
TEST_F(NodeDescriptionTest, WhereAUserMayHaveGoneUnseenNothingIsCalledFree) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  snapshot.use.users.clear();
  std::vector<std::string> free;
  for (const AcceleratorDescription& description :
       describe_node(snapshot, policy::default_accelerator_rules(), {}).accelerators)
    if (description.condition.word == "free") free.push_back(description.address().text());
  ASSERT_GE(free.size(), 3U);
  snapshot.use.blind = "process 7 could not be looked into";
  for (const std::string& gpu : free) {
    const Condition condition = of(snapshot, gpu).condition;
    EXPECT_EQ(condition.word, "use unknown") << gpu;
    EXPECT_EQ(condition.health, Health::attention);
    EXPECT_THAT(condition.reason, testing::EndsWith(": process 7 could not be looked into")) << gpu;
    EXPECT_THAT(condition.hint, HasSubstr("run as root"));
    snapshot.use.blind_hint = "hostd repairs it";
    EXPECT_EQ(of(snapshot, gpu).condition.hint, "hostd repairs it");
    snapshot.use.blind_hint.clear();
  }
}

TEST_F(NodeDescriptionTest, AMemberThatIsNotSeenIntoKeepsItsGroupFromBeingCalledFree) {
  NodeSnapshot snapshot = snapshot_of("one-group");
  snapshot.use.users.clear();
  // Without a driver it keeps nothing from a VM.
  snapshot.inventory.functions.at(must(vfio::PciAddress::parse("0000:45:00.0"))).driver.reset();
  snapshot.use.unseen["0000:45:00.0"] = "no permission";
  EXPECT_EQ(of(snapshot, "0000:44:00.0").condition.word, "use unknown");
  EXPECT_THAT(of(snapshot, "0000:44:00.0").condition.reason, testing::EndsWith(": no permission"));
  EXPECT_EQ(of(snapshot, "0000:44:00.0").condition.hint, "") << "no right would help";
  snapshot.use.users["0000:45:00.0"] = {test::vm_user("net", 9, "/dev/vfio/7")};
  EXPECT_EQ(of(snapshot, "0000:44:00.0").condition.word, "in use") << "one is seen";
}

TEST_F(NodeDescriptionTest, KatasNumberIsKnownByItsGroup) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  snapshot.advertised.emplace().devices = {
      {.resource = "nvidia.com/pgpu", .id = "0", .iommu_group = 31},
      {.resource = "nvidia.com/TU104GL_TESLA_T4",
       .id = "0000:5e:00.0",
       .iommu_group = 31,
       .healthy = false,
       .reason = "gone"},
      {.resource = "nvidia.com/other", .id = "0000:d8:00.0", .iommu_group = 31}};
  snapshot.advertised->not_advertised = {{.id = "0000:3b:00.0", .reason = "on driver nvidia"}};
  const AcceleratorDescription description = of(snapshot, "0000:5e:00.0");
  std::vector<std::string> names;
  std::ranges::transform(description.advertised_as, std::back_inserter(names),
                         &api::AdvertisedDevice::resource);
  EXPECT_THAT(names, ElementsAre("nvidia.com/pgpu", "nvidia.com/TU104GL_TESLA_T4"));
  EXPECT_EQ(description.condition.word, "unhealthy");
  EXPECT_THAT(description.condition.hint, testing::HasSubstr("bound anew"));
  EXPECT_EQ(description.condition.reason, "gone");
  EXPECT_EQ(of(snapshot, "0000:3b:00.0").not_advertised, "on driver nvidia");
  EXPECT_THAT(of(snapshot, "0000:3b:00.0").advertised_as, IsEmpty());
}

// Kata's number stands for the whole group, so the reason may be about another GPU of it.
TEST_F(NodeDescriptionTest, TheGpuWithTheErrorIsBoundAnew) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  vfio::PciFunction other = *snapshot.inventory.find(must(vfio::PciAddress::parse("0000:5e:00.0")));
  for (const char* address : {"0000:5f:00.0", "0000:5f:00.1"}) {
    other.address = must(vfio::PciAddress::parse(address));
    snapshot.inventory.groups[31].push_back(other.address);
    snapshot.inventory.functions[other.address] = other;
    other.class_code = 0x040300;
  }
  api::AdvertisedDevice number{.resource = "nvidia.com/pgpu", .id = "0", .iommu_group = 31, .healthy = false};
  for (const auto& [about, gpu] : std::map<std::string, std::string>{{"0000:5e:00.0", "0000:5e:00.0"},
                                                                     {"0000:5f:00.0", "0000:5f:00.0"},
                                                                     {"0000:5f:00.1", "0000:5f:00.0"}}) {
    number.reason = about + " had 1 fatal PCIe error";
    snapshot.advertised.emplace().devices = {number};
    EXPECT_THAT(of(snapshot, "0000:5e:00.0").condition.hint,
                HasSubstr("unbind --device " + gpu + "`, then `bind --device " + gpu + "`"));
  }
}

// A pod has another function of its group: it is taken, and well.
TEST_F(NodeDescriptionTest, WhatIsHeldWithItsGroupIsInUse) {
  NodeSnapshot snapshot = snapshot_of("t4-server");
  snapshot.advertised.emplace().devices = {
      {.resource = "nvidia.com/TU104GL_TESLA_T4",
       .id = "0000:5e:00.0",
       .iommu_group = 31,
       .healthy = false,
       .reason = "held back: 0000:5e:00.1 of its IOMMU group 31 is allocated",
       .held_with_group = true}};
  const AcceleratorDescription description = of(snapshot, "0000:5e:00.0");
  EXPECT_EQ(description.condition.word, "in use");
  EXPECT_EQ(description.condition.health, Health::good);
}

}  // namespace
}  // namespace ferry::host
