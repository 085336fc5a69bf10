// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claimable_gpus.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "api/files.h"
#include "mdev/framework.h"
#include "mdev/gpu_management.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "vfio/judgement/judge.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr vfio::PciAddress kGpu{.domain = 0, .bus = 5, .device = 0, .function = 0};
constexpr vfio::PciAddress kSound{.domain = 0, .bus = 5, .device = 0, .function = 1};
constexpr vfio::PciAddress kDisk{.domain = 0, .bus = 9, .device = 0, .function = 0};

mdev::VgpuType type(const std::string& name, std::uint32_t framebuffer_mib, std::uint32_t available,
                    std::optional<std::uint32_t> most = {}) {
  mdev::VgpuType out;
  out.id = "nvidia-" + name;
  out.name = "GRID " + name;
  out.short_name = name;
  out.framebuffer_mib = framebuffer_mib;
  out.available = available;
  out.max_instances = most;
  return out;
}

std::vector<std::string> names(const std::vector<api::VgpuType>& types) {
  std::vector<std::string> out;
  for (const api::VgpuType& one : types) out.push_back(one.short_name);
  return out;
}

/// A T4 with its sound function in a group, on the driver that divides it.
class ClaimableGpusTest : public testing::Test {
 protected:
  ClaimableGpusTest() {
    mdev::VgpuGpu gpu;
    gpu.function = add(kGpu, 0x0302, 5);
    gpu.function.numa_node = 1;
    gpu.framework = &mdev::mediated_on_gpu();
    gpu.parents = {
        {.address = kGpu, .types = {type("T4-4Q", 4096, 4, 4), type("T4-8Q", 8192, 2, 2)}, .problem = {}}};
    node_.vgpus.gpus.push_back(gpu);
    add(kSound, 0x0403, 5);
  }

  vfio::PciFunction add(const vfio::PciAddress& address, std::uint32_t pci_class, std::uint32_t group) {
    vfio::PciFunction function;
    function.address = address;
    function.vendor = 0x10de;
    function.device = 0x1eb8;
    function.class_code = pci_class << 8U;
    function.driver = "nvidia";
    function.iommu_group = group;
    node_.inventory.functions[address] = function;
    node_.inventory.groups[group].push_back(address);
    return function;
  }
  mdev::VgpuGpu& gpu() { return node_.vgpus.gpus.front(); }
  /// The GPU and its function change together.
  void set(const vfio::PciFunction& function) {
    gpu().function = function;
    node_.inventory.functions[kGpu] = function;
  }
  void give_to_vfio() {
    vfio::PciFunction function = gpu().function;
    function.driver = "vfio-pci";
    function.vfio_devices = {"vfio0"};
    set(function);
    gpu().framework = &mdev::no_framework();
    gpu().parents.clear();
  }

  ClaimableFacts given(const std::set<std::string>& stuck = {}) {
    node_.findings = vfio::judge_all(node_.inventory, rules_, {.stuck = &stuck}, {.all_shed = true}, dra_);
    return {.node = node_,
            .models = models_,
            .rules = rules_,
            .for_dra = for_dra_,
            .dra = dra_,
            .before = before_};
  }
  api::ClaimableGpu claimable() {
    const std::vector<api::ClaimableGpu> all = claimable_gpus(given());
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? api::ClaimableGpu{} : all.front();
  }

  ScannedNode node_;
  policy::ModelNames models_ = [](const vfio::PciFunction&) { return std::string("TU104GL [Tesla T4]"); };
  vfio::AcceleratorRules rules_{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
  std::map<vfio::PciAddress, policy::AllowedDevices> for_dra_ = {{kGpu, {}}};
  std::set<vfio::PciAddress> dra_ = {kGpu};
  std::vector<api::ClaimableGpu> before_;
};

TEST_F(ClaimableGpusTest, HasABarWhereNoTableKnowsTheMemory) {
  ClaimableFacts facts = given();
  facts.bars = {{kGpu, 256}};
  EXPECT_EQ(claimable_gpus(facts).front().memory_mib, 16384U) << "that of a T4-16Q";
  EXPECT_EQ(claimable_gpus(facts).front().bar_mib, 0U);
  vfio::PciFunction unknown = gpu().function;
  unknown.device = 0x0666;
  set(unknown);
  ClaimableFacts of_unknown = given();
  of_unknown.bars = {{kGpu, 65536}};
  EXPECT_EQ(claimable_gpus(of_unknown).front().memory_mib, 0U);
  EXPECT_EQ(claimable_gpus(of_unknown).front().bar_mib, 65536U);
  EXPECT_TRUE(claimable_gpus(given()).front().whole) << "its vGPU types tell the memory";
  give_to_vfio();
  unknown.driver = "vfio-pci";
  unknown.vfio_devices = {"vfio0"};
  set(unknown);
  EXPECT_FALSE(claimable().whole);
  EXPECT_THAT(claimable().reason, HasSubstr("the size of its memory is not known"));
  ClaimableFacts on_vfio = given();
  on_vfio.bars = {{kGpu, 65536}};
  EXPECT_TRUE(claimable_gpus(on_vfio).front().whole);
}

TEST_F(ClaimableGpusTest, NamesGpusOfItsClaimsThatAreGone) {
  ClaimableFacts facts = given();
  facts.unplugged = {{kGpu, {"0000:06:00.0"}}};
  EXPECT_THAT(claimable_gpus(facts).front().unplugged, ElementsAre("0000:06:00.0"));
  before_ = claimable_gpus(facts);
  EXPECT_THAT(claimable().unplugged, IsEmpty()) << "it is back";
}

TEST_F(ClaimableGpusTest, HasTheFactsOfTheScan) {
  ClaimableFacts facts = given();
  facts.roots = {{kGpu, "pci0000:00"}};
  const std::vector<api::ClaimableGpu> all = claimable_gpus(facts);
  ASSERT_EQ(all.size(), 1U);
  const api::ClaimableGpu& one = all.front();
  EXPECT_EQ(one.address, kGpu);
  EXPECT_EQ(one.iommu_group, 5U);
  EXPECT_EQ(one.vendor, 0x10de);
  EXPECT_EQ(one.device, 0x1eb8);
  EXPECT_EQ(one.product, "TU104GL [Tesla T4]");
  EXPECT_EQ(one.numa_node, 1);
  EXPECT_EQ(one.pcie_root, "pci0000:00");
  EXPECT_TRUE(one.for_dra);
  EXPECT_TRUE(one.whole);
  EXPECT_EQ(one.framework, api::VgpuFramework::mdev);
  EXPECT_EQ(one.health, api::GpuHealth::ready) << one.reason;
  ASSERT_THAT(names(one.types), ElementsAre("T4-4Q", "T4-8Q"));
  EXPECT_EQ(one.types.at(0).id, "nvidia-T4-4Q");
  EXPECT_EQ(one.types.at(0).framebuffer_mib, 4096U);
  EXPECT_EQ(one.types.at(0).most_per_gpu, 4U);
  EXPECT_TRUE(one.types.at(0).allowed);
}

/// The library's answer about the types of the test's GPU.
mdev::ManagedGpu answer() {
  return {.vgpu_host = true,
          .mixed_sizes = mdev::GpuSwitch::off,
          .profiles = {},
          .instances = {},
          .types = {{.id = 4, .name = "T4-4Q", .framebuffer = 4ULL << 30U, .size = 4, .placements = {0, 12}},
                    {.id = 8, .name = "T4-8Q", .framebuffer = 8ULL << 30U, .size = 8, .placements = {4}}}};
}

class MixedSizesTest : public ClaimableGpusTest {
 protected:
  MixedSizesTest() {
    for_dra_[kGpu].mixed_sizes = true;
    gpu().framework = &mdev::mediated_on_functions();
    gpu().parents.front().types = {type("T4-4Q", 4096, 1, 4), type("T4-8Q", 8192, 1, 2)};
    gpu().parents.front().types[0].id = "nvidia-4";
    gpu().parents.front().types[1].id = "nvidia-8";
  }
  static constexpr const char* kUuid = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
};

TEST_F(MixedSizesTest, HavePlacementsOfTheLibrary) {
  ClaimableFacts facts = given();
  EXPECT_THAT(gpus_without_placements(facts), ElementsAre(kGpu));
  facts.managed.emplace(kGpu, answer());
  const api::ClaimableGpu one = claimable_gpus(facts).at(0);
  EXPECT_TRUE(one.mixed_sizes);
  EXPECT_EQ(one.types.at(0).size, 4U);
  EXPECT_THAT(one.types.at(0).placements, ElementsAre(0U, 12U));
  EXPECT_THAT(one.types.at(1).placements, ElementsAre(4U));
  before_ = {one};
  EXPECT_THAT(gpus_without_placements(given()), IsEmpty());
  EXPECT_EQ(claimable(), one) << "the last round has them";
  for_dra_[kGpu].mixed_sizes = false;
  EXPECT_FALSE(claimable().mixed_sizes);
  EXPECT_THAT(claimable().types.at(0).placements, IsEmpty());
  mdev::VgpuDevice vgpu;
  vgpu.id = {kUuid};
  gpu().devices = {vgpu};
  EXPECT_EQ(claimable(), one) << "its vGPUs keep the mode";
  gpu().unlisted = {type("T4-16Q", 16384, 0, 1)};
  EXPECT_EQ(claimable(), one) << "and the types, on which the counters rest";
}

TEST_F(MixedSizesTest, AreNotAskedAboutOnVfio) {
  for_dra_[kGpu].types = {"T4-8Q"};
  before_ = {claimable()};
  give_to_vfio();
  EXPECT_THAT(gpus_without_placements(given()), IsEmpty());
}

TEST_F(MixedSizesTest, HaveAReasonWhereThereAreNone) {
  for_dra_[kGpu].whole = false;
  ClaimableFacts facts = given();
  facts.managed.emplace(kGpu, fail(Errc::unsupported, "this host has no library"));
  EXPECT_EQ(claimable_gpus(facts).at(0).health, api::GpuHealth::unhealthy);
  EXPECT_THAT(claimable_gpus(facts).at(0).reason, HasSubstr("this host has no library"));
  for_dra_[kGpu].whole = true;
  EXPECT_EQ(claimable_gpus(facts).at(0).health, api::GpuHealth::ready) << "the whole GPU is there";
  mdev::ManagedGpu said = answer();
  EXPECT_EQ(why_no_mixed_sizes(said), "");
  said.mixed_sizes = mdev::GpuSwitch::unsupported;
  EXPECT_THAT(why_no_mixed_sizes(said), HasSubstr("has no mixed sizes"));
  said.mig = mdev::GpuSwitch::on;
  EXPECT_THAT(why_no_mixed_sizes(said), HasSubstr("MIG mode"));
  said = answer();
  said.types.clear();
  EXPECT_THAT(why_no_mixed_sizes(said), HasSubstr("reports no placements"));
  for_dra_[kGpu].whole = false;
  gpu().framework = &mdev::mediated_on_gpu();
  EXPECT_THAT(claimable().reason, HasSubstr("no places for them can be chosen there"));
  EXPECT_THAT(gpus_without_placements(given()), IsEmpty());
}

TEST_F(ClaimableGpusTest, HasOnlyTheGpusOfDra) {
  dra_.clear();
  EXPECT_THAT(claimable_gpus(given()), IsEmpty());
  dra_ = {kDisk};
  EXPECT_THAT(claimable_gpus(given()), IsEmpty()) << "it is unplugged";
}

TEST_F(ClaimableGpusTest, KeepsAGpuWithAClaimThatNoPolicyNames) {
  before_ = {claimable()};
  node_.vgpus.gpus.clear();
  for_dra_.clear();
  rules_.vendors.clear();
  EXPECT_THAT(claimable_gpus(given()), IsEmpty()) << "another device has its address";
  rules_.of_other_vendors = {vfio::PciClass::display_3d};
  const api::ClaimableGpu one = claimable();
  EXPECT_FALSE(one.for_dra);
  EXPECT_EQ(one.health, api::GpuHealth::ready) << one.reason;
  EXPECT_EQ(one.product, before_.front().product);
  EXPECT_EQ(one.types, before_.front().types);
  EXPECT_THAT(gpus_without_placements(given()), IsEmpty());
}

TEST_F(ClaimableGpusTest, KeepsAGpuWithAClaimWhoseClassCannotBeRead) {
  before_ = {claimable()};
  node_.vgpus.gpus.clear();
  vfio::PciFunction function;
  function.address = kGpu;
  function.problem = Error{.code = Errc::failed, .message = "Too many open files", .hint = {}};
  node_.inventory.functions[kGpu] = function;
  node_.inventory.groups[5] = {kSound};
  const api::ClaimableGpu one = claimable();
  EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
  EXPECT_EQ(one.reason, kGpu.text() + " cannot be read: Too many open files");
  EXPECT_EQ(one.vendor, 0x10de);
  EXPECT_EQ(one.iommu_group, 5U) << "the counters are those of the group";
  EXPECT_EQ(one.types, before_.front().types);
}

TEST_F(ClaimableGpusTest, AllowsThePolicysDevices) {
  for_dra_[kGpu] = {.whole = false, .types = {"T4-8*"}};
  const api::ClaimableGpu one = claimable();
  EXPECT_FALSE(one.whole);
  EXPECT_FALSE(one.types.at(0).allowed);
  EXPECT_TRUE(one.types.at(1).allowed);
}

TEST_F(ClaimableGpusTest, SaysThatAGpuIsNoLongerForDra) {
  for_dra_.clear();
  EXPECT_FALSE(claimable().for_dra);
}

TEST_F(ClaimableGpusTest, LeavesOutTypesThatAnEmptyGpuCannotMake) {
  gpu().parents.front().types.push_back(type("T4-16Q", 16384, 0, 1));
  gpu().parents.front().types.push_back(type("A100-1-5C", 5120, 7, 7));
  gpu().unlisted.push_back(type("T4-1Q", 1024, 16, 16));
  EXPECT_THAT(names(claimable().types), ElementsAre("T4-4Q", "T4-8Q")) << "and MIG-backed ones";
}

TEST_F(ClaimableGpusTest, KnowsAMigBackedTypeByANameWithoutASeries) {
  gpu().framework = &mdev::vendor_vfio();
  gpu().parents.front().types = {type("DC-2-48", 49152, 1, 1)};
  EXPECT_FALSE(claimable().whole) << "the GPU has GPU instances";
  EXPECT_THAT(gpus_with_instances(given()), ElementsAre(kGpu));
}

TEST_F(ClaimableGpusTest, RemembersTheTypesWhileVgpusExist) {
  before_ = {claimable()};
  gpu().framework = &mdev::vendor_vfio();
  gpu().parents.front().types = {type("T4-4Q", 4096, 3, 4)};
  mdev::VgpuDevice vgpu;
  vgpu.id.text = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";
  gpu().devices.push_back(vgpu);
  gpu().unlisted = {type("T4-1Q", 1024, 0, 16)};
  EXPECT_THAT(names(claimable().types), ElementsAre("T4-4Q", "T4-8Q")) << "the driver may not have the third";
  before_.clear();
  mdev::VgpuType without_id = type("T4-16Q", 16384, 0, 1);
  without_id.id.clear();
  gpu().unlisted = {type("T4-8Q", 8192, 0, 2), without_id};
  EXPECT_THAT(names(claimable().types), ElementsAre("T4-4Q", "T4-8Q")) << "by the table of boards";
}

TEST_F(ClaimableGpusTest, RemembersTheTypesWhileAClaimHasTheWholeGpu) {
  before_ = {claimable()};
  give_to_vfio();
  const api::ClaimableGpu one = claimable();
  EXPECT_THAT(names(one.types), ElementsAre("T4-4Q", "T4-8Q"));
  EXPECT_EQ(one.framework, api::VgpuFramework::mdev);
  EXPECT_EQ(one.health, api::GpuHealth::ready) << one.reason;
  before_.front().device = 0x2684;
  EXPECT_THAT(claimable().types, IsEmpty()) << "another GPU had the address";
  before_.clear();
  EXPECT_EQ(claimable().framework, api::VgpuFramework::none);
}

TEST_F(ClaimableGpusTest, GivesAnotherVendorsGpuWithoutFunctionsWhole) {
  gpu().framework = &mdev::whole_functions();
  gpu().parents.clear();
  EXPECT_TRUE(claimable().whole);
  EXPECT_THAT(claimable().types, IsEmpty());
}

TEST_F(ClaimableGpusTest, IsUnhealthyWithTheReason) {
  before_ = {claimable()};
  vfio::PciFunction function = gpu().function;
  function.problem = Error{.code = Errc::malformed_host, .message = "off the bus", .hint = {}};
  function.vendor = 0xffff;
  set(function);
  const api::ClaimableGpu one = claimable();
  EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
  EXPECT_EQ(one.reason, kGpu.text() + " cannot be read: off the bus");
  EXPECT_EQ(one.product, before_.front().product);
  EXPECT_EQ(one.vendor, 0x10de) << "its published devices keep their attributes";
  EXPECT_THAT(names(one.types), ElementsAre("T4-4Q", "T4-8Q"));
}

TEST_F(ClaimableGpusTest, IsUnhealthyWhileAWriteIsStuck) {
  before_ = {claimable()};
  gpu().parents.front().types.clear();
  ClaimableFacts facts = given({kSound.text()});
  facts.stuck = {kSound};
  const api::ClaimableGpu one = claimable_gpus(facts).at(0);
  EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
  EXPECT_EQ(one.reason, "an earlier write to 0000:05:00.1 has not returned from the kernel");
  EXPECT_THAT(names(one.types), ElementsAre("T4-4Q", "T4-8Q"));
}

TEST_F(ClaimableGpusTest, IsUnhealthyIfItsTypesCannotBeRead) {
  gpu().parents.front().problem = Error{.code = Errc::malformed_host, .message = "no answer", .hint = {}};
  EXPECT_EQ(claimable().reason, "its vGPU types cannot be read: no answer");
}

TEST_F(ClaimableGpusTest, IsNotWholeIfItsGroupCannotBeBound) {
  add(kDisk, 0x0108, 5);
  api::ClaimableGpu one = claimable();
  EXPECT_FALSE(one.whole);
  EXPECT_EQ(one.health, api::GpuHealth::ready) << "its vGPUs have groups of their own";
  gpu().framework = &mdev::no_framework();
  gpu().parents.clear();
  one = claimable();
  EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
  EXPECT_THAT(one.reason, HasSubstr("0000:09:00.0"));
}

// Intel's VMD and Hyper-V make such domains.
TEST_F(ClaimableGpusTest, GivesVmsMediatedDevicesAloneBehindALongPciDomain) {
  constexpr vfio::PciAddress kLong{.domain = 0x10000, .bus = 5, .device = 0, .function = 0};
  node_.vgpus.gpus.front().function = add(kLong, 0x0302, 7);
  for_dra_ = {{kLong, {}}};
  dra_ = {kLong};
  api::ClaimableGpu one = claimable();
  EXPECT_FALSE(one.whole);
  EXPECT_THAT(names(one.types), ElementsAre("T4-4Q", "T4-8Q")) << "they have a UUID";
  EXPECT_EQ(one.health, api::GpuHealth::ready);
  gpu().framework = &mdev::no_framework();
  gpu().parents.clear();
  one = claimable();
  EXPECT_FALSE(one.whole);
  EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
  EXPECT_THAT(one.reason, HasSubstr("the PCI domain of 10000:05:00.0 has more than four digits"));
}

TEST_F(ClaimableGpusTest, IsForNoClaimWithoutAnIommu) {
  node_.inventory.groups.clear();
  vfio::PciFunction function = gpu().function;
  function.iommu_group.reset();
  set(function);
  const api::ClaimableGpu one = claimable();
  EXPECT_EQ(one.iommu_group, std::nullopt);
  EXPECT_FALSE(one.whole);
  EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
  EXPECT_THAT(one.reason, HasSubstr("no active IOMMU"));
}

TEST_F(ClaimableGpusTest, IsForNoClaimWithoutAGroup) {
  vfio::PciFunction function = gpu().function;
  function.iommu_group.reset();
  set(function);
  for (const bool is_named : {true, false}) {
    if (!is_named) node_.vgpus.gpus.clear();
    const api::ClaimableGpu one = claimable();
    EXPECT_FALSE(one.whole);
    EXPECT_EQ(one.health, api::GpuHealth::unhealthy);
    EXPECT_THAT(one.reason, HasSubstr("is in no IOMMU group"));
  }
}

TEST_F(ClaimableGpusTest, KeepsItsTypesWhileItLacksFunctions) {
  const api::ClaimableGpu before = claimable();
  before_ = {before};
  gpu().parents.clear();
  ClaimableFacts facts = given();
  facts.without_functions = {{kGpu, "it has 0 of the 4 virtual functions that it had before a claim"}};
  const api::ClaimableGpu one = claimable_gpus(facts).at(0);
  EXPECT_EQ(one.types, before.types);
  EXPECT_EQ(one.framework, before.framework);
  EXPECT_EQ(one.health, api::GpuHealth::ready) << "claims can have it whole";
  EXPECT_THAT(one.vgpu_reason, HasSubstr("0 of the 4"));
}

TEST_F(ClaimableGpusTest, KeepsItsTypesWhileTheDriverListsNone) {
  const api::ClaimableGpu before = claimable();
  before_ = {before};
  EXPECT_THAT(gpus_without_types(given()), IsEmpty());
  gpu().framework = &mdev::no_framework();
  gpu().parents.clear();
  EXPECT_THAT(claimable().types, IsEmpty()) << "this driver makes no vGPUs";
  EXPECT_THAT(gpus_without_types(given()), IsEmpty());
  gpu().host_driver = true;
  const api::ClaimableGpu one = claimable();
  EXPECT_EQ(one.types, before.types);
  EXPECT_EQ(one.framework, before.framework);
  EXPECT_EQ(one.vgpu_reason, "its driver lists no vGPU types now");
  EXPECT_EQ(one.health, api::GpuHealth::ready) << "claims can have it whole";
  EXPECT_THAT(gpus_without_types(given()), ElementsAre(kGpu));
  before_.clear();
  gpu().framework = &mdev::vendor_vfio();
  gpu().unlisted = {type("T4-1Q", 1024, 0, 16)};
  EXPECT_THAT(claimable().types, IsEmpty()) << "the driver may not have those of the table";
}

TEST_F(ClaimableGpusTest, KeepsItsTypesWithoutADriver) {
  const api::ClaimableGpu before = claimable();
  before_ = {before};
  vfio::PciFunction function = gpu().function;
  function.driver.reset();
  set(function);
  gpu().framework = &mdev::no_framework();
  gpu().parents.clear();
  const api::ClaimableGpu one = claimable();
  EXPECT_EQ(one.types, before.types);
  EXPECT_EQ(one.framework, before.framework);
  EXPECT_EQ(one.vgpu_reason, "no driver is bound to it");
  EXPECT_EQ(one.health, api::GpuHealth::ready) << "claims can have it whole";
}

TEST(ClaimableFactsRead, HaveTheHostBridgeAndStuckWrites) {
  test::FakeKernel kernel;
  kernel.add_function({.address = "0000:05:00.0", .group = 5});
  ScannedNode node;
  node.inventory = must(vfio::scan(kernel));
  const policy::ModelNames models;
  const vfio::AcceleratorRules rules;
  const std::map<vfio::PciAddress, policy::AllowedDevices> for_dra;
  const std::set<vfio::PciAddress> dra = {kGpu};
  ClaimableFacts facts{.node = node, .models = models, .rules = rules, .for_dra = for_dra, .dra = dra};
  must(read_claimable_facts(kernel, facts));
  EXPECT_EQ(facts.roots.at(kGpu), "pci0000:00");
  EXPECT_EQ(facts.bars.at(kGpu), 0U);
  EXPECT_THAT(facts.stuck, IsEmpty());
  kernel.file("sys/bus/pci/devices/0000:05:00.0/resource",
              "0x00000000fa000000 0x00000000faffffff 0x0000000000040200\n"
              "0x0000020000000000 0x0000020fffffffff 0x000000000014220c\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
              "0x000000000000e000 0x000003000000e07f 0x0000000000040101\n");
  facts.bars.clear();
  must(read_claimable_facts(kernel, facts));
  EXPECT_EQ(facts.bars.at(kGpu), 65536U) << "ports are no memory";
  kernel.file("run/ferry/stuck-writes/700.json/in-its-place", "");
  EXPECT_FALSE(read_claimable_facts(kernel, facts)) << "it may be about any GPU";
}

TEST(ClaimableGpusFile, IsWrittenOnlyAfterAChange) {
  test::FakeKernel kernel;
  ClaimableGpusFile file(kernel);
  EXPECT_THAT(file.published(), IsEmpty());
  must(file.publish({}));
  EXPECT_FALSE(kernel.exists(api::kClaimableGpusFile));
  const std::vector<api::ClaimableGpu> gpus = {{.address = kGpu, .iommu_group = 5}};
  must(file.publish(gpus));
  kernel.forget_changes();
  must(file.publish(gpus));
  EXPECT_THAT(kernel.changes(), IsEmpty());
  EXPECT_EQ(ClaimableGpusFile(kernel).published(), gpus) << "after a restart";
  kernel.remove(api::kClaimableGpusFile);
  must(file.publish(gpus));
  EXPECT_TRUE(kernel.exists(api::kClaimableGpusFile)) << "a removed file is written again";
  must(file.publish({}));
  EXPECT_EQ(kernel.read_file(api::kClaimableGpusFile).value(), api::claimable_gpus_text({}))
      << "ferry dra has to see that the last GPU has gone";
  kernel.forget_changes();
  must(file.publish({}));
  EXPECT_THAT(kernel.changes(), IsEmpty());
}

TEST(ClaimableGpusFile, HasNoGpuIfItCannotBeRead) {
  test::FakeKernel kernel;
  kernel.file(api::kClaimableGpusFile, "{");
  ClaimableGpusFile file(kernel);
  EXPECT_THAT(file.published(), IsEmpty());
  must(file.publish({}));
  EXPECT_EQ(kernel.read_file(api::kClaimableGpusFile).value(), api::claimable_gpus_text({}));
}

}  // namespace
}  // namespace ferry::host
