// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_yaml.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "policy/policy_export.h"

namespace ferry::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Result<PolicyFile> read(const std::string& text) {
  return read_policies({.file = "p.yaml", .text = text, .first_line = 1, .one_line = false});
}

constexpr const char* kMixed =
    "version: v2\n"
    "policies:\n"
    "  mixed:\n"
    "  - devices: all\n"
    "    mode: passthrough\n"
    "  - devices: [0]\n"
    "    device-filter: \"0x1EB810DE\"\n"
    "    mode: vgpu\n"
    "    vgpu-devices: {T4-4Q: 2}\n"
    "  - devices: [2]\n"
    "    mode: host\n"
    "  other: [{devices: [], mode: host}]\n";

mdev::VgpuGpu gpu(unsigned index, std::uint16_t device) {
  mdev::VgpuGpu out;
  out.index = index;
  out.function.vendor = 0x10de;
  out.function.device = device;
  out.function.address = vfio::PciAddress::parse("0000:0" + std::to_string(index) + ":00.0").value();
  return out;
}

TEST(PolicyFile, GivesItsPoliciesInOrder) {
  const auto file = read(kMixed);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_THAT(file->policies, SizeIs(2));
  const Policy& mixed = file->policies[0];
  EXPECT_EQ(mixed.name, "mixed");
  EXPECT_EQ(mixed.place, "p.yaml:3");
  ASSERT_THAT(mixed.items, SizeIs(3));
  EXPECT_EQ(mixed.items[0].mode, Mode::passthrough);
  EXPECT_TRUE(mixed.items[0].gpus.all_devices);
  EXPECT_THAT(mixed.items[0].gpus.vgpus, IsEmpty());
  EXPECT_EQ(mixed.items[1].mode, Mode::vgpu);
  EXPECT_EQ(mixed.items[1].gpus.place, "p.yaml:6");
  ASSERT_THAT(mixed.items[1].gpus.vgpus, SizeIs(1));
  EXPECT_EQ(mixed.items[1].gpus.vgpus[0].count, 2U);
  EXPECT_THAT(mixed.items[1].gpus.filters, SizeIs(1));
  EXPECT_EQ(mixed.items[2].mode, Mode::host);
}

TEST(PolicyFile, TakesAProfileOfNvidias) {
  const auto file = read("version: v1\nvgpu-configs:\n  q:\n  - {devices: all, vgpu-devices: {T4-4Q: 4}}\n");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_THAT(file->policies, SizeIs(1));
  EXPECT_EQ(file->policies[0].items.at(0).mode, Mode::vgpu);
  EXPECT_EQ(file->policies[0].items[0].gpus.vgpus.at(0).count, 4U);
}

TEST(PolicyFile, LetsPassOfNvidiasWhatTheirProgramDoesAndOfOursNothing) {
  const auto leniently = [](const std::string& text) {
    return read_policies({.file = "p.yaml", .text = text, .first_line = 1, .one_line = false},
                         Reading::lenient);
  };
  const std::string theirs =
      "version: v1\nvgpu-configs:\n  a:\n  - devices: all\n    devices: all\n    vgpu-devices: {T4-4Q: 1}\n";
  EXPECT_FALSE(read(theirs));
  const auto passed = leniently(theirs);
  ASSERT_TRUE(passed) << passed.error().message;
  EXPECT_EQ(passed->policies.size(), 1U);
  ASSERT_EQ(passed->warnings.size(), 1U);
  EXPECT_THAT(passed->warnings[0], testing::HasSubstr("p.yaml:5"));
  const std::string ours =
      "version: v2\npolicies:\n  a:\n  - devices: all\n    devices: all\n    mode: host\n";
  const auto refused = leniently(ours);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("p.yaml:5"));
}

TEST(PolicyFile, MayHoldNone) {
  for (const char* text : {"", "{}", "version: v2\n"})
    EXPECT_THAT(read(text).value().policies, IsEmpty()) << text;
}

TEST(Policy, LetsTheLastMatchDecideAndLeavesTheRestAlone) {
  const Policy mixed = select_policy(read(kMixed).value(), "mixed").value();
  EXPECT_EQ(mixed.item_for(gpu(0, 0x1eb8))->mode, Mode::vgpu);
  EXPECT_EQ(mixed.item_for(gpu(0, 0x2684))->mode, Mode::passthrough) << "the filter does not fit";
  EXPECT_EQ(mixed.item_for(gpu(1, 0x1eb8))->mode, Mode::passthrough);
  EXPECT_EQ(mixed.item_for(gpu(2, 0x1eb8))->mode, Mode::host);
  const Policy other = select_policy(read(kMixed).value(), "other").value();
  EXPECT_EQ(other.item_for(gpu(0, 0x1eb8)), nullptr);
}

TEST(Policy, InTermsOfAHostNamesEachGpu) {
  mdev::VgpuInventory inventory;
  for (unsigned i = 0; i < 4; ++i) inventory.gpus.push_back(gpu(i, 0x1eb8));
  Policy policy = select_policy(read(kMixed).value(), "mixed").value();
  policy.items[0].gpus.all_devices = false;
  policy.items[0].gpus.indices = {1};
  const ResolvedPolicy resolved = resolve(policy, inventory);
  EXPECT_THAT(resolved.modes, SizeIs(3)) << "GPU 3 is nobody's";
  EXPECT_EQ(resolved.modes.at(inventory.gpus[0].address()), Mode::vgpu);
  EXPECT_EQ(resolved.vgpus.item_for(inventory.gpus[0])->vgpus.at(0).count, 2U);
  EXPECT_THAT(resolved.vgpus.item_for(inventory.gpus[1])->vgpus, IsEmpty());
  EXPECT_THAT(resolved.vgpus.item_for(inventory.gpus[2])->vgpus, IsEmpty());
  EXPECT_EQ(resolved.vgpus.item_for(inventory.gpus[3]), nullptr);
  EXPECT_TRUE(resolved.vgpus.item_for(inventory.gpus[1])->whole) << "it is given away";
  EXPECT_FALSE(resolved.vgpus.item_for(inventory.gpus[2])->whole);
  // One before it has been unplugged by the time it is applied.
  mdev::VgpuGpu second = inventory.gpus[1];
  second.index = 0;
  EXPECT_THAT(resolved.vgpus.item_for(second)->vgpus, IsEmpty());
}

TEST(Policy, IsChosenByName) {
  const PolicyFile file = read(kMixed).value();
  EXPECT_EQ(select_policy(file, "other")->name, "other");
  EXPECT_EQ(select_policy(file, std::nullopt).error().message,
            "p.yaml: holds 2 policies, and none was chosen");
  EXPECT_EQ(select_policy(file, "mixde").error().message,
            "p.yaml: holds no policy 'mixde'; did you mean 'mixed'?");
  EXPECT_EQ(select_policy(read("version: v2\n").value(), std::nullopt).error().message,
            "p.yaml: holds no policies");
}

TEST(PolicyFile, MaySayWhoMayBeReleased) {
  const std::string policies =
      "policies:\n  a: [{devices: all, mode: passthrough}]\n  b: [{devices: all, mode: host}]\n";
  EXPECT_THAT(read("version: v2\n" + policies)->policies.at(1).release,
              ElementsAre("nvidia-persistenced.service"));
  EXPECT_THAT(read("version: v2\nrelease: []\n" + policies)->policies.at(1).release,
              ElementsAre("nvidia-persistenced.service"));
  const auto file = read("version: v2\nrelease: [nvidia-dcgm, none, nvidia_drm]\n" + policies).value();
  for (const Policy& policy : file.policies)
    EXPECT_THAT(policy.release, ElementsAre("nvidia-dcgm.service", "nvidia_drm"));
  EXPECT_THAT(resolve(file.policies[0], {}).release, ElementsAre("nvidia-dcgm.service", "nvidia_drm"));
}

TEST(PolicyFile, MaySayWhatBecomesOfWhatFerryHasNotMade) {
  const std::string policies =
      "policies:\n  a: [{devices: all, mode: host}]\n  b: [{devices: all, mode: host}]\n";
  EXPECT_EQ(read("version: v2\n" + policies)->policies.at(1).foreign, std::nullopt);
  for (const Foreign foreign : {Foreign::keep, Foreign::take}) {
    const auto file = read(fmt::format("version: v2\nforeign: {}\n{}",
                                       foreign == Foreign::keep ? "keep" : "take", policies))
                          .value();
    for (const Policy& policy : file.policies) EXPECT_EQ(policy.foreign, foreign);
    EXPECT_EQ(resolve(file.policies[1], {}).foreign, foreign);
  }
}

TEST(PolicyFile, NamesTheGpusWhoseRegistersAreRead) {
  const std::string policies = "policies:\n  a: [{devices: all, mode: host}]\n";
  EXPECT_EQ(read("version: v2\n" + policies)->policies.at(0).registers, ReadRegisters::automatic);
  for (const auto& [word, value] : kReadRegisters)
    EXPECT_EQ(read(fmt::format("version: v2\nregisters: {}\n{}", word, policies))->policies.at(0).registers,
              value);
}

TEST(PolicyFile, SaysIfGpusAreSanitized) {
  const std::string policies = "policies:\n  a: [{devices: all, mode: host}]\n";
  EXPECT_EQ(read("version: v2\n" + policies)->policies.at(0).sanitize, Sanitize::best_effort);
  for (const auto& [word, value] : kSanitize) {
    const auto file = read(fmt::format("version: v2\nsanitize: {}\n{}", word, policies));
    EXPECT_EQ(file->policies.at(0).sanitize, value);
    EXPECT_EQ(read(policy_text(*file))->policies.at(0).sanitize, value) << "it is exported";
  }
}

TEST(PolicyFile, IsOfTheDefaultReleaseWhenItIsNvidias) {
  const auto file = read("version: v1\nvgpu-configs:\n  q:\n  - {devices: all, vgpu-devices: {T4-4Q: 4}}\n");
  EXPECT_EQ(file->policies.at(0).release, vfio::default_release());
}

TEST(PolicyFile, GivesGpusToResourceClaims) {
  const auto file = read(
      "version: v2\npolicies:\n  a:\n"
      "  - {devices: all, mode: passthrough, allocation: device-plugin}\n"
      "  - {devices: [1], allocation: dra}\n"
      "  - {devices: [2], allocation: dra, allow: [Whole, \"T4-4*\"]}\n"
      "  - {devices: [3], allocation: dra, allow: whole, mixed-sizes: true}\n");
  ASSERT_TRUE(file) << file.error().message;
  const Policy& policy = file->policies.at(0);
  EXPECT_EQ(policy.items.at(0).allocation, Allocation::device_plugin);
  EXPECT_EQ(policy.items.at(1).allow, AllowedDevices{}) << "the whole GPU and all types";
  EXPECT_FALSE(policy.asks_for(Mode::host)) << "claims decide the mode";
  mdev::VgpuInventory inventory;
  for (unsigned i = 0; i < 4; ++i) inventory.gpus.push_back(gpu(i, 0x1eb8));
  const ResolvedPolicy resolved = resolve(policy, inventory);
  EXPECT_THAT(resolved.modes, ElementsAre(testing::Pair(inventory.gpus[0].address(), Mode::passthrough)));
  EXPECT_THAT(resolved.vgpus.items, SizeIs(1));
  ASSERT_THAT(resolved.for_dra, SizeIs(3));
  const AllowedDevices& quarters = resolved.for_dra.at(inventory.gpus[2].address());
  EXPECT_TRUE(quarters.whole);
  EXPECT_THAT(quarters.types, ElementsAre("T4-4*"));
  EXPECT_FALSE(quarters.mixed_sizes);
  const AllowedDevices& whole = resolved.for_dra.at(inventory.gpus[3].address());
  EXPECT_THAT(whole.types, IsEmpty());
  EXPECT_TRUE(whole.mixed_sizes);
}

TEST(AllowedDevices, MatchesTypesByTheirNames) {
  mdev::VgpuType type;
  type.name = "GRID T4-4Q";
  type.short_name = "T4-4Q";
  const auto allows = [&](const std::string& pattern) {
    return AllowedDevices{.whole = false, .types = {pattern}}.allows(type);
  };
  for (const char* pattern : {"*", "T4-4Q", "t4-*q", "GRID T4-4Q", "T4-[48]Q"}) EXPECT_TRUE(allows(pattern));
  for (const char* pattern : {"T4-8Q", "4Q", "T4-4"}) EXPECT_FALSE(allows(pattern));
  EXPECT_FALSE((AllowedDevices{.whole = true, .types = {}}.allows(type)));
}

/// Three GPUs; the first two share an IOMMU group.
TEST(Allocations, AreTheSameInAnIommuGroup) {
  vfio::Inventory inventory;
  mdev::VgpuInventory vgpus;
  for (unsigned i = 0; i < 3; ++i) {
    mdev::VgpuGpu one = gpu(i, 0x1eb8);
    one.function.iommu_group = i == 2 ? 8U : 7U;
    inventory.functions.emplace(one.address(), one.function);
    inventory.groups[*one.function.iommu_group].push_back(one.address());
    vgpus.gpus.push_back(one);
  }
  vfio::PciFunction sound = gpu(7, 0x10f8).function;
  sound.iommu_group = 7U;
  inventory.functions.emplace(sound.address, sound);
  inventory.groups[7].push_back(sound.address);
  const auto checked = [&](const std::string& items) {
    const Policy policy = read("version: v2\npolicies:\n  a:\n" + items).value().policies.at(0);
    return check_allocations(resolve(policy, vgpus), inventory, vgpus);
  };
  EXPECT_TRUE(checked("  - {devices: [0, 1], allocation: dra}\n"));
  EXPECT_TRUE(checked("  - {devices: all, mode: host}\n  - {devices: [2], allocation: dra}\n"));
  for (const char* items : {"  - {devices: [0], allocation: dra}\n",
                            "  - {devices: all, mode: passthrough}\n  - {devices: [0], allocation: dra}\n"}) {
    const auto refused = checked(items);
    ASSERT_FALSE(refused) << items;
    EXPECT_EQ(refused.error().code, Errc::refused);
    EXPECT_EQ(refused.error().message,
              "0000:00:00.0 is for DRA and 0000:01:00.0 is not, but they share an IOMMU group");
  }
}

/// Two L40S and an A40; the plugin names them as in a cluster without aliases.
class NamesOfClasses : public testing::Test {
 protected:
  NamesOfClasses() {
    for (const auto& [index, device] : {std::pair(0U, 0x26b9), {1U, 0x26b9}, {2U, 0x2235}}) {
      vgpus_.gpus.push_back(gpu(index, static_cast<std::uint16_t>(device)));
      inventory_.functions.emplace(vgpus_.gpus.back().address(), vgpus_.gpus.back().function);
    }
    names_.of_gpu = [](const vfio::PciFunction& function) {
      return std::string(function.device == 0x26b9 ? kL40s : "nvidia.com/GA102GL_A40");
    };
    names_.of_vgpus = [](std::string type) {
      std::ranges::replace(type, ' ', '_');
      return "nvidia.com/" + type;
    };
    names_.classes = {{.resource = kL40s, .device = "10de:26b9"}, {.resource = kSixths, .device = "L40S-6Q"}};
  }
  /// Empty: it is allowed.
  std::string refusal(const std::string& items) const {
    const Policy policy = read("version: v2\npolicies:\n  a:\n" + items).value().policies.at(0);
    const auto checked = check_allocations(resolve(policy, vgpus_), inventory_, vgpus_, names_, claimed_);
    if (checked) return {};
    EXPECT_EQ(checked.error().code, Errc::refused);
    return checked.error().message;
  }
  static constexpr const char* kL40s = "nvidia.com/AD102GL_L40S";
  static constexpr const char* kSixths = "nvidia.com/NVIDIA_L40S-6Q";
  static constexpr const char* kTwoOwners =
      " has two owners: a DeviceClass, for claims of 0000:00:00.0, and the device plugin, for 0000:01:00.0";
  vfio::Inventory inventory_;
  mdev::VgpuInventory vgpus_;
  ResourceNames names_;
  std::set<vfio::PciAddress> claimed_;
};

TEST_F(NamesOfClasses, AreNotThoseOfThePluginOnOneNode) {
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n  - {devices: [1], mode: passthrough}\n"),
            std::string(kL40s) + kTwoOwners);
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n"
                    "  - {devices: [1], mode: vgpu, vgpu-devices: {L40S-6Q: 2}}\n"),
            std::string(kSixths) + kTwoOwners);
  vgpus_.gpus[1].devices.emplace_back().type_name = "NVIDIA L40S-6Q";
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra, allow: [L40S-6Q]}\n"),
            std::string(kSixths) + kTwoOwners)
      << "no item changes the vGPUs of the second one";
  vgpus_.gpus[1].devices.clear();
  vgpus_.gpus[1].function.driver = "vfio-pci";
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n"), std::string(kL40s) + kTwoOwners);
}

TEST_F(NamesOfClasses, AreNotThePluginsForAGpuThatAClaimStillHas) {
  claimed_ = {vgpus_.gpus[1].address()};
  vgpus_.gpus[1].devices.emplace_back().type_name = "NVIDIA L40S-6Q";
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n"), "") << "a vGPU of a claim";
  vgpus_.gpus[1].devices.clear();
  vgpus_.gpus[1].function.driver = "vfio-pci";
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n"), "") << "the whole GPU";
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n  - {devices: [1], mode: passthrough}\n"),
            std::string(kL40s) + kTwoOwners)
      << "it is the plugin's once the claim ends";
}

TEST_F(NamesOfClasses, MayBeOfMigBackedTypesWithoutASeries) {
  constexpr const char* kQuarter = "NVIDIA RTX Pro 6000 Blackwell DC-1-24";
  names_.classes = {{.resource = names_.of_vgpus(kQuarter), .device = "DC-1-24"}};
  for (const std::size_t i : {0U, 1U}) {
    vgpus_.gpus[i].function.device = 0x2bb5;
    mdev::VgpuDevice& vgpu = vgpus_.gpus[i].devices.emplace_back();
    vgpu.type_name = kQuarter;
    vgpu.short_name = "DC-1-24";
  }
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n"), names_.classes[0].resource + kTwoOwners);
  vgpus_.gpus[0].devices.clear();
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n"), "") << "it has no GPU instances";
}

TEST_F(NamesOfClasses, AreOfTheTypesThatTheDriverLists) {
  for (const std::size_t i : {0U, 1U})
    vgpus_.gpus[i].parents = {
        {.address = vgpus_.gpus[i].address(),
         .types = {{.id = "nvidia-1999", .name = "GRID L40S-5Q", .short_name = "L40S-5Q"},
                   {.id = "nvidia-1151", .name = "GRID L40S-6Q", .short_name = "L40S-6Q"}}}};
  const auto of = [](const std::string& type) {
    return fmt::format(
        "  - {{devices: [0], allocation: dra, allow: [{0}]}}\n"
        "  - {{devices: [1], mode: vgpu, vgpu-devices: {{{0}: 2}}}}\n",
        type);
  };
  names_.classes = {{.resource = "nvidia.com/GRID_L40S-5Q", .device = "L40S-5Q"}};
  EXPECT_EQ(refusal(of("L40S-5Q")), std::string("nvidia.com/GRID_L40S-5Q") + kTwoOwners) << "no table has it";
  names_.classes = {{.resource = "nvidia.com/GRID_L40S-6Q", .device = "L40S-6Q"}};
  EXPECT_EQ(refusal(of("L40S-6Q")), std::string("nvidia.com/GRID_L40S-6Q") + kTwoOwners);
  names_.classes = {{.resource = kSixths, .device = "L40S-6Q"}};
  EXPECT_EQ(refusal(of("L40S-6Q")), "") << "the plugin has the driver's name";
}

TEST_F(NamesOfClasses, MayBeOfDevicesThatNoPolicyGivesToBoth) {
  for (const char* allowed :
       {"  - {devices: [0, 1], allocation: dra}\n  - {devices: [2], mode: passthrough}\n",
        "  - {devices: [0], allocation: dra}\n  - {devices: [1], mode: host}\n",
        "  - {devices: [0], allocation: dra}\n",
        "  - {devices: [2], allocation: dra}\n  - {devices: [0, 1], mode: passthrough}\n",
        "  - {devices: [0], allocation: dra, allow: [L40S-6Q]}\n  - {devices: [1], mode: passthrough}\n",
        "  - {devices: [0], allocation: dra, allow: [whole]}\n"
        "  - {devices: [1], mode: vgpu, vgpu-devices: {L40S-6Q: 2}}\n",
        "  - {devices: [0], allocation: dra, allow: [L40S-6Q]}\n"
        "  - {devices: [1], mode: vgpu, vgpu-devices: {L40S-12Q: 2}}\n"})
    EXPECT_EQ(refusal(allowed), "") << allowed;
  names_.classes = {{.resource = "example.com/l40s", .device = "10de:26b9"}};
  EXPECT_EQ(refusal("  - {devices: [0], allocation: dra}\n  - {devices: [1], mode: passthrough}\n"), "");
}

struct BadPolicy {
  const char* text;
  const char* message;
};
void PrintTo(const BadPolicy& row, std::ostream* out) {
  *out << row.text;
}

class BadPolicyFile : public testing::TestWithParam<BadPolicy> {};

TEST_P(BadPolicyFile, IsRefusedWithPlaceKeyAndReason) {
  const auto file = read(GetParam().text);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Errc::invalid_config);
  EXPECT_EQ(file.error().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadPolicyFile,
    testing::Values(
        BadPolicy{"version: v3\n",
                  "p.yaml:1: version: expected v2, or v1 for a vGPU profile, found the string 'v3'"},
        BadPolicy{"version: 2\n", "p.yaml:1: version: only v2 is known here, found 2"},
        BadPolicy{"policies: {}\n", "p.yaml:1: version: the key is missing"},
        BadPolicy{"- version: v2\n", "p.yaml:1: expected a map with version and policies, found a list"},
        BadPolicy{"version: v2\npolices: {}\n", "p.yaml:2: polices: unknown key; did you mean 'policies'?"},
        BadPolicy{"version: v2\nrelease: nvidia-dcgm\n",
                  "p.yaml:2: release: expected a list of services, found the string 'nvidia-dcgm'"},
        BadPolicy{"version: v2\nrelease:\n", "p.yaml:2: release: expected a list of services, found nothing"},
        BadPolicy{"version: v2\nrelease: {nvidia-dcgm: yes}\n",
                  "p.yaml:2: release: expected a list of services, found a map"},
        BadPolicy{"version: v2\nrelease:\n- nvidia-dcgm\n- [x]\n",
                  "p.yaml:4: release[1]: expected the name of a service, found a list"},
        BadPolicy{"version: v2\nrelease: [7]\n",
                  "p.yaml:2: release[0]: expected the name of a service, found 7"},
        BadPolicy{"version: v2\nrelease: [nvidia-dcgm,\n  a/b]\n",
                  "p.yaml:3: release[1]: 'a/b' is not the name of a service"},
        BadPolicy{"version: v2\nrelease: [containerd]\n",
                  "p.yaml:2: release[0]: containerd.service is never stopped: it runs VMs or containers"},
        BadPolicy{"version: v2\nforeign: spare\n",
                  "p.yaml:2: foreign: expected keep or take, found the string 'spare'"},
        BadPolicy{"version: v2\nforeign: [keep]\n", "p.yaml:2: foreign: expected keep or take, found a list"},
        BadPolicy{"version: v2\nforeign:\n", "p.yaml:2: foreign: expected keep or take, found nothing"},
        BadPolicy{"version: v2\nnodeSelector: [a]\npolicies: {p: [{devices: all, mode: host}]}\n",
                  "p.yaml:2: nodeSelector: expected labels for names of policies, found a list"},
        BadPolicy{"version: v2\nnodeSelector: {}\npolicies: {pool: [{devices: all, mode: host}]}\n"
                  "nodeSelectors: {}\n",
                  "p.yaml:4: nodeSelectors: unknown key; did you mean 'nodeSelector'?"},
        BadPolicy{
            "version: v2\nnodeSelector: {pol: {a: b}}\npolicies: {pool: [{devices: all, mode: host}]}\n",
            "p.yaml:2: nodeSelector.pol: no policy of this file has this name; did you mean 'pool'?"},
        BadPolicy{"version: v2\nnodeSelector:\n  p: {}\npolicies: {p: [{devices: all, mode: host}]}\n",
                  "p.yaml:3: nodeSelector.p: expected at least one label, found none"},
        BadPolicy{"version: v2\nnodeSelector:\n  p: x\npolicies: {p: [{devices: all, mode: host}]}\n",
                  "p.yaml:3: nodeSelector.p: expected at least one label, found the string 'x'"},
        BadPolicy{
            "version: v2\nnodeSelector:\n  p: {gpu: true}\npolicies: {p: [{devices: all, mode: host}]}\n",
            "p.yaml:3: nodeSelector.p.gpu: expected a string, found true"},
        BadPolicy{"version: v2\nnodeSelector:\n  p: {gpu-ferry.io/state: ready}\n"
                  "policies: {p: [{devices: all, mode: host}]}\n",
                  "p.yaml:3: nodeSelector.p.gpu-ferry.io/state: Ferry itself sets labels with this prefix"},
        BadPolicy{"version: v2\nsanitize: always\n",
                  "p.yaml:2: sanitize: expected required, best-effort or off, found the string 'always'"},
        BadPolicy{"version: v2\nsanitize: [required]\n",
                  "p.yaml:2: sanitize: expected required, best-effort or off, found a list"},
        BadPolicy{"version: v2\nregisters: never\n",
                  "p.yaml:2: registers: expected auto, all or off, found the string 'never'"},
        BadPolicy{"version: v2\nforiegn: keep\n", "p.yaml:2: foriegn: unknown key; did you mean 'foreign'?"},
        BadPolicy{"version: v1\nforeign: keep\n", "p.yaml:2: foreign: unknown key"},
        BadPolicy{"version: v2\nrelaese: []\n", "p.yaml:2: relaese: unknown key; did you mean 'release'?"},
        BadPolicy{"version: v1\nrelease: []\n", "p.yaml:2: release: unknown key"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: host, release: []}\n",
                  "p.yaml:4: policies.a[0].release: unknown key"},
        BadPolicy{"version: v2\nvgpu-configs: {}\n", "p.yaml:2: vgpu-configs: unknown key"},
        BadPolicy{"version: v2\npolicies: []\n",
                  "p.yaml:2: policies: expected at least one named configuration, found a list"},
        BadPolicy{"version: v2\npolicies: {}\n",
                  "p.yaml:2: policies: expected at least one named configuration, found none"},
        BadPolicy{"version: v2\npolicies:\n  a: []\n",
                  "p.yaml:3: policies.a: expected a list of at least one item, found an empty one"},
        BadPolicy{"version: v2\npolicies:\n  a: [all]\n",
                  "p.yaml:3: policies.a[0]: expected a map with devices and mode, found the string 'all'"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - mode: host\n",
                  "p.yaml:4: policies.a[0].devices: the key is missing"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - devices: all\n",
                  "p.yaml:4: policies.a[0].mode: the key is missing"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: passthroug}\n",
                  "p.yaml:4: policies.a[0].mode: expected host, passthrough or vgpu, found the string "
                  "'passthroug'; "
                  "did you mean 'passthrough'?"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: [host]}\n",
                  "p.yaml:4: policies.a[0].mode: expected host, passthrough or vgpu, found a list"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu}\n",
                  "p.yaml:4: policies.a[0].vgpu-devices: the key is missing"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: host, vgpu-devices: {}}\n",
                  "p.yaml:4: policies.a[0].vgpu-devices: goes with mode vgpu, not with host"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: host, with: []}\n",
                  "p.yaml:4: policies.a[0].with: unknown key"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: 0}}\n",
                  "p.yaml:4: policies.a[0].vgpu-devices.T4-4Q: the count must be above 0, found 0"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, allocation: DRA}\n",
            "p.yaml:4: policies.a[0].allocation: expected device-plugin or dra, found the string 'DRA'; "
            "did you mean 'dra'?"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: [dra]}\n",
                  "p.yaml:4: policies.a[0].allocation: expected device-plugin or dra, found a list"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: }\n",
                  "p.yaml:4: policies.a[0].allocation: expected device-plugin or dra, found nothing"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - devices: all\n    allocation: dra\n    mode: host\n",
                  "p.yaml:6: policies.a[0].mode: goes with allocation device-plugin, not with dra"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - devices: all\n    vgpu-devices: {}\n    allocation: dra\n",
            "p.yaml:5: policies.a[0].vgpu-devices: goes with allocation device-plugin, not with dra"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, vgpu-params: a=1}\n",
                  "p.yaml:4: policies.a[0].vgpu-params: goes with allocation device-plugin, not with dra"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, mixed-sizes: yes}\n",
                  "p.yaml:4: policies.a[0].mixed-sizes: expected true or false, found yes"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: host, allow: [whole]}\n",
                  "p.yaml:4: policies.a[0].allow: goes with allocation dra, not with device-plugin"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, allow: []}\n",
                  "p.yaml:4: policies.a[0].allow: expected one or a list of vGPU types, found an empty list"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, allow: {whole: true}}\n",
                  "p.yaml:4: policies.a[0].allow: expected one or a list of vGPU types, found a map"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, allow: [whole, 4]}\n",
                  "p.yaml:4: policies.a[0].allow: expected whole or a vGPU type, found 4"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, allow: [\"\"]}\n",
                  "p.yaml:4: policies.a[0].allow: expected whole or a vGPU type, found the string ''"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, allocation: dra, allow: \"L40S-[12Q\"}\n",
                  "p.yaml:4: policies.a[0].allow: 'L40S-[12Q' has a [ without its ]: it would match nothing"},
        BadPolicy{"version: v1\nvgpu-configs:\n  a:\n  - {devices: all, allocation: dra}\n",
                  "p.yaml:4: vgpu-configs.a[0].allocation: unknown key"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {modle: x, mode: host}\n",
                  "p.yaml:4: policies.a[0].modle: unknown key; did you mean 'model'?"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {model: \"\", mode: host}\n",
                  "p.yaml:4: policies.a[0].model: expected a model, found the string ''"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: [0, -1], mode: host}\n",
                  "p.yaml:4: policies.a[0].devices: no GPU has the number -1"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - mode: host\n    model: '*[L4'\n",
                  "p.yaml:5: policies.a[0].model: '*[L4' has a [ without its ]: it would match nothing"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {model: [], mode: host}\n",
                  "p.yaml:4: policies.a[0].model: expected one or a list of models, found an empty list"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {model: {a: b}, mode: host}\n",
                  "p.yaml:4: policies.a[0].model: expected one or a list of models, found a map"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {model: [[x]], mode: host}\n",
                  "p.yaml:4: policies.a[0].model: expected a model, found a list"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {address: , mode: host}\n",
                  "p.yaml:4: policies.a[0].address: expected one or a list of PCI addresses, found nothing"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {address: \"0000:17\", mode: host}\n",
                  "p.yaml:4: policies.a[0].address: expected a PCI address, found the string '0000:17'"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {numa-node: -1, mode: host}\n",
                  "p.yaml:4: policies.a[0].numa-node: expected a NUMA node such as 0 or 1, found -1"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {numa-node: \"0\", mode: host}\n",
                  "p.yaml:4: policies.a[0].numa-node: expected a NUMA node such as 0 or 1, found the string "
                  "'0'"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {numa-node: 4294967296, mode: host}\n",
                  "p.yaml:4: policies.a[0].numa-node: expected a NUMA node such as 0 or 1, found 4294967296"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {vendor: nvida, mode: host}\n",
                  "p.yaml:4: policies.a[0].vendor: expected a vendor, found the string 'nvida'; did you mean "
                  "'nvidia'?"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {vendor: 10d, mode: host}\n",
                  "p.yaml:4: policies.a[0].vendor: expected a vendor, found the string '10d'"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: host, mixed-sizes: false}\n",
                  "p.yaml:4: policies.a[0].mixed-sizes: goes with mode vgpu, not with host"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: passthrough, vgpu-params: a=1}\n",
                  "p.yaml:4: policies.a[0].vgpu-params: goes with mode vgpu, not with passthrough"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, mixed-sizes: yes, "
                  "vgpu-devices: {T4-4Q: 1}}\n",
                  "p.yaml:4: policies.a[0].mixed-sizes: expected true or false, found yes"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, mixed-sizes: true, "
                  "vgpu-devices: {H200-1-18C: 1}}\n",
                  "p.yaml:4: policies.a[0].mixed-sizes: H200-1-18C is MIG-backed: its GPU instances have one "
                  "size each, and may differ"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-params: [], "
                  "vgpu-devices: {T4-4Q: 1}}\n",
                  "p.yaml:4: policies.a[0].vgpu-params: expected a string or a map, found a list"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-params: fast, "
                  "vgpu-devices: {T4-4Q: 1}}\n",
                  "p.yaml:4: policies.a[0].vgpu-params: 'fast' is no key=value"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-params: \"a=1,a=2\", "
                  "vgpu-devices: {T4-4Q: 1}}\n",
                  "p.yaml:4: policies.a[0].vgpu-params: 'a' stands twice"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-params: {a: \"1,b=2\"}, "
                  "vgpu-devices: {T4-4Q: 1}}\n",
                  "p.yaml:4: policies.a[0].vgpu-params: a key or a value has a blank or a comma in it"},
        BadPolicy{"version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: {}}}\n",
                  "p.yaml:4: policies.a[0].vgpu-devices.T4-4Q.count: the key is missing"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: {count: "
            "1, size: 4}}}\n",
            "p.yaml:4: policies.a[0].vgpu-devices.T4-4Q.size: unknown key"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: {count: "
            "2, placement: [0]}}}\n",
            "p.yaml:4: policies.a[0].vgpu-devices.T4-4Q.placement: 1 placement ID given for 2 vGPUs"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: {count: "
            "2, placement: [4, 4]}}}\n",
            "p.yaml:4: policies.a[0].vgpu-devices.T4-4Q.placement: 4 stands twice: two vGPUs cannot have "
            "one place"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: {count: "
            "1, placement: [-1]}}}\n",
            "p.yaml:4: policies.a[0].vgpu-devices.T4-4Q.placement: expected a plain whole number such as "
            "0 or 4, found -1"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: {count: "
            "1, placement: [0]}, T4-4C: {count: 2, placement: [1, 0]}}}\n",
            "p.yaml:4: policies.a[0].vgpu-devices.T4-4C.placement: 0 is asked for by T4-4Q too: two vGPUs "
            "cannot have one place"},
        BadPolicy{
            "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, vgpu-devices: {A100-1-5C: {count: "
            "1, placement: [0]}}}\n",
            "p.yaml:4: policies.a[0].vgpu-devices.A100-1-5C.placement: A100-1-5C is MIG-backed: its place is "
            "its "
            "GPU instance's"},
        BadPolicy{
            "version: v1\nvgpu-configs:\n  a:\n  - {devices: all, vgpu-devices: {T4-4Q: {count: 1}}}\n",
            "p.yaml:4: vgpu-configs.a[0].vgpu-devices.T4-4Q: the count must be a plain whole number such "
            "as 4, found a map"},
        BadPolicy{"version: v1\nvgpu-configs:\n  a:\n  - {devices: all, mode: host, vgpu-devices: {}}\n",
                  "p.yaml:4: vgpu-configs.a[0].mode: unknown key"}));

}  // namespace
}  // namespace ferry::policy
