// SPDX-License-Identifier: Apache-2.0
// The whole plugin against a kubelet stand-in, over real unix sockets.
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/whole_plugin.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/inotify_limits.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;
using namespace plugin_test;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
namespace fs = std::filesystem;

TEST_F(PluginTest, RegistersAndListsWhatTheHostHas) {
  add_gpu("0000:01:00.0", 15, "10de:2684", 1);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto calls = kubelet->registrations();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].version, "v1beta1");
  EXPECT_EQ(calls[0].endpoint, kGpuSocket);
  EXPECT_TRUE(calls[0].preferred_in_request);
  const auto resource = kubelet->resources().at(kGpu);
  EXPECT_TRUE(resource.preferred_allocation) << "both places say the same";
  EXPECT_FALSE(resource.pre_start_required);
  const auto& device = resource.devices.at("0000:01:00.0");
  EXPECT_TRUE(device.has_topology);
  EXPECT_THAT(device.numa_nodes, ElementsAre(1));
}

TEST_F(PluginTest, ServesWhereTheKernelHasNoInotifyInstanceLeft) {
  const test::NoMoreOf limit(test::Inotify::instance);
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_TRUE(kubelet->allocate(kGpu, 1).ok());
}

// A reader of a FIFO waits for a writer that never comes.
TEST_F(PluginTest, ServesWhereAFifoIsInThePlaceOfHostdsFile) {
  kernel.directory("run/ferry");
  ASSERT_EQ(::mkfifo((kernel.root() / "run/ferry/status.json").c_str(), 0600), 0);
  add_gpu("0000:01:00.0", 15);
  start_both();
  EXPECT_TRUE(allocatable(kGpu, 1));
}

TEST_F(PluginTest, LeavesTheTopologyOutWhereTheNodeIsUnknown) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_FALSE(kubelet->resources().at(kGpu).devices.at("0000:01:00.0").has_topology);
}

TEST_F(PluginTest, ServesEachModelAndVgpuTypeOnASocketOfItsOwn) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  add_vgpu();
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1) && allocatable(kVgpu, 1));
  EXPECT_EQ(kubelet->resources().at(kVgpu).endpoint, "kubevirt-NVIDIA_A40-8Q.sock");
  EXPECT_EQ(kubelet->registrations().size(), 3U);
}

TEST_F(PluginTest, ServesModelsOfOneNameAsOneResource) {
  add_gpu("0000:01:00.0", 15, "10de:20b1");
  add_gpu("0000:02:00.0", 16, "10de:20f1");
  start_both();
  ASSERT_TRUE(allocatable("nvidia.com/GA100_A100_PCIE_40GB", 2));
  EXPECT_EQ(kubelet->registrations().size(), 1U);
}

TEST_F(PluginTest, ServesModelsOfTwoVendorsWithOneAlias) {
  options.rules.accelerators.of_other_vendors = {vfio::PciClass::vga};
  options.rules.domains = {{0x1002, "amd.com"}};
  options.rules.names.aliases = {{"1002:744c", "gpu"}, {"10de:2684", "gpu"}};
  for (const unsigned group : {1U, 2U}) add_gpu("0000:0" + std::to_string(group) + ":00.0", group);
  add_gpu("0000:03:00.0", 3, "1002:744c");
  start_both();
  EXPECT_TRUE(allocatable("nvidia.com/gpu", 2) && allocatable("amd.com/gpu", 1));
}

TEST_F(PluginTest, AllocatesAGpu) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(answer.envs,
              ElementsAre(Pair("PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090", "0000:01:00.0")));
  ASSERT_EQ(answer.devices.size(), 2U);
  for (const auto& device : answer.devices) {
    EXPECT_EQ(device.host_path, device.container_path);
    EXPECT_EQ(device.permissions, "mrw");
  }
  EXPECT_EQ(answer.devices[0].host_path, "/dev/vfio/vfio");
  EXPECT_EQ(answer.devices[1].host_path, "/dev/vfio/15");
  EXPECT_THAT(answer.mounts, IsEmpty());
  EXPECT_THAT(answer.annotations, IsEmpty());
  EXPECT_THAT(answer.cdi_devices, IsEmpty());
}

TEST_F(PluginTest, AllocatesAVgpuWithTheNodesOfItsGroupAlone) {
  add_vgpu();
  start_both();
  ASSERT_TRUE(allocatable(kVgpu, 1));
  const auto answer = kubelet->allocate(kVgpu, 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(answer.envs, ElementsAre(Pair("MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-8Q", kUuid)));
  ASSERT_EQ(answer.devices.size(), 2U);
  EXPECT_EQ(answer.devices[0].host_path, "/dev/vfio/vfio");
  EXPECT_EQ(answer.devices[1].host_path, "/dev/vfio/211");
}

// Virtual functions and GPU share their IDs; the type alone has a name.
TEST_F(PluginTest, AllocatesAVgpuThatIsAVirtualFunction) {
  test::FakeVendorVfio vendor(kernel);
  start_with_virtual_function(vendor);
  const auto answer = kubelet->allocate(kType, 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(answer.envs, ElementsAre(Pair("PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-12Q", "0000:17:00.4")));
  EXPECT_THAT(paths(answer), ElementsAre("/dev/vfio/vfio", "/dev/vfio/100"));
}

TEST_F(PluginTest, ListsNoVirtualFunctionThatIsNoVgpuAnyMore) {
  test::FakeVendorVfio vendor(kernel);
  start_with_virtual_function(vendor);
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nvidia/unbind", "0000:17:00.4"));
  kernel.remove("sys/bus/pci/devices/0000:17:00.4/nvidia");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/devices/0000:17:00.4/driver_override", "vfio-pci"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers_probe", "0000:17:00.4"));
  kernel.file("dev/vfio/news", "");
  EXPECT_TRUE(eventually([](const auto& resources) { return resources.at(kType).capacity() == 0; }))
      << "nor is it Unhealthy";
}

TEST_F(PluginTest, AllocatesTheFunctionsOwnNodesWhereTheHostHasIommufd) {
  add_gpu("0000:01:00.0", 15);
  kernel.file("dev/vfio/devices/vfio0", "");
  kernel.directory("sys/class/misc/iommu");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(paths(answer),
              ElementsAre("/dev/vfio/devices/vfio0", "/dev/vfio/vfio", "/dev/vfio/15", "/dev/iommu"));
}

// Memory of a Grace processor: to the pod alone that has all of the GPUs that reach it.
TEST_F(PluginTest, AllocatesTheMemoryNodeWithAllOfItsGpus) {
  add_gpu("0009:01:00.0", 15, "10de:2342", 0);
  add_gpu("0019:01:00.0", 16, "10de:2342", 1);
  kernel.file("sys/class/egm/egm4/gpu_devices", "0009:01:00.0 0019:01:00.0\n");
  kernel.file("sys/class/egm/egm4/dev", "511:4\n");
  start_both();
  constexpr const char* kGrace = "nvidia.com/GH100_GH200_120GB___480GB";
  ASSERT_TRUE(allocatable(kGrace, 2));
  const auto one = kubelet->allocate(kGrace, 1);
  ASSERT_TRUE(one.ok()) << one.error;
  EXPECT_THAT(paths(one), Not(Contains("/dev/egm4")));
  kubelet->release(one.ids);
  const auto both = kubelet->allocate(kGrace, 2);
  ASSERT_TRUE(both.ok()) << both.error;
  EXPECT_THAT(paths(both), Contains("/dev/egm4"));
}

TEST_F(PluginTest, AnswersAnUnknownIdWithAnErrorThatNamesIt) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, {"0000:ff:00.0"}, true);
  EXPECT_EQ(answer.status, 5) << "NOT_FOUND";
  EXPECT_THAT(answer.error, HasSubstr("0000:ff:00.0: no such device is advertised"));
  EXPECT_TRUE(kubelet->allocate(kGpu, 1).ok());
}

TEST_F(PluginTest, PrefersDevicesOfOneNode) {
  add_gpu("0000:01:00.0", 15, "10de:2684", 0);
  add_gpu("0000:02:00.0", 16, "10de:2684", 1);
  add_gpu("0000:03:00.0", 17, "10de:2684", 1);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 3));
  const auto answer = kubelet->allocate(kGpu, 2);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(answer.ids, ElementsAre("0000:02:00.0", "0000:03:00.0"));
  EXPECT_EQ(kubelet->prefer(kGpu, {"0000:01:00.0"}, {"0000:02:00.0", "0000:03:00.0"}, 1).status, 3)
      << "INVALID_ARGUMENT";
}

TEST_F(PluginTest, NeverGivesTwoPodsFunctionsOfOneGroup) {
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  EXPECT_TRUE(allocatable(kAudio, 0)) << "the stream tells of it";
  const auto second = kubelet->allocate(kAudio, {"0000:01:00.1"}, true);
  EXPECT_EQ(second.status, 9) << "FAILED_PRECONDITION";
  EXPECT_THAT(second.error, HasSubstr("0000:01:00.0 of " + std::string(kGpu) + " is allocated"));
  EXPECT_TRUE(allocatable(kGpu, 2)) << "the allocated one stays Healthy, the other group's is free";
}

TEST_F(PluginTest, GivesAPodTheCompanionsOfItsOwnGpus) {
  options.rules.companions = Companions::places;
  for (const unsigned card : {1U, 2U, 3U}) {
    add_gpu("0000:0" + std::to_string(card) + ":00.0", 14 + card);
    add_audio("0000:0" + std::to_string(card) + ":00.1", 14 + card);
  }
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 3) && allocatable(kAudio, 3));
  const std::string audio = "PCI_RESOURCE_NVIDIA_COM_AD102_HIGH_DEFINITION_AUDIO_CONTROLLER";
  // What the kubelet makes one container of, whichever it asks for first.
  const auto places = kubelet->allocate(kAudio, 2);
  ASSERT_TRUE(places.ok()) << places.error;
  EXPECT_THAT(places.ids, ElementsAre("place-0000:01:00.1", "place-0000:02:00.1"));
  EXPECT_THAT(places.envs, IsEmpty()) << "it would be taken for other cards' audio";
  EXPECT_THAT(places.devices, IsEmpty());
  const auto gpus = kubelet->allocate(kGpu, {"0000:03:00.0", "0000:02:00.0"});
  ASSERT_TRUE(gpus.ok()) << gpus.error;
  EXPECT_THAT(gpus.envs,
              ElementsAre(Pair("PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090", "0000:03:00.0,0000:02:00.0"),
                          Pair(audio, "0000:03:00.1,0000:02:00.1")));
  ASSERT_EQ(gpus.devices.size(), 3U);
  EXPECT_EQ(gpus.devices[1].host_path, "/dev/vfio/17");
  EXPECT_EQ(gpus.devices[2].host_path, "/dev/vfio/16");

  // One pod's place is another's GPU.
  const auto other = kubelet->allocate(kGpu, 1);
  ASSERT_TRUE(other.ok()) << other.error;
  EXPECT_EQ(other.envs.at(audio), "0000:01:00.1");
  EXPECT_TRUE(kubelet->allocate(kAudio, 1).ok());
  EXPECT_EQ(kubelet->allocate(kAudio, {"0000:01:00.1"}, true).status, 5) << "NOT_FOUND";
}

TEST_F(PluginTest, KnowsPlacesThatItsPredecessorGave) {
  options.rules.companions = Companions::places;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  add_audio("0000:02:00.1", 16);
  serve_pods([] {});
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  kubelet->remember({.name = "vm", .resource = kAudio, .ids = {"place-0000:02:00.1"}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 2));
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
    return file.is_object() && file.dump().find("\"allocated\":true") != std::string::npos;
  }));
  const auto file = advertised();
  for (const auto& resource : file["resources"]) {
    if (resource["name"] != kAudio) continue;
    EXPECT_EQ(resource["devices"].size(), 0U);
    EXPECT_EQ(resource["places"].size(), 2U);
  }
  const auto gpu = kubelet->allocate(kGpu, 1);
  ASSERT_TRUE(gpu.ok()) << gpu.error;
  EXPECT_EQ(gpu.envs.at("PCI_RESOURCE_NVIDIA_COM_AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"), "0000:02:00.1");
  EXPECT_TRUE(kubelet->allocate(kAudio, {"place-0000:01:00.1"}).ok());
  EXPECT_EQ(kubelet->allocate(kGpu, {"0000:01:00.0"}).status, -1) << "the kubelet's own account";
}

TEST_F(PluginTest, GivesNoPlaceAndNoGpuThatGoesToKata) {
  options.rules.companions = Companions::places;
  options.rules.kata = true;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1) && allocatable("nvidia.com/pgpu", 1));
  const auto answer = kubelet->allocate("nvidia.com/pgpu", 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(answer.envs, IsEmpty());
  EXPECT_TRUE(allocatable(kGpu, 0) && allocatable(kAudio, 0));
  EXPECT_FALSE(kernel.exists("var/run/cdi/nvidia.com-AD102_HIGH_DEFINITION_AUDIO_CONTROLLER.yaml"));
}

TEST_F(PluginTest, GivesNoDeviceThatHasLeftVfioSinceItWasListed) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  // The node stays in this fake's dev/vfio, so that nothing but Allocate can notice.
  kernel.link("sys/devices/pci0000:00/0000:01:00.0/driver", "../../../bus/pci/drivers/nouveau");
  const auto answer = kubelet->allocate(kGpu, 1);
  EXPECT_THAT(answer.error, HasSubstr("its driver is nouveau now and was vfio-pci"));
  EXPECT_TRUE(eventually([](const auto& resources) { return resources.at(kGpu).allocatable() == 0; }));
}

// By a file that nobody writes to. The thread that serves the kubelet is held up, and another one goes on.
TEST_F(PluginTest, GoesOnAndEndsThoughTheHostHoldsUpAnAllocate) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  add_gpu("0000:03:00.0", 17);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 3));
  std::vector<fs::path> configs;
  for (const std::string address : {"0000:01:00.0", "0000:02:00.0"}) {
    const auto& config = configs.emplace_back(kernel.root() / "sys/bus/pci/devices" / address / "config");
    fs::remove(config);
    ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
    const auto answer = kubelet->allocate(kGpu, {address}, true);
    EXPECT_EQ(answer.status, 9) << "FAILED_PRECONDITION";
    EXPECT_THAT(answer.error, HasSubstr(address + ": the host does not answer"));
  }
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:03:00.0"}, true).ok());
  EXPECT_TRUE(allocatable(kGpu, 1)) << "lists are sent as ever";
  EXPECT_TRUE(stop()) << "it waits for nobody whom the kernel holds";
  for (const auto& config : configs)
    EXPECT_TRUE(UniqueFd(::open(config.c_str(), O_WRONLY | O_CLOEXEC)).valid());  // they are let go
}

/// Scans that hang, as where a driver does, from one of them on until they are let go; they may outlive the
/// test's own frame.
struct HangingScans {
  explicit HangingScans(int first_that_hangs) : first(first_that_hangs) {}
  const int first;
  std::atomic<int> count = 0;
  std::promise<void> unblock;
  std::shared_future<void> released = unblock.get_future().share();

  static ReadVgpus reader(const std::shared_ptr<HangingScans>& scans) {
    return
        [scans](const HostFs& host, const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules) {
          if (++scans->count >= scans->first) scans->released.wait();
          return mdev::scan_vgpus(host, inventory, rules);
        };
  }
  bool hang() const {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (count < first && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    return count >= first;
  }
};

TEST_F(PluginTest, GoesOnThoughAScanHangs) {
  const auto scans = std::make_shared<HangingScans>(2);
  options.read_vgpus = HangingScans::reader(scans);
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  add_gpu("0000:02:00.0", 16);
  ASSERT_TRUE(scans->hang());
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).ok());
  kubelet->stop();
  ASSERT_TRUE(kubelet->start());
  EXPECT_TRUE(allocatable(kGpu, 1)) << "a kubelet that has started again is served";
  add_gpu("0000:03:00.0", 17);  // after the scan that hangs has listed the bus
  scans->unblock.set_value();
  EXPECT_TRUE(allocatable(kGpu, 3));
}

TEST_F(PluginTest, EndsThoughItsFirstScanHangsAndLeavesWhatItsPredecessorWrote) {
  const auto scans = std::make_shared<HangingScans>(1);
  options.read_vgpus = HangingScans::reader(scans);
  const std::string written = R"({"resources":[]} of a predecessor)";
  kernel.file(options.advertised_file, written);
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(scans->hang());
  EXPECT_TRUE(stop());
  EXPECT_EQ(kernel.read_file(options.advertised_file).value_or(""), written);
  scans->unblock.set_value();
}

TEST_F(PluginTest, ListsALossBeforeTheNextScan) {
  const auto scans = std::make_shared<HangingScans>(2);
  options.read_vgpus = HangingScans::reader(scans);
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  kernel.file("dev/vfio/news", "");
  ASSERT_TRUE(scans->hang());
  kernel.remove("dev/vfio/16");
  EXPECT_TRUE(allocatable(kGpu, 1));
  scans->unblock.set_value();
}

TEST_F(PluginTest, ListsTheLossOfAFunctionsOwnNodeBeforeTheNextScan) {
  const auto scans = std::make_shared<HangingScans>(2);
  options.read_vgpus = HangingScans::reader(scans);
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  kernel.file("dev/vfio/devices/vfio0", "");
  kernel.file("dev/vfio/devices/vfio1", "");
  kernel.directory("sys/class/misc/iommu");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  kernel.file("dev/vfio/news", "");
  ASSERT_TRUE(scans->hang());
  kernel.remove("dev/vfio/devices/vfio1");
  EXPECT_TRUE(allocatable(kGpu, 1));
  scans->unblock.set_value();
}

// The kernel makes /dev/vfio/devices with the first node in it, so that it may come after the first scan.
TEST_F(PluginTest, HearsOfAFunctionsOwnNodeThoughItsFolderCameLater) {
  add_gpu("0000:01:00.0", 15);
  kernel.remove("dev/vfio/15");
  kernel.directory("sys/class/misc/iommu");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 0));
  kernel.file("dev/vfio/devices/vfio0", "");
  EXPECT_TRUE(allocatable(kGpu, 1));
  kernel.remove("dev/vfio/devices/vfio0");
  EXPECT_TRUE(allocatable(kGpu, 0));
}

TEST_F(PluginTest, ListsWhatComesAndGoes) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  add_gpu("0000:02:00.0", 16);
  EXPECT_TRUE(allocatable(kGpu, 2));
  add_gpu("0000:03:00.0", 17, "10de:2330");
  EXPECT_TRUE(allocatable(kH100, 1)) << "a model of its own registers";
  kernel.remove_function("0000:02:00.0");
  kernel.remove("dev/vfio/16");
  EXPECT_TRUE(allocatable(kGpu, 1));
  EXPECT_EQ(registrations(kGpu), 1U) << "the list changed over the stream that was there";
}

TEST_F(PluginTest, ListsUnhealthyWhatHasTurnedBadAndHealthyWhatIsMended) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  kernel.file("dev/vfio/news", "");
  ASSERT_TRUE(allocatable(kGpu, 0));
  EXPECT_EQ(kubelet->resources().at(kGpu).capacity(), 1U) << "listed, and not to be had";
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
    return file["resources"][0]["devices"][0]["reason"] == "no driver is bound to it";
  }));
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  kernel.file("dev/vfio/more-news", "");
  EXPECT_TRUE(allocatable(kGpu, 1));
}

// The kernel counts them, and tells nobody.
TEST_F(PluginTest, SeesFatalErrorsByItselfAndThatTheFunctionWasBoundAnew) {
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  kernel.file(counter, "TOTAL_ERR_FATAL 0\n");
  options.rescan = 20ms;
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  kernel.file(counter, "TOTAL_ERR_FATAL 1\n");
  EXPECT_TRUE(allocatable(kGpu, 0));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
    return file["resources"][0]["devices"][0]["reason"] == "no driver is bound to it";
  }));
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  EXPECT_TRUE(allocatable(kGpu, 1));
}

// An update of the plugin mends no GPU.
TEST_F(PluginTest, KnowsWhichGpusItsPredecessorFoundWithFatalErrors) {
  const std::string counter = "sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal";
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  kernel.file(counter, "TOTAL_ERR_FATAL 1\n");
  options.rescan = 20ms;
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2)) << "that was before its time";
  kernel.file(counter, "TOTAL_ERR_FATAL 3\n");
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(stop());
  start();
  EXPECT_TRUE(allocatable(kGpu, 1));
  EXPECT_TRUE(advertised_becomes([](const auto& file) {
    return file["resources"][0]["devices"][0]["reason"] ==
           "0000:01:00.0 had 2 fatal PCIe errors since it was advertised "
           "(/sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal)";
  }));
}

TEST_F(PluginTest, WithdrawsAGpuThatGoesBackToTheHostOnceNobodyHoldsIt) {
  options.pod_resources.period = 20ms;
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  for (const char* const gpu : {"0000:01:00.0", "0000:02:00.0"}) {
    ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", gpu));
    kernel.file(std::string("sys/devices/pci0000:00/") + gpu + "/driver_override", "nvidia\n");
    ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/nvidia/bind", gpu));
  }
  kernel.file("dev/vfio/news", "");
  EXPECT_TRUE(eventually([](const auto& resources) { return resources.at(kGpu).capacity() == 1; }));
  EXPECT_TRUE(kubelet->resources().at(kGpu).devices.contains("0000:01:00.0")) << "held";
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(eventually([](const auto& resources) { return resources.at(kGpu).capacity() == 0; }));
}

TEST_F(PluginTest, AdvertisesToKataWithCdiSpecifications) {
  options.rules.kata = true;
  options.rules.kubevirt = false;
  options.cdi_names = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable("nvidia.com/pgpu", 1));
  EXPECT_EQ(kubelet->resources().at("nvidia.com/pgpu").endpoint, "sandbox-pgpu.sock");
  EXPECT_THAT(kernel.read_file("var/run/cdi/nvidia.com-pgpu.yaml").value_or(""),
              HasSubstr("kind: nvidia.com/pgpu\ndevices:\n- name: \"15\"\n"));
  const auto answer = kubelet->allocate("nvidia.com/pgpu", 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  EXPECT_THAT(answer.cdi_devices, ElementsAre("nvidia.com/pgpu=15"));
  EXPECT_THAT(answer.devices, IsEmpty());
  EXPECT_THAT(answer.envs, IsEmpty());
}

// udev sets a node's mode a moment after the kernel has made the node.
TEST_F(PluginTest, GivesKataTheModeThatUdevSetsAfterANodeWasRead) {
  options.rules.kata = true;
  options.rules.kubevirt = false;
  add_gpu("0000:01:00.0", 15);
  const auto set_mode = [this](unsigned mode) {
    fs::permissions(kernel.root() / "dev/vfio/15", fs::perms(mode));
  };
  const auto said = [this] { return kernel.read_file("var/run/cdi/nvidia.com-pgpu.yaml").value_or(""); };
  set_mode(0600);
  start_both();
  ASSERT_TRUE(allocatable("nvidia.com/pgpu", 1));
  ASSERT_THAT(said(), HasSubstr("path: /dev/vfio/15\n      fileMode: 384\n"));
  const auto watch = DirectoryWatch::open(kernel.root() / "var/run/cdi");
  ASSERT_TRUE(watch);
  set_mode(0660);
  pollfd written{.fd = watch->fd(), .events = POLLIN, .revents = 0};
  while (said().find("path: /dev/vfio/15\n      fileMode: 432\n") == std::string::npos) {
    ASSERT_EQ(::poll(&written, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
    watch->read();
  }
}

TEST_F(PluginTest, GivesKataNothingThatItWouldNotFind) {
  options.rules.kata = true;
  kernel.directory("var/run/cdi/nvidia.com-pgpu.yaml");
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable("nvidia.com/pgpu", 0));
  EXPECT_THAT(kubelet->allocate("nvidia.com/pgpu", {"15"}, true).error,
              HasSubstr("without its CDI specification: "));
  kernel.remove("var/run/cdi/nvidia.com-pgpu.yaml");
  kernel.file("dev/vfio/news", "");
  EXPECT_TRUE(allocatable("nvidia.com/pgpu", 1));
}

TEST_F(PluginTest, GivesAGpuToKubeVirtOrToKata) {
  options.rules.kata = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable("nvidia.com/pgpu", 1));
  const auto answer = kubelet->allocate("nvidia.com/pgpu", 1);
  ASSERT_TRUE(answer.ok()) << answer.error;
  ASSERT_EQ(answer.devices.size(), 2U);
  EXPECT_EQ(answer.devices[1].host_path, "/dev/vfio/15");
  EXPECT_TRUE(allocatable(kGpu, 0));
  EXPECT_EQ(kubelet->allocate(kGpu, {"0000:01:00.0"}, true).status, 9) << "FAILED_PRECONDITION";
}

}  // namespace
}  // namespace ferry::plugin
