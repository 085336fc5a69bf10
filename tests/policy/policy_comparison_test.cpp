// SPDX-License-Identifier: Apache-2.0
// A host against a policy, and the way back: what it is as a policy, and policies as text.
#include "policy/policy_comparison.h"

#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "policy/accelerators.h"
#include "policy/kubernetes_files.h"
#include "policy/policy_export.h"
#include "policy/policy_yaml.h"
#include "vfio/judgement/judge.h"

namespace ferry::policy {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PolicyFile read(const std::string& text) {
  auto file = read_policies({.file = "p.yaml", .text = text});
  EXPECT_TRUE(file) << file.error().message;
  return file ? std::move(*file) : PolicyFile{};
}

Policy policy(const std::string& items) {
  PolicyFile file = read("version: v2\npolicies:\n  a:\n" + items);
  return file.policies.empty() ? Policy{} : file.policies.front();
}

/// GPUs one after another, each with a sound function on the card.
class Host {
 public:
  mdev::VgpuGpu& add(const std::string& driver) {
    const auto slot = std::to_string(vgpus.gpus.size());
    mdev::VgpuGpu gpu;
    gpu.index = static_cast<unsigned>(vgpus.gpus.size());
    gpu.function = function("0000:0" + slot + ":00.0", driver);
    gpu.function.iommu_group = gpu.index;
    inventory.functions.emplace(gpu.address(), gpu.function);
    vfio::PciFunction sound =
        function("0000:0" + slot + ":00.1", driver == "vfio-pci" ? "vfio-pci" : "snd_hda_intel");
    sound.class_code = 0x040300;
    sound.iommu_group = gpu.index;
    inventory.functions.emplace(sound.address, sound);
    inventory.groups[gpu.index] = {gpu.address(), sound.address};
    return vgpus.gpus.emplace_back(std::move(gpu));
  }
  void carry(unsigned index, const std::string& type) {
    mdev::VgpuDevice device;
    device.id.text = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a1" + std::to_string(index);
    device.type_id = "nvidia-" + type;
    device.short_name = type;
    device.iommu_group = 7;
    vgpus.gpus[index].devices.push_back(device);
  }
  vfio::GpuFindings findings() const {
    return vfio::judge_all(inventory, default_accelerator_rules(), {.stuck = &stuck, .fatal_errors = &errors},
                           {.all_shed = true, .force = true});
  }
  vfio::PciFunction& companion(unsigned index) {
    return inventory.functions.at(
        vfio::PciAddress::parse("0000:0" + std::to_string(index) + ":00.1").value());
  }
  std::vector<std::string> differences(const Policy& policy) const {
    std::vector<std::string> out;
    for (const ModeComparison& comparison : judge_policy(policy, vgpus, findings()))
      out.push_back(comparison.difference);
    return out;
  }

  vfio::Inventory inventory;
  mdev::VgpuInventory vgpus;
  std::set<std::string> stuck;
  std::map<vfio::PciAddress, std::string> errors;

 private:
  static vfio::PciFunction function(const std::string& address, const std::string& driver) {
    vfio::PciFunction out;
    out.address = vfio::PciAddress::parse(address).value();
    out.vendor = 0x10de;
    out.device = 0x1eb8;
    if (!driver.empty()) out.driver = driver;
    out.class_code = 0x030200;
    if (driver == "vfio-pci") out.vfio_devices = {"vfio0"};
    return out;
  }
};

constexpr const char* kMixed =
    "  - {devices: [0], mode: passthrough}\n"
    "  - {devices: [1], mode: vgpu, vgpu-devices: {T4-4Q: 1}}\n"
    "  - {devices: [2], mode: host}\n";

constexpr const char* kAllOfTheHost = "  - {devices: all, mode: host}\n";

TEST(PolicyComparison, AgreesWithWhatIsSo) {
  Host host;
  host.add("vfio-pci");
  host.add("nvidia");
  host.add("nvidia");
  host.add("nouveau");
  host.carry(1, "T4-4Q");
  EXPECT_THAT(host.differences(policy(kMixed)), ElementsAre("", "", "", ""));
  const auto comparisons = judge_policy(policy(kMixed), host.vgpus, host.findings());
  EXPECT_EQ(comparisons.at(3).desired, std::nullopt);
  EXPECT_EQ(comparisons.at(1).found, Mode::vgpu);
  EXPECT_EQ(text(comparisons.at(1).found_vgpus), "1 x T4-4Q");
}

// A device that does not work is no GPU of any mode.
TEST(PolicyComparison, DiffersWhereAGpuDoesNotWork) {
  Host host;
  host.add("vfio-pci");
  host.add("nvidia");
  host.add("nvidia");
  host.carry(1, "T4-4Q");
  for (const char* index : {"0", "1", "2"}) {
    host.stuck = {"0000:0" + std::string(index) + ":00.0"};
    const auto differences = host.differences(policy(kMixed));
    for (unsigned i = 0; i < 3; ++i)
      EXPECT_EQ(differences.at(i).empty(), std::to_string(i) != index) << differences.at(i);
    const auto exported = export_policy(host.vgpus, host.findings(), "now");
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_THAT(exported->notes, ElementsAre(HasSubstr("GPU " + std::string(index))));
  }
  host.stuck = {};
  host.errors[host.vgpus.gpus[0].address()] = "1 fatal PCIe error";
  EXPECT_THAT(host.differences(policy(kMixed)).at(0), HasSubstr("1 fatal PCIe error"));
}

TEST(PolicyComparison, SaysWhatIsOtherwise) {
  Host host;
  host.add("nvidia");
  host.add("vfio-pci");
  host.add("nvidia");
  host.carry(2, "T4-8Q");
  EXPECT_THAT(host.differences(policy(kMixed)),
              ElementsAre("GPU 0 (0000:00:00.0): expected passthrough, found host (driver nvidia)",
                          "GPU 1 (0000:01:00.0): expected vgpu, found passthrough (driver vfio-pci)",
                          "GPU 2 (0000:02:00.0): expected none, found 1 x T4-8Q"));
}

TEST(PolicyComparison, WantsTheWholeCardOnVfio) {
  Host host;
  host.add("vfio-pci");
  host.companion(0).driver = "snd_hda_intel";
  host.companion(0).vfio_devices.clear();
  EXPECT_THAT(host.differences(policy("  - {devices: all, mode: passthrough}\n")),
              ElementsAre("GPU 0 (0000:00:00.0): expected passthrough, but 0000:00:00.1 (audio, driver "
                          "snd_hda_intel) keeps the kernel from giving the group to a VM"));
  host.companion(0).driver.reset();
  EXPECT_THAT(host.differences(policy("  - {devices: all, mode: passthrough}\n")), ElementsAre(""));
}

TEST(PolicyComparison, WantsADriverOnAGpuOfTheHost) {
  Host host;
  host.add("");
  EXPECT_THAT(host.differences(policy(kAllOfTheHost)),
              ElementsAre("GPU 0 (0000:00:00.0): expected host, but no driver has taken it: neither the host "
                          "nor a VM can use it now; install or load its driver, which then takes it; `dmesg` "
                          "says why a loaded one does not; a driver_override that names another driver is to "
                          "be cleared first"));
  EXPECT_THAT(host.differences(policy("  - {devices: [7], mode: host}\n")), ElementsAre(""))
      << "no item is for it";
  host.vgpus.gpus[0].function.problem = Error{.code = {}, .message = "it reads all ones"};
  host.inventory.functions.at(host.vgpus.gpus[0].address()) = host.vgpus.gpus[0].function;
  EXPECT_THAT(host.differences(policy(kAllOfTheHost)), ElementsAre(HasSubstr("it reads all ones")));
}

// pci-stub does nothing with a function but keep other drivers off it.
TEST(PolicyComparison, TakesPciStubForNoDriver) {
  Host host;
  host.add("pci-stub");
  EXPECT_THAT(
      host.differences(policy(kAllOfTheHost)),
      ElementsAre(AllOf(HasSubstr("expected host, but pci-stub holds it: "), HasSubstr("unbind it"))));
  EXPECT_THAT(host.differences(policy("  - {devices: all, mode: passthrough}\n")),
              ElementsAre("GPU 0 (0000:00:00.0): expected passthrough, found host (driver pci-stub)"));
  const auto exported = export_policy(host.vgpus, host.findings(), "now");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_THAT(exported->notes, ElementsAre(HasSubstr("GPU 0 (0000:00:00.0): left out: pci-stub holds it")));
}

// hostd makes an item for each number of an item.
TEST(ItemsWithoutGpu, AreThoseOfWhichNoNumberHasAGpu) {
  Host host;
  for (int i = 0; i < 2; ++i) host.add("nvidia");
  const auto idle = [&](const std::vector<const char*>& gpus) {
    Policy resolved = policy("  - {devices: [0, 2], mode: host}\n");
    const PolicyItem item = resolved.items.front();
    resolved.items.clear();
    for (const char* gpu : gpus)
      resolved.items.emplace_back(item).gpus.only = vfio::PciAddress::parse(gpu).value();
    return items_without_gpu(resolved, host.vgpus);
  };
  EXPECT_THAT(idle({"0000:00:00.0", "0000:77:00.0"}), IsEmpty());
  EXPECT_THAT(idle({"0000:77:00.0", "0000:01:00.0"}), IsEmpty());
  EXPECT_THAT(idle({"0000:77:00.0"}), ElementsAre("p.yaml:4: matches no GPU of this node"));
  EXPECT_THAT(idle({"0000:77:00.0", "0000:78:00.0"}), ElementsAre("p.yaml:4: matches no GPU of this node"));
}

TEST(PolicyComparison, TakesAGpuThatHasVgpusForNothingElse) {
  Host host;
  host.add("nvidia");
  host.carry(0, "T4-4Q");
  EXPECT_THAT(host.differences(policy("  - {devices: all, mode: passthrough}\n")),
              ElementsAre("GPU 0 (0000:00:00.0): expected passthrough, found vgpu (driver nvidia)"));
}

TEST(PolicyExport, IsWhatTheNodeAgreesWith) {
  Host host;
  for (const char* driver : {"nvidia", "vfio-pci", "nvidia", "vfio-pci", ""}) host.add(driver);
  host.carry(0, "T4-4Q");
  const auto exported = export_policy(host.vgpus, host.findings(), "now");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(policy_text({.file = {}, .policies = {exported->policy}}),
            "version: v2\n"
            "policies:\n"
            "  now:\n"
            "  - devices: [0]\n"
            "    mode: vgpu\n"
            "    vgpu-devices:\n"
            "      T4-4Q: 1\n"
            "  - devices: [1, 3]\n"
            "    mode: passthrough\n"
            "  - devices: [2]\n"
            "    mode: host\n");
  EXPECT_THAT(exported->notes, ElementsAre("GPU 4 (0000:04:00.0): left out: no driver has taken it: neither "
                                           "the host nor a VM can use it now"));
}

TEST(PolicyExport, HasTheAllocationOfGpusForClaims) {
  Host host;
  for (const char* driver : {"nvidia", "vfio-pci", "nvidia"}) host.add(driver);
  host.carry(0, "T4-4Q");
  const std::vector<api::ClaimableGpu> claimable = {
      {.address = host.vgpus.gpus[0].address()},
      {.address = host.vgpus.gpus[1].address(), .whole = false},
      {.address = host.vgpus.gpus[2].address(), .for_dra = false}};
  const auto exported = export_policy(host.vgpus, host.findings(), "now", {}, claimable);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(policy_text({.file = {}, .policies = {exported->policy}}),
            "version: v2\n"
            "policies:\n"
            "  now:\n"
            "  - devices: [0, 1]\n"
            "    allocation: dra\n"
            "  - devices: [2]\n"
            "    mode: host\n");
  EXPECT_THAT(exported->notes, ElementsAre("GPU 1 (0000:01:00.0): claims cannot have all of its devices: "
                                           "`allow` is left out"));
}

TEST(PolicyVerdict, AgreesWithAnyModeOfAGpuForClaims) {
  Host host;
  host.add("vfio-pci");
  const Policy dra = policy("  - {devices: all, allocation: dra}\n");
  const auto verdicts = judge_policy(dra, host.vgpus, host.findings());
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_TRUE(verdicts[0].agrees());
  EXPECT_TRUE(verdicts[0].for_dra);
  EXPECT_EQ(verdicts[0].desired, std::nullopt);
}

TEST(PolicyText, HasTheDevicesThatClaimsCanHave) {
  const std::string text =
      "version: v2\n"
      "policies:\n"
      "  a:\n"
      "  - devices: all\n"
      "    allocation: dra\n"
      "    allow: [\"whole\", \"L40S-*Q\"]\n"
      "  - address: \"0000:3b:00.0\"\n"
      "    allocation: dra\n"
      "    allow: \"whole\"\n"
      "  - address: \"0000:af:00.0\"\n"
      "    allocation: dra\n"
      "    mixed-sizes: true\n";
  EXPECT_EQ(policy_text(read(text)), text);
}

TEST(PolicyText, HasTheNodesOfAPolicy) {
  const std::string text =
      "version: v2\n"
      "nodeSelector:\n"
      "  b:\n"
      "    \"example.com/gpu\": \"true\"\n"
      "    \"example.com/pool\": render\n"
      "policies:\n"
      "  a:\n"
      "  - devices: all\n"
      "    mode: host\n"
      "  b:\n"
      "  - devices: all\n"
      "    mode: passthrough\n";
  EXPECT_EQ(policy_text(read(text)), text);
}

TEST(PolicyExport, LeavesOutAGpuThatNoPolicyDescribes) {
  Host host;
  for (int i = 0; i < 2; ++i) host.add("vfio-pci");
  host.companion(0).driver = "snd_hda_intel";
  host.companion(0).vfio_devices.clear();
  const auto half = export_policy(host.vgpus, host.findings(), "now");
  ASSERT_TRUE(half) << half.error().message;
  ASSERT_EQ(half->policy.items.size(), 1U);
  EXPECT_THAT(half->policy.items[0].gpus.indices, ElementsAre(1));
  EXPECT_THAT(
      half->notes,
      ElementsAre(
          AllOf(HasSubstr("GPU 0 (0000:00:00.0): left out: "),
                HasSubstr("(audio, driver snd_hda_intel) keeps the kernel from giving the group to a VM"))));
  const auto name = export_policy(host.vgpus, host.findings(), "two words");
  ASSERT_FALSE(name);
  EXPECT_EQ(name.error().code, Errc::usage);
}

TEST(PolicyExport, LeavesOutAGpuWhoseVgpusCannotBeRead) {
  Host host;
  for (const char* driver : {"nvidia", "nvidia", "vfio-pci"}) host.add(driver);
  host.carry(1, "T4-4Q");
  for (const unsigned stuck : {0U, 2U})
    host.vgpus.gpus[stuck].parents.push_back({.address = host.vgpus.gpus[stuck].address(),
                                              .problem = Error{.code = Errc::stuck, .message = "stuck"}});
  const auto exported = export_policy(host.vgpus, host.findings(), "now");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_THAT(exported->notes, ElementsAre("GPU 0 (0000:00:00.0): left out: stuck"));
  EXPECT_EQ(policy_text({.file = {}, .policies = {exported->policy}}),
            "version: v2\n"
            "policies:\n"
            "  now:\n"
            "  - devices: [1]\n"
            "    mode: vgpu\n"
            "    vgpu-devices:\n"
            "      T4-4Q: 1\n"
            "  - devices: [2]\n"
            "    mode: passthrough\n");
}

TEST(PolicyExport, OfANodeWithoutGpusIsForNone) {
  const auto exported = export_policy({}, {}, "now");
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_THAT(exported->policy.items.at(0).gpus.indices, IsEmpty());
  EXPECT_FALSE(exported->policy.items[0].gpus.all_devices);
}

mdev::VgpuType sized(const std::string& name, std::uint32_t framebuffer_mib) {
  mdev::VgpuType type;
  type.name = name;
  type.short_name = name;
  type.framebuffer_mib = framebuffer_mib;
  return type;
}
mdev::ManagedGpu with_mixed_sizes(mdev::GpuSwitch mixed_sizes) {
  mdev::ManagedGpu gpu;
  gpu.mixed_sizes = mixed_sizes;
  return gpu;
}

/// The items of what a host exports, and its notes.
std::string exported(const Host& host, const ManagedGpus& managed = {}) {
  const auto exported = export_policy(host.vgpus, host.findings(), "now", managed);
  if (!exported) return exported.error().message;
  const std::string text = policy_text({.file = {}, .policies = {exported->policy}});
  const std::string head = "version: v2\npolicies:\n  now:\n";
  EXPECT_EQ(text.substr(0, head.size()), head);
  std::string out = text.substr(head.size());
  for (const std::string& note : exported->notes) out += note + "\n";
  return out;
}

TEST(PolicyExport, SaysTheParametersOfVgpus) {
  Host host;
  for (int i = 0; i < 3; ++i) host.add("nvidia");
  for (unsigned gpu = 0; gpu < 3; ++gpu) host.carry(gpu, "T4-4Q");
  host.carry(0, "T4-4C");
  host.carry(1, "T4-4C");
  host.vgpus.gpus[0].devices[0].params = "b=2 a=1";
  host.vgpus.gpus[1].devices[0].params = "a=1,b=2";
  host.vgpus.gpus[1].devices[1].params = "";
  host.vgpus.gpus[2].devices[0].params = "";
  EXPECT_EQ(exported(host),
            "  - devices: [0, 1]\n"
            "    mode: vgpu\n"
            "    vgpu-devices:\n"
            "      T4-4C: 1\n"
            "      T4-4Q: {count: 1, vgpu-params: \"b=2,a=1\"}\n"
            "  - devices: [2]\n"
            "    mode: vgpu\n"
            "    vgpu-devices:\n"
            "      T4-4Q: 1\n");
}

TEST(PolicyExport, LeavesOutParametersThatDifferWithinATypeAndSaysSo) {
  Host host;
  host.add("nvidia");
  host.carry(0, "T4-4Q");
  host.carry(0, "T4-4Q");
  host.vgpus.gpus[0].devices[1].params = "a=1";
  EXPECT_EQ(
      exported(host),
      "  - devices: [0]\n    mode: vgpu\n    vgpu-devices:\n      T4-4Q: 2\n"
      "GPU 0 (0000:00:00.0): its 2 vGPUs of type T4-4Q differ in their parameters, which stand once for "
      "all of a type: left out\n");
  host.vgpus.gpus[0].devices[0].params = "no parameter";
  EXPECT_THAT(exported(host),
              testing::HasSubstr("'no parameter', cannot stand in a file: 'no' is no key=value"));
}

TEST(PolicyExport, SaysMixedSizesWhereVgpusDifferOrNvmlSaysSo) {
  Host host;
  for (int i = 0; i < 4; ++i) {
    mdev::VgpuGpu& gpu = host.add("nvidia");
    gpu.framework = &mdev::vendor_vfio();
    gpu.unlisted = {sized("L40S-8Q", 8192), sized("L40S-16Q", 16384)};
    host.carry(gpu.index, "L40S-8Q");
    host.vgpus.gpus.back().devices.back().type_name = "L40S-8Q";
  }
  host.carry(0, "L40S-16Q");
  host.vgpus.gpus[0].devices.back().type_name = "L40S-16Q";
  const auto address = [&](unsigned index) { return host.vgpus.gpus[index].address(); };
  EXPECT_FALSE(asks_library_to_export(host.vgpus.gpus[0]));
  EXPECT_TRUE(asks_library_to_export(host.vgpus.gpus[1]));
  ManagedGpus managed;
  managed.emplace(address(1), with_mixed_sizes(mdev::GpuSwitch::on));
  managed.emplace(address(2), with_mixed_sizes(mdev::GpuSwitch::off));
  managed.emplace(address(3), fail(Errc::unsupported, "this host has no libnvidia-ml.so.1"));
  EXPECT_EQ(exported(host, managed),
            "  - devices: [0]\n"
            "    mode: vgpu\n"
            "    mixed-sizes: true\n"
            "    vgpu-devices:\n"
            "      L40S-16Q: 1\n"
            "      L40S-8Q: 1\n"
            "  - devices: [1]\n"
            "    mode: vgpu\n"
            "    mixed-sizes: true\n"
            "    vgpu-devices:\n"
            "      L40S-8Q: 1\n"
            "  - devices: [2, 3]\n"
            "    mode: vgpu\n"
            "    vgpu-devices:\n"
            "      L40S-8Q: 1\n"
            "GPU 3 (0000:03:00.0): whether mixed sizes are on is not known, and left out: this host has no "
            "libnvidia-ml.so.1\n");
}

TEST(PolicyExport, NamesAGpuOfAnotherVendorByItsAddress) {
  Host host;
  for (const char* driver : {"nvidia", "gim", "gim"}) host.add(driver);
  for (const unsigned index : {1U, 2U}) {
    mdev::VgpuGpu& gpu = host.vgpus.gpus[index];
    gpu.by_name = true;
    gpu.function.vendor = 0x1002;
    gpu.framework = &mdev::whole_functions();
  }
  host.carry(1, "1002:75b3");
  host.vgpus.gpus[1].function.sriov_numvfs = 1;
  EXPECT_FALSE(asks_library_to_export(host.vgpus.gpus[1]));
  EXPECT_EQ(exported(host),
            "  - devices: [0]\n"
            "    mode: host\n"
            "  - address: \"0000:01:00.0\"\n"
            "    mode: vgpu\n"
            "    vgpu-devices:\n"
            "      \"1002:75b3\": 1\n");
}

TEST(PolicyExport, TakesMigBackedVgpusOfSeveralSizesForNoMixedOnes) {
  Host host;
  mdev::VgpuGpu& gpu = host.add("nvidia");
  gpu.framework = &mdev::vendor_vfio();
  gpu.unlisted = {sized("H200X-1-18C", 18432), sized("H200X-2-35C", 35840)};
  for (const char* type : {"H200X-1-18C", "H200X-2-35C"}) {
    host.carry(0, type);
    host.vgpus.gpus[0].devices.back().type_name = type;
  }
  EXPECT_FALSE(asks_library_to_export(host.vgpus.gpus[0]));
  EXPECT_THAT(exported(host), testing::Not(testing::HasSubstr("mixed-sizes")));
}

/// A policy file in its own words, from the file on; it reads back as the same.
std::string again(const std::string& text) {
  const std::string once = policy_text(read(text));
  EXPECT_EQ(policy_text(read(once)), once);
  return std::string{once};
}

TEST(PolicyText, OfAProfileIsAPolicy) {
  EXPECT_EQ(
      again("version: v1\nvgpu-configs:\n  a:\n"
            "  - {device-filter: [\"0x1EB810DE\", \"0x26B910DE\"], devices: all, vgpu-devices: {T4-4Q: 2}}\n"
            "  \"no\":\n  - {devices: [], vgpu-devices: {}}\n"),
      "version: v2\n"
      "policies:\n"
      "  a:\n"
      "  - device-filter: [\"0x1EB810DE\", \"0x26B910DE\"]\n"
      "    mode: vgpu\n"
      "    vgpu-devices:\n"
      "      T4-4Q: 2\n"
      "  \"no\":\n"
      "  - devices: []\n"
      "    mode: vgpu\n"
      "    vgpu-devices: {}\n");
}

TEST(PolicyText, HasEverythingThatAPolicySays) {
  const std::string all =
      "version: v2\n"
      "release: [none, nvidia-dcgm.service, nvidia_drm]\n"
      "foreign: keep\n"
      "registers: all\n"
      "policies:\n"
      "  a.b-c:\n"
      "  - devices: all\n"
      "    mode: passthrough\n"
      "  - devices: [0, 2]\n"
      "    device-filter: \"0x26B910DE:0x185110DE\"\n"
      "    model: [\"*L40S*\", \"10de:26b9\"]\n"
      "    address: \"0000:17:00.0\"\n"
      "    numa-node: [0, 1]\n"
      "    vendor: \"10de\"\n"
      "    mode: vgpu\n"
      "    mixed-sizes: true\n"
      "    vgpu-devices:\n"
      "      L40S-24Q: {count: 1, vgpu-params: \"a=1,b=2\", placement: [0]}\n"
      "      L40S-12Q: {count: 2, placement: [24, 36]}\n"
      "      L40S-12C: {count: 1, vgpu-params: \"\"}\n"
      "  \"a \\\"b\\\\ \\x09\":\n"
      "  - vendor: \"10de\"\n"
      "    mode: host\n";
  EXPECT_EQ(again(all), all);
}

TEST(PolicyText, MayHoldNothing) {
  EXPECT_EQ(again(""), "version: v2\n");
}

// What is shipped as an example is read, and says what its comments say.
TEST(PolicyExample, IsRead) {
  const auto file = read_policy_file(FERRY_EXAMPLE_POLICY);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::string> names;
  for (const Policy& policy : file->policies) names.push_back(policy.name);
  EXPECT_THAT(names, ElementsAre("passthrough", "mixed", "by-model", "by-place", "one-board", "tuned",
                                 "several-sizes", "by-claims"));
  const std::string text = policy_text(*file);
  EXPECT_EQ(policy_text(read(text)), text);
}

// It is on the desired driver, and no VM can use it.
TEST(PolicyComparison, IsNoAgreementWhereAGpuCannotBeRead) {
  Host host;
  mdev::VgpuGpu& gpu = host.add("vfio-pci");
  gpu.function.problem = Error{.code = Errc::malformed_host, .message = "off the bus", .hint = {}};
  host.inventory.functions.at(gpu.address()) = gpu.function;
  EXPECT_THAT(host.differences(policy("  - {devices: all, mode: passthrough}\n")),
              ElementsAre("GPU 0 (0000:00:00.0): expected passthrough, but 0000:00:00.0 cannot be read: "
                          "off the bus"));
}

}  // namespace
}  // namespace ferry::policy
