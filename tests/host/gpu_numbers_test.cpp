// SPDX-License-Identifier: Apache-2.0
// GPUs that a policy names by number: the numbers stay with their addresses for a policy's content.
#include "host/gpu_numbers.h"

#include <cerrno>
#include <string>

#include <gmock/gmock.h>

#include "mdev/vgpu_inventory.h"
#include "policy/policy_yaml.h"
#include "tests/host/keeper_node.h"

namespace ferry::host {
namespace {

using test::must;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kSecondAway =
    "  - {devices: all, mode: host}\n  - {devices: [1, 7], mode: passthrough}\n";
constexpr const char* kFirstAway = "  - {devices: all, mode: host}\n  - {devices: [0], mode: passthrough}\n";

class NumberedGpus : public NodeKeeperTest {
 protected:
  void has_gone(const std::string& number, const std::string& address) {
    has_gone(rounds(), number, address);
  }
  void has_gone(const Round& last, const std::string& number, const std::string& address) {
    EXPECT_EQ(last.phase, api::NodePhase::blocked);
    EXPECT_EQ(last.status, ExitStatus::refused);
    EXPECT_FALSE(last.again) << "the kernel reports a GPU that comes";
    ASSERT_TRUE(state().error);
    EXPECT_THAT(state().error->message, AllOf(HasSubstr("GPU " + number + " is gone"), HasSubstr(address)));
    EXPECT_THAT(state().error->hint, HasSubstr("`ferry apply`"));
  }
  std::string record() const { return kernel_.read_file(kGpuNumbersFile).value_or(""); }
};

TEST_F(NumberedGpus, KeepTheirNumbersWhenOneIsUnplugged) {
  want(kSecondAway);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("nvidia", "vfio-pci", "nvidia"));
  EXPECT_THAT(record(), AllOf(HasSubstr(R"("1": "0000:06:00.0")"), testing::Not(HasSubstr(R"("7")"))));
  kernel_.remove_function(kFirst);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready) << "the policy does not name its number";
  EXPECT_THAT(drivers(), ElementsAre("", "vfio-pci", "nvidia"));
  kernel_.remove_function(kSecond);
  has_gone("1", kSecond);
  EXPECT_THAT(drivers(), ElementsAre("", "", "nvidia")) << "no other GPU takes its number";
}

TEST_F(NumberedGpus, CountNoGpuThatIsThereForItsClaimAlone) {
  mdev::VgpuInventory inventory;
  for (const char* address : {kFirst, kSecond, kThird}) {
    mdev::VgpuGpu& gpu = inventory.gpus.emplace_back();
    gpu.function.address = must(vfio::PciAddress::parse(address));
    gpu.index = static_cast<unsigned>(inventory.gpus.size()) - 1;
  }
  inventory.gpus.back().by_name = true;
  inventory.gpus.back().function.vendor = 0x1002;
  const auto counted = [&](const std::string& more) {
    const auto file = must(policy::read_policies(
        {.file = "p", .text = "version: v2\npolicies:\n  a:\n  - {devices: [0, 2], mode: host}\n" + more}));
    return must(resolve_numbers(kernel_, file.policies.front(), inventory)).numbers.contains(2);
  };
  EXPECT_FALSE(counted("")) << "its number would be gone with the claim";
  EXPECT_TRUE(counted("  - {vendor: amd, devices: [2], mode: host}\n"));
  EXPECT_TRUE(counted(std::string("  - {address: \"") + kThird + "\", mode: host}\n"));
}

TEST_F(NumberedGpus, AreWokenByTheirNumbersAlone) {
  const auto rests = [&](const char* gpu, bool dead) {
    const std::string folder = std::string("sys/bus/pci/devices/") + gpu;
    kernel_.file(folder + "/power_state", "D3cold\n");
    kernel_.file(folder + "/config", std::string(64, dead ? '\xff' : '\0'));
  };
  want(kSecondAway);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  kernel_.remove_function(kFirst);  // the third GPU is the second one in order now
  rests(kThird, true);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready) << "its number is not in the policy";
  EXPECT_EQ(gpu(kThird).state, api::GpuState::ready) << "it was not woken";
  rests(kSecond, true);
  rounds();
  EXPECT_EQ(gpu(kSecond).state, api::GpuState::blocked);
}

TEST_F(NumberedGpus, AreGoneUntilTheyComeBack) {
  want(kFirstAway);
  rounds();
  kernel_.remove_function(kFirst);
  has_gone("0", kFirst);
  EXPECT_THAT(drivers(), ElementsAre("", "nvidia", "nvidia"));
  has_gone(make_keeper().round(), "0", kFirst);
  kernel_.new_boot();
  has_gone(make_keeper().round(), "0", kFirst);
  add_t4("0000:04:00.0", 4);
  has_gone("0", kFirst);
  EXPECT_EQ(kernel_.driver_of("0000:04:00.0"), "nvidia") << "it is the first one now, and has no number";
  // Another card in the same slot has its number.
  kernel_.add_function({.address = kFirst, .ids = "10de:2684", .class_code = 0x030200, .group = 5});
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
}

TEST_F(NumberedGpus, AreCountedAnewForAnotherContentAndWithoutTheRecord) {
  want(kFirstAway);
  rounds();
  kernel_.remove_function(kFirst);
  want(kFirstAway, 2);
  has_gone("0", kFirst);
  want("  - {devices: [0], mode: passthrough}\n", 3);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("", "vfio-pci", "nvidia"));

  kernel_.remove_function(kSecond);
  has_gone("0", kSecond);
  must(kernel_.remove_file(kGpuNumbersFile));  // as `ferry apply` does
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kThird), "vfio-pci");
}

TEST_F(NumberedGpus, AreRecordedOnceAndForgottenWithThePolicy) {
  want(kFirstAway);
  rounds();
  const std::string first = record();
  kernel_.forget_changes();
  rounds();
  make_keeper().round();
  for (const test::HostChange& change : kernel_.changes()) EXPECT_NE(change.path, kGpuNumbersFile);
  EXPECT_EQ(record(), first);
  want(kAllAway);
  rounds();
  EXPECT_FALSE(kernel_.exists(kGpuNumbersFile)) << "no number is in it";
  want(kFirstAway);
  rounds();
  EXPECT_TRUE(kernel_.exists(kGpuNumbersFile));
  kernel_.remove(kDesired);
  rounds();
  EXPECT_FALSE(kernel_.exists(kGpuNumbersFile));
  kernel_.forget_changes();
  rounds();
  for (const test::HostChange& change : kernel_.changes())
    EXPECT_THAT(change.path, testing::Not(HasSubstr(kGpuNumbersFile)));
}

TEST_F(NumberedGpus, AreCountedOnceThereAreAny) {
  for (const char* address : kGpus) kernel_.remove_function(address);
  want(kFirstAway);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_FALSE(kernel_.exists(kGpuNumbersFile));
  add_t4(kSecond, 6);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(kernel_.driver_of(kSecond), "vfio-pci");
}

// A GPU that got its number by a guess could be a container's.
TEST_F(NumberedGpus, StayAsTheyAreWhileTheRecordCannotBeReadOrWritten) {
  want(kFirstAway);
  rounds();
  const std::string good = record();
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string(R"({"version": 9})"),
        std::string(R"({"version": 1, "policy": "", "gpus": {"x": "0000:05:00.0"}})"),
        std::string(R"({"version": 1, "policy": "", "gpus": {"0": "5"}})"),
        good.substr(0, good.size() / 2)}) {
    SCOPED_TRACE(bad);
    kernel_.file(kGpuNumbersFile, bad);
    kernel_.forget_changes();
    now_ += std::chrono::hours(1);
    EXPECT_EQ(rounds().phase, api::NodePhase::failed);
    EXPECT_THAT(state().error->message, HasSubstr("/var/lib/ferry-hostd/gpus/numbers.json: "));
    EXPECT_THAT(state().error->hint, HasSubstr("remove it"));
    EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "nvidia"));
    EXPECT_EQ(record(), bad);
  }
  kernel_.remove(kGpuNumbersFile);
  kernel_.fail_change(1, EROFS);
  want("  - {devices: [1], mode: passthrough}\n");
  EXPECT_EQ(rounds().phase, api::NodePhase::failed);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "nvidia", "nvidia"));
  now_ += std::chrono::hours(1);
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_THAT(drivers(), ElementsAre("vfio-pci", "vfio-pci", "nvidia"));
}

TEST_F(NumberedGpus, SayThatANumberHadNoGpuWhenItWasCounted) {
  want(kSecondAway);
  rounds();
  const auto uncounted = [this] {
    auto file = must(policy::read_policies(
        {.file = "p.yaml", .text = "version: v2\n" + keys_ + "policies:\n  a:\n" + kSecondAway}));
    const auto inventory = must(vfio::scan(kernel_));
    const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::display_3d}};
    const NumberedPolicy numbered = must(resolve_numbers(kernel_, std::move(file.policies.front()),
                                                         must(mdev::scan_vgpus(kernel_, inventory, rules))));
    EXPECT_TRUE(numbered.recorded) << record() << numbered.content;
    return numbered.uncounted;
  };
  EXPECT_THAT(uncounted(), testing::IsEmpty());
  for (unsigned i = 18; i < 23; ++i) add_t4(("0000:" + std::to_string(i) + ":00.0").c_str(), i);
  EXPECT_THAT(uncounted(), ElementsAre(HasSubstr("number 7 had no GPU")));
}

// Numbers of items for claims, and a profile's.
TEST_F(NumberedGpus, GoToClaimsByTheirNumbersToo) {
  want("  - {devices: [0], allocation: dra}\n  - {devices: [2], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n");
  rounds();  // the GPU for DRA becomes unavailable first
  EXPECT_EQ(rounds().phase, api::NodePhase::ready);
  EXPECT_EQ(gpu(kFirst).allocation, api::Allocation::dra);
  kernel_.remove_function(kFirst);
  has_gone("0", kFirst);
  EXPECT_EQ(gpu(kSecond).allocation, api::Allocation::device_plugin);
  EXPECT_THAT(mdev_.devices_on(kThird), testing::SizeIs(1));
}

// The last item gives the other vendor's GPU the number 3, which the first one must not take.
TEST_F(NumberedGpus, SelectNoGpuThatOnlyAnotherItemNames) {
  kernel_.add_driver({.name = "amdgpu"});
  for (const char* ids : {"1002:744c", "8086:56c0"}) {
    constexpr const char* kOther = "0000:0a:00.0";
    kernel_.add_function({ids, 0x030200}, kOther, 10, "amdgpu");
    for (const char* other :
         {"address: 0000:0a:00.0, model: none", "vendor: amd, model: none", "vendor: intel, model: none"}) {
      want(std::string("  - {devices: [0, 3], mode: passthrough}\n  - {devices: all, mode: host, ") + other +
           "}\n");
      rounds();
      EXPECT_EQ(kernel_.driver_of(kOther), "amdgpu") << ids << ", " << other;
      EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci");
    }
    want("  - {devices: [3], mode: passthrough, address: '0000:0a:00.0'}\n");
    rounds();
    EXPECT_EQ(kernel_.driver_of(kOther), "vfio-pci") << "the item itself names it";
    kernel_.remove_function(kOther);
  }
}

}  // namespace
}  // namespace ferry::host
