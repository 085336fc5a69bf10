// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kubevirt_resource.h"

#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include "api/files.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/advertised_file.h"
#include "kubevirt-plugin/discovery/scanner.h"
#include "tests/kubevirt-plugin/nvidia_rules.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/must.h"

namespace ferry::plugin {
namespace {

using test::must;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";

class KubeVirtTest : public testing::Test {
 protected:
  void SetUp() override {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nvidia"});
    kernel.add_driver({.name = "nouveau"});
    kernel.file("dev/vfio/vfio", "");
    kernel.file("proc/1/comm", "systemd\n");
  }
  void add_gpu(const std::string& address, unsigned group, const std::string& driver = "vfio-pci",
               const std::string& ids = "10de:2330") {
    kernel.add_function({.address = address, .ids = ids, .group = group, .driver = driver});
  }
  std::string resource() const {
    const auto devices = must(permitted_host_devices(kernel, must(Scanner(kernel, rules).scan())));
    return kubevirt_resource(devices, permitting_object(""));
  }
  void add_mdev() {
    const std::string home = "sys/devices/pci0000:00/0000:81:00.0/";
    add_gpu("0000:81:00.0", 30, "nvidia", "10de:2235");
    kernel.link("sys/class/mdev_bus/0000:81:00.0", "../../devices/pci0000:00/0000:81:00.0");
    kernel.file(home + "mdev_supported_types/nvidia-558/name", "NVIDIA A40-8Q\n");
    kernel.file(home + "mdev_supported_types/nvidia-558/available_instances", "3\n");
    kernel.link(home + kUuid + "/mdev_type", "../mdev_supported_types/nvidia-558");
    kernel.link(home + kUuid + "/iommu_group", "../../../../kernel/iommu_groups/211");
    kernel.link(std::string("sys/bus/mdev/devices/") + kUuid,
                std::string("../../../devices/pci0000:00/0000:81:00.0/") + kUuid);
  }
  /// A socket of that GPU's resource, and what Ferry's plugin says that it serves.
  void serve(const std::string& name, const std::string& registered) {
    kernel.file("var/lib/kubelet/device-plugins/kubevirt-GH100_H100_SXM5_80GB.sock", "");
    kernel.file(api::kAdvertisedFile, R"({"version": 2, "resources": [{"name": ")" + name +
                                          R"(", "devices": [], "registered": )" + registered + "}]}");
  }
  Check check(const std::string& id, const std::string& subject = kHostSubject) const {
    const auto checks = kubevirt_checks(kernel, rules);
    const auto found = std::ranges::find_if(
        checks, [&](const Check& one) { return one.id == id && one.subject == subject; });
    EXPECT_NE(found, checks.end()) << id;
    return found == checks.end() ? Check() : *found;
  }

  test::FakeKernel kernel;
  ResourceRules rules = test::nvidia_rules();
};

TEST_F(KubeVirtTest, PermitsEachModelAndTypeOnceUnderSomebodyElsesCare) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  kernel.add_function(
      {.address = "0000:17:00.0", .ids = "10de:26b9", .group = 20, .driver = "nvidia", .totalvfs = 2});
  kernel.enable_vfs("0000:17:00.0", 2);
  test::FakeVendorVfio vendor(kernel);
  vendor.add_gpu("0000:17:00.0");
  vendor.set("0000:17:00.4", "1153");
  add_mdev();
  EXPECT_EQ(resource(),
            "apiVersion: kubevirt.io/v1\n"
            "kind: KubeVirt\n"
            "metadata:\n"
            "  name: kubevirt\n"
            "  namespace: kubevirt\n"
            "spec:\n"
            "  configuration:\n"
            "    permittedHostDevices:\n"
            "      pciHostDevices:\n"
            "      - pciVendorSelector: \"10DE:2330\"\n"
            "        resourceName: nvidia.com/GH100_H100_SXM5_80GB\n"
            "        externalResourceProvider: true\n"
            "      - pciVendorSelector: \"10DE:26B9\"\n"
            "        resourceName: nvidia.com/NVIDIA_L40S-12Q\n"
            "        externalResourceProvider: true\n"
            "      mediatedDevices:\n"
            "      - mdevNameSelector: \"NVIDIA A40-8Q\"\n"
            "        resourceName: nvidia.com/NVIDIA_A40-8Q\n"
            "        externalResourceProvider: true\n");
}

TEST_F(KubeVirtTest, PermitsNothingWhereNothingIsAdvertised) {
  EXPECT_THAT(resource(), HasSubstr("permittedHostDevices:\n      {}\n"));
}

// -- doctor --

TEST_F(KubeVirtTest, SaysWhatVmsWithAGraceGpuNeedAndThatItNeedsANameOfItsOwn) {
  rules.names.aliases = {{"10de:2330", "pgpu"}, {"10de:2342", "grace"}};
  add_gpu("0000:01:00.0", 15);
  add_gpu("0009:01:00.0", 16, "vfio-pci", "10de:2342");
  const Check apart = check("grace-vms", "nvidia.com/grace");
  EXPECT_EQ(apart.verdict, Verdict::unknown);
  EXPECT_THAT(apart.found, HasSubstr("feature gates GraceIOVirtualization, PCINUMAAwareTopology, IOMMUFD"));
  rules.names.aliases["10de:2342"] = "pgpu";
  EXPECT_EQ(check("grace-vms", "nvidia.com/pgpu").verdict, Verdict::fail);
}

TEST_F(KubeVirtTest, FindsAReadyHost) {
  kernel.file("var/lib/kubelet/device-plugins/kubelet.sock", "");
  kernel.file("var/lib/kubelet/pod-resources/kubelet.sock", "");
  add_gpu("0000:01:00.0", 15);
  serve("nvidia.com/GH100_H100_SXM5_80GB", "true");
  const auto plugin = must(LivenessLock::announce(kernel, api::kPluginLiveness));
  for (const Check& one : kubevirt_checks(kernel, rules))
    EXPECT_EQ(one.verdict, Verdict::pass) << one.id << ": " << one.found;
  EXPECT_EQ(check("resources-advertised").found, "nvidia.com/GH100_H100_SXM5_80GB (1)");
}

// Its sockets for mediated devices are called as ours are, and as NVIDIA's.
TEST_F(KubeVirtTest, DistinguishesKubeVirtsOwnPluginFromOurs) {
  const auto found = [&] { return check("kubevirt-leaves-them"); };
  add_gpu("0000:01:00.0", 15);
  add_mdev();
  EXPECT_EQ(found().verdict, Verdict::pass) << "there is no socket";
  kernel.file("var/lib/kubelet/device-plugins/kubevirt-GH100_H100_SXM5_80GB.sock", "");
  EXPECT_EQ(found().verdict, Verdict::pass) << "its plugin for PCI devices calls it otherwise";
  kernel.file("var/lib/kubelet/device-plugins/kubevirt-NVIDIA_A40-8Q.sock", "");
  EXPECT_EQ(found().verdict, Verdict::warn);
  EXPECT_THAT(found().found, HasSubstr("has kubevirt-NVIDIA_A40-8Q.sock"));
  EXPECT_THAT(found().fix, HasSubstr("externalResourceProvider"));
  const auto plugin = must(LivenessLock::announce(kernel, api::kPluginLiveness));
  EXPECT_EQ(found().verdict, Verdict::pass) << "it is ours";
}

TEST_F(KubeVirtTest, NamesWhatTheKubeletDoesNotRead) {
  add_gpu("0000:01:00.0", 15);
  const auto is_asked = [&] {
    const auto checks = kubevirt_checks(kernel, rules);
    return std::ranges::find(checks, "kubelet-reads", &Check::id) != checks.end();
  };
  serve("nvidia.com/GH100_H100_SXM5_80GB", "false");
  EXPECT_FALSE(is_asked()) << "who wrote that is gone";
  const auto plugin = must(LivenessLock::announce(kernel, api::kPluginLiveness));
  EXPECT_EQ(check("kubelet-reads").verdict, Verdict::warn);
  EXPECT_THAT(check("kubelet-reads").found, HasSubstr("\"nvidia.com/GH100_H100_SXM5_80GB\""));
  serve("nvidia.com/GH100_H100_SXM5_80GB", "true");
  EXPECT_EQ(check("kubelet-reads").verdict, Verdict::pass);
  for (const char* const odd : {"", "[]", R"({"version": 2, "resources": 1})"}) {
    kernel.file(api::kAdvertisedFile, odd);
    EXPECT_EQ(check("kubelet-reads").verdict, Verdict::unknown) << odd;
    EXPECT_THAT(check("kubelet-reads").found, HasSubstr("/run/ferry/plugin/advertised.json: "));
  }
  kernel.remove(api::kAdvertisedFile);
  EXPECT_EQ(check("kubelet-reads").verdict, Verdict::pass) << "the plugin writes it in a moment";
}

TEST_F(KubeVirtTest, NamesThePluginOnStandby) {
  const auto is_reported = [&] {
    const auto checks = kubevirt_checks(kernel, rules);
    return std::ranges::find(checks, "plugin-serves", &Check::id) != checks.end();
  };
  EXPECT_FALSE(is_reported());
  for (const char* const serves :
       {"{}", "[]", "half of", R"({"version": 2, "resources": [], "standby": null})"}) {
    kernel.file("run/ferry/plugin/advertised.json", serves);
    EXPECT_FALSE(is_reported()) << serves;
  }
  kernel.file("run/ferry/plugin/advertised.json",
              R"({"version": 2, "resources": [], "standby": "another serves"})");
  EXPECT_FALSE(is_reported()) << "who wrote that is gone";
  const auto plugin = must(LivenessLock::announce(kernel, api::kPluginLiveness));
  const Check reported = check("plugin-serves");
  EXPECT_EQ(reported.verdict, Verdict::warn);
  EXPECT_THAT(reported.found, HasSubstr("another serves"));
  EXPECT_THAT(reported.fix, HasSubstr("/var/lib/ferry/serving.json"));
}

// A scan of its own begins to count when it begins to look.
TEST_F(KubeVirtTest, NamesWhatThePluginHasSeenGoBad) {
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  kernel.file(counter, "TOTAL_ERR_FATAL 3\n");
  const auto plugin_saw = [&](std::uint64_t binding) {
    const std::vector<api::FatalErrorsOf> errors = {
        {.function = "0000:01:00.0", .since = 2, .binding = binding}};
    kernel.file(api::kAdvertisedFile,
                api::advertised_resources_text(advertised_resources({}, {}, {}, 0, errors)));
  };
  plugin_saw(0);
  EXPECT_THAT(check("can-be-given", "0000:01:00.0").found, HasSubstr("1 fatal PCIe error"));
  EXPECT_THAT(check("can-be-given", "0000:01:00.0").fix, HasSubstr("bound anew"));
  plugin_saw(1);
  const auto checks = kubevirt_checks(kernel, rules);
  EXPECT_EQ(std::ranges::find(checks, "can-be-given", &Check::id), checks.end()) << "it was bound anew";
  kernel.remove("proc/1");
  EXPECT_THAT(check("can-be-given", "0000:01:00.0").found, HasSubstr("1 fatal PCIe error"))
      << "of a captured host nobody can tell";
}

// Its GPU is on no vfio driver, and is not to be.
TEST_F(KubeVirtTest, DoesNotAdviseToGiveAGpuWithVgpusAway) {
  add_mdev();
  kernel.file("dev/vfio/211", "");
  kernel.file("sys/devices/pci0000:00/0000:81:00.0/aer_dev_fatal", "TOTAL_ERR_FATAL 3\n");
  const std::vector<api::FatalErrorsOf> errors = {{.function = "0000:81:00.0", .since = 2}};
  kernel.file(api::kAdvertisedFile,
              api::advertised_resources_text(advertised_resources({}, {}, {}, 0, errors)));
  const auto reported = check("can-be-given", kUuid);
  EXPECT_THAT(reported.found, HasSubstr("its GPU had 1 fatal PCIe error"));
  EXPECT_THAT(reported.fix, testing::AllOf(HasSubstr("loaded anew"), testing::Not(HasSubstr("ferry vfio"))));
}

TEST_F(KubeVirtTest, TakesTheRunningPluginsWordForWhatIsUnfit) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  add_gpu("0000:03:00.0", 17);
  add_gpu("0000:04:00.0", 18);
  add_gpu("0000:05:00.0", 19);
  add_gpu("0000:06:00.0", 20, "nouveau");
  const auto device = [](const char* id, std::uint32_t group, bool allocated, std::string reason) {
    return api::AdvertisedDevice{.resource = "r",
                                 .id = id,
                                 .iommu_group = group,
                                 .allocated = allocated,
                                 .healthy = false,
                                 .reason = std::move(reason)};
  };
  api::AdvertisedResources advertised{
      .devices = {device("0000:01:00.0", 15, false, "its CDI file cannot be written"),
                  device("0000:02:00.0", 16, false, "open"), device("0000:03:00.0", 17, true, "a pod has it"),
                  device("0000:04:00.0", 18, false, ""), device("0000:05:00.0", 19, false, ""),
                  device("0000:06:00.0", 20, false, "no driver is bound to it")},
      .resources = {{.name = "r"}}};
  advertised.devices[1].awaits_release = true;
  advertised.devices[3].healthy = true;
  kernel.file(api::kAdvertisedFile, api::advertised_resources_text(advertised));
  const auto reported = [&] {
    std::vector<std::string> subjects;
    for (const Check& one : kubevirt_checks(kernel, rules))
      if (one.id == "can-be-given") subjects.push_back(one.subject);
    return subjects;
  };
  EXPECT_THAT(reported(), testing::IsEmpty()) << "who wrote that is gone";
  const auto plugin = must(LivenessLock::announce(kernel, api::kPluginLiveness));
  EXPECT_THAT(reported(), testing::ElementsAre("0000:01:00.0"));
  EXPECT_EQ(check("can-be-given", "0000:01:00.0").found, "its CDI file cannot be written");
  add_gpu("0000:01:00.1", 15, "nouveau");
  EXPECT_THAT(reported(), testing::ElementsAre("0000:01:00.0")) << "once, by what the host shows";
  EXPECT_THAT(check("can-be-given", "0000:01:00.0").found, HasSubstr("0000:01:00.1 (GPU, driver nouveau)"));
}

TEST_F(KubeVirtTest, SaysThatTheGateIommufdKeepsVmsFromANodeWithoutIt) {
  EXPECT_EQ(check("iommufd-for-vms").verdict, Verdict::pass) << "nobody says that the gate is on";
  EXPECT_THAT(check("iommufd-for-vms").found, HasSubstr("no VM starts on this node"));
  kernel.file("var/lib/kubelet/device-plugins/kubevirt-iommufd.sock", "");
  EXPECT_EQ(check("iommufd-for-vms").verdict, Verdict::warn);
  EXPECT_THAT(check("iommufd-for-vms").fix, HasSubstr("modprobe iommufd"));
  kernel.file("dev/iommu", "");
  EXPECT_EQ(check("iommufd-for-vms").verdict, Verdict::pass);
}

TEST_F(KubeVirtTest, LeavesVirtualFunctionsOfOthersAlone) {
  kernel.add_function(
      {.address = "0000:17:00.0", .ids = "10de:26b9", .group = 20, .driver = "nvidia", .totalvfs = 2});
  kernel.enable_vfs("0000:17:00.0", 2);
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nvidia/unbind", "0000:17:00.4"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/devices/0000:17:00.4/driver_override", "vfio-pci"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers_probe", "0000:17:00.4"));
  ASSERT_EQ(must(Scanner(kernel, rules).scan()).not_advertised.size(), 1U);
  const auto checks = kubevirt_checks(kernel, rules);
  EXPECT_EQ(std::ranges::find(checks, "can-be-given", &Check::id), checks.end());
}

// Its locks are nobody's, and its plugin's file is as it was.
TEST_F(KubeVirtTest, SaysOfACapturedHostWhatItSaidOnIt) {
  add_mdev();
  kernel.file("var/lib/kubelet/device-plugins/kubevirt-NVIDIA_A40-8Q.sock", "");
  EXPECT_EQ(check("kubevirt-leaves-them").verdict, Verdict::warn);
  kernel.remove("proc/1");
  EXPECT_EQ(check("kubevirt-leaves-them").verdict, Verdict::warn) << "no plugin of ours has been there";
  kernel.file(api::kAdvertisedFile,
              R"({"version": 2, "resources": [{"name": "nvidia.com/NVIDIA_A40-8Q", "devices": []}]})");
  EXPECT_EQ(check("kubevirt-leaves-them").verdict, Verdict::pass);
  EXPECT_EQ(check("kubelet-reads").verdict, Verdict::pass);
}

// Else the types of a full GPU, which does not name them itself, would have no name.
TEST_F(KubeVirtTest, LooksForVgpusAsThePluginDoes) {
  const auto checks = kubevirt_checks(kernel, rules,
                                      [](const HostFs&, const vfio::Inventory&,
                                         const vfio::AcceleratorRules&) -> Result<mdev::VgpuInventory> {
                                        return fail(Errc::failed, "asked as the plugin asks");
                                      });
  const auto advertised = std::ranges::find(checks, "resources-advertised", &Check::id);
  ASSERT_NE(advertised, checks.end());
  EXPECT_THAT(advertised->found, HasSubstr("asked as the plugin asks"));
}

TEST_F(KubeVirtTest, NamesWhatIsInTheWay) {
  EXPECT_EQ(check("kubelet-directory").verdict, Verdict::fail);
  EXPECT_EQ(check("kubelet-listens").verdict, Verdict::warn);
  EXPECT_EQ(check("pod-resources").verdict, Verdict::warn);
  EXPECT_EQ(check("resources-advertised").verdict, Verdict::fail);
  kernel.file("var/lib/kubelet/device-plugins/kubelet.sock", "");
  EXPECT_EQ(check("pod-resources").verdict, Verdict::fail);
  EXPECT_THAT(check("pod-resources").found, HasSubstr("no device is allocated"));
  kernel.file("var/lib/kubelet/device-plugins/kubevirt-nvidia.com-GH100_H100_SXM5_80GB.sock", "");
  const Check rival = check("kubevirt-leaves-them");
  EXPECT_EQ(rival.verdict, Verdict::warn);
  EXPECT_THAT(rival.found, HasSubstr("kubevirt-nvidia.com-GH100"));
  EXPECT_THAT(rival.fix, HasSubstr("externalResourceProvider"));
  kernel.file("var/lib/kubelet/device-plugins/kubevirt-amd.com-744c.sock", "");
  EXPECT_THAT(check("kubevirt-leaves-them").found, Not(HasSubstr("amd.com"))) << "no such GPU is here";
  rules.accelerators.of_other_vendors = {vfio::PciClass::vga};
  rules.domains = {{0x1002, "amd.com"}};
  add_gpu("0000:03:00.0", 17, "vfio-pci", "1002:744c");
  EXPECT_THAT(check("kubevirt-leaves-them").found, HasSubstr("kubevirt-amd.com-744c.sock"));
  add_gpu("0000:01:00.0", 15, "vfio-pci", "10de:24fa");
  EXPECT_EQ(check("names-as-usual").verdict, Verdict::warn);
  add_gpu("0000:01:00.1", 15, "nouveau");
  EXPECT_THAT(check("can-be-given", "0000:01:00.0").found, HasSubstr("0000:01:00.1 (GPU, driver nouveau)"));
  add_gpu("0000:02:00.0", 16);
  kernel.remove("dev/vfio/16");
  EXPECT_THAT(check("can-be-given", "0000:02:00.0").found, HasSubstr("/dev/vfio/16"));
}

TEST_F(KubeVirtTest, SaysHowToHelpEachDeviceThatCannotBeGiven) {
  EXPECT_THAT(check("resources-advertised").found, HasSubstr("no GPU is on a vfio driver"));
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:01:00.1", 15, "nouveau");
  add_gpu("10000:02:00.0", 16);
  add_gpu("0000:03:00.0", 17);
  kernel.remove("sys/devices/pci0000:00/0000:03:00.0/iommu_group");
  add_mdev();
  kernel.remove(std::string("sys/devices/pci0000:00/0000:81:00.0/") + kUuid + "/iommu_group");
  const Check advertised = check("resources-advertised");
  EXPECT_EQ(advertised.verdict, Verdict::fail);
  EXPECT_EQ(advertised.found, "nothing: 4 devices for VMs cannot be given");
  EXPECT_THAT(advertised.fix, HasSubstr("can-be-given"));
  add_gpu("0000:04:00.0", 18);
  kernel.remove("dev/vfio/18");
  const std::map<std::string, std::string> fixes = {
      {"0000:01:00.0", "name all of them: --device 0000:01:00.0 --device 0000:01:00.1"},
      {"10000:02:00.0", "switch Intel's VMD off"},
      {"0000:03:00.0", "another slot"},
      {"0000:04:00.0", "devtmpfs"},
      {kUuid, "`ferry vgpu delete`, then `apply`"}};
  for (const auto& [device, fix] : fixes)
    EXPECT_THAT(check("can-be-given", device).fix, HasSubstr(fix)) << device;
}

}  // namespace
}  // namespace ferry::plugin
