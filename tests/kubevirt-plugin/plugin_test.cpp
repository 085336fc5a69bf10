// SPDX-License-Identifier: Apache-2.0
// The whole plugin against a kubelet stand-in, over real unix sockets.
#include <condition_variable>
#include <fcntl.h>
#include <future>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/stat.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/plugin_fixture.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/support/inotify_limits.h"
#include "tests/support/log_of.h"

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

class PluginTest : public plugin_test::Fixture {
 protected:
  /// How often a kubelet has been asked what its pods have.
  class ListCount {
   public:
    void add() {
      const std::scoped_lock lock(mutex_);
      ++lists_;
      added_.notify_all();
    }
    bool are(int desired) {
      std::unique_lock lock(mutex_);
      return added_.wait_for(lock, kPatience, [&] { return lists_ >= desired; });
    }
    /// Waits for so many more that what follows from one is long published.
    bool become_many() {
      constexpr int kMany = 100;
      std::unique_lock lock(mutex_);
      return added_.wait_for(lock, kPatience, [this, desired = lists_ + kMany] { return lists_ >= desired; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable added_;
    int lists_ = 0;
  };

  static std::vector<std::string> paths(const standin::Answer& answer) {
    std::vector<std::string> found;
    found.reserve(answer.devices.size());
    for (const auto& device : answer.devices) found.push_back(device.host_path);
    return found;
  }

  /// What an offered file says that is left behind.
  void predecessor_gave(const std::string& gpu) {
    kernel.file(options.advertised_file,
                fmt::format(R"({{"resources": [{{"name": "{}", "env": "A", "devices": [
                                                      {{"id": "{}", "allocated": true}}]}}]}})",
                            kGpu, gpu));
  }
  /// With a vGPU that is a virtual function, 0000:17:00.4.
  void start_with_virtual_function(test::FakeVendorVfio& vendor) {
    kernel.add_function(
        {.address = "0000:17:00.0", .ids = "10de:26b9", .group = 20, .driver = "nvidia", .totalvfs = 2});
    kernel.enable_vfs("0000:17:00.0", 2);
    vendor.add_gpu("0000:17:00.0");
    vendor.set("0000:17:00.4", "1153");
    kernel.file("dev/vfio/100", "");
    start_both();
    ASSERT_TRUE(allocatable(kType, 1));
  }
  static constexpr const char* kType = "nvidia.com/NVIDIA_L40S-12Q";

  /// One that has heard of no pod yet. `lists` must outlive it.
  std::unique_ptr<standin::Kubelet> make_ignorant_kubelet(ListCount& lists) const {
    return std::make_unique<standin::Kubelet>(
        directory(),
        standin::Options{.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path(),
                         .on_list = [&lists] { lists.add(); }});
  }
};

TEST_F(PluginTest, RegistersAndListsWhatTheHostOffers) {
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
  ASSERT_TRUE(offered_becomes([](const auto& file) {
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
  std::promise<void> let_go;
  std::shared_future<void> released = let_go.get_future().share();

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
  scans->let_go.set_value();
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
  scans->let_go.set_value();
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
  scans->let_go.set_value();
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
  scans->let_go.set_value();
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
  ASSERT_TRUE(offered_becomes([](const auto& file) {
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
  ASSERT_TRUE(offered_becomes([](const auto& file) {
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
  EXPECT_TRUE(offered_becomes([](const auto& file) {
    return file["resources"][0]["devices"][0]["reason"] ==
           "2 fatal PCIe errors since it was advertised (/sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal)";
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

TEST_F(PluginTest, OffersToKataWithCdiSpecifications) {
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

// Kata's library refuses all files for it.
TEST_F(PluginTest, NamesACdiFileOfAnotherProgramThatKeepsKataFromAll) {
  const test::LogOf log;
  options.rules.kata = true;
  kernel.file("etc/cdi/other.yaml", "cdiVersion: 1.0.0\nkind: aa/bb\n");
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable("nvidia.com/pgpu", 1));
  EXPECT_TRUE(stop()) << "before the log";
  EXPECT_THAT(log.text(), HasSubstr("[warning] /etc/cdi/other.yaml: line 1: cdiVersion is \"1.0.0\""));
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

// -- who holds what --

TEST_F(PluginTest, LearnsOfAReleaseWhileAGroupIsHeldBackAndAsksNobodyOtherwise) {
  std::atomic<int> lists = 0;
  serve_pods([&] { lists.fetch_add(1); });
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  // A hundred calls take far longer than the period.
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}, true).ok());
  }
  EXPECT_LE(lists.load(), 3) << "at the start, when the kubelet came, and once it had shown its pods";
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1)) << "its pod is gone";
  EXPECT_GE(lists.load(), 3);
  EXPECT_TRUE(kubelet->allocate(kAudio, {"0000:01:00.1"}).ok());
}

TEST_F(PluginTest, GivesNothingOutBeforeItKnowsWhatItsPredecessorGave) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  serve_pods([left] { left.wait_for(kPatience); });
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  auto answer =
      std::async(std::launch::async, [&] { return kubelet->allocate(kAudio, {"0000:01:00.1"}, true); });
  EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
  leave.set_value();
  EXPECT_THAT(answer.get().error, HasSubstr("0000:01:00.0 of " + std::string(kGpu) + " is allocated"));
  EXPECT_TRUE(allocatable(kAudio, 0)) << "the pod's group is held back";
}

TEST_F(PluginTest, HoldsWhatItsPredecessorGaveUnderOtherNames) {
  serve_pods([] {});
  options.rules.names.aliases = {{"10de:2684", "renamed"}};
  options.pod_resources.period = 1ms;
  kernel.file(options.advertised_file, R"({"resources": [{"name": "nvidia.com/pgpu", "env": ""}]})");
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  add_gpu("0000:03:00.0", 17);
  // Its companion, by Kata's number, and by the name that it has without the alias.
  kubelet->remember({.name = "one", .resource = kAudio, .ids = {"0000:01:00.1"}});
  kubelet->remember({.name = "two", .resource = "nvidia.com/pgpu", .ids = {"16"}});
  start_both();
  ASSERT_TRUE(allocatable("nvidia.com/renamed", 1));
  EXPECT_EQ(kubelet->allocate("nvidia.com/renamed", {"0000:01:00.0"}, true).status, 9);
  EXPECT_EQ(kubelet->allocate("nvidia.com/renamed", {"0000:02:00.0"}, true).status, 9);
  EXPECT_TRUE(kubelet->allocate("nvidia.com/renamed", {"0000:03:00.0"}).ok());
  kubelet->release({"0000:01:00.1"});
  kubelet->release({"16"});
  EXPECT_TRUE(allocatable("nvidia.com/renamed", 3)) << "their pods are gone";
}

TEST_F(PluginTest, SaysThatNobodyTellsWhatIsHeldAndGoesOnWhenSomebodyDoes) {
  const UniqueFd nobody_listens = bind_pods_socket();
  kubelet = std::make_unique<standin::Kubelet>(directory());
  options.pod_resources.patience = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_THAT(kubelet->allocate(kGpu, {"0000:01:00.0"}).error,
              testing::AllOf(HasSubstr("who holds devices is not known"),
                             HasSubstr("; see whether the kubelet answers")));
  kubelet->stop();
  kubelet = make_kubelet();
  ASSERT_TRUE(kubelet->start());
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool given = false;
  while (!given && std::chrono::steady_clock::now() < end)
    given = kubelet->allocate(kGpu, {"0000:01:00.0"}).ok();
  EXPECT_TRUE(given);
}

TEST_F(PluginTest, GivesNothingOutWhereAKubeletIsThatDoesNotSayWhatIsHeld) {
  kubelet = std::make_unique<standin::Kubelet>(directory());
  options.pod_resources.patience = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, {"0000:01:00.0"});
  EXPECT_THAT(answer.error, HasSubstr("there is no /pods/kubelet.sock, though a kubelet is there"));
}

TEST_F(PluginTest, SaysWhichPodHasADeviceWhereThatIsAskedFor) {
  options.pod_resources.period = 1ms;
  options.pod_resources.names = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  EXPECT_TRUE(offered_becomes([](const nlohmann::json& file) {
    if (!file.is_object()) return false;  // not there yet
    const nlohmann::json::json_pointer place("/resources/0/devices/0/pod");
    const auto pod = file.value(place, nlohmann::json());
    return pod.is_string() && pod.get<std::string>().find('/') != std::string::npos;
  })) << advertised();
}

TEST_F(PluginTest, SaysThatAPodHasGoneWherePodsAreNamed) {
  options.pod_resources.period = 1ms;
  options.pod_resources.between_looks = 1ms;
  options.pod_resources.names = true;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  const auto is_allocated = [](bool desired) {
    return [desired](const nlohmann::json& file) {
      return file.is_object() && file["resources"][0]["devices"][0]["allocated"] == desired &&
             file["resources"][0]["devices"][0]["pod"].is_string() == desired;
    };
  };
  EXPECT_TRUE(offered_becomes(is_allocated(true))) << advertised();
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(offered_becomes(is_allocated(false))) << advertised();
}

// A pod of seconds, of a kubelet that has come a moment before: it knows the pods of its own allocations.
TEST_F(PluginTest, KnowsThatAPodHasEndedWhileItsKubeletSettles) {
  options.pod_resources.period = 1ms;
  options.pod_resources.settling = std::chrono::hours(1);
  options.rules.companions = Companions::devices;
  for (const unsigned card : {1U, 2U}) {
    add_gpu("0000:0" + std::to_string(card) + ":00.0", 14 + card);
    add_audio("0000:0" + std::to_string(card) + ":00.1", 14 + card);
  }
  predecessor_gave("0000:01:00.0");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  ASSERT_TRUE(offered_becomes([](const auto& file) {
    return file.is_object() && std::ranges::all_of(file["resources"], [](const auto& resource) {
             return resource["registered"] == true;
           });
  })) << "the plugin has seen that the kubelet is there";
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->release({"0000:02:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1));
  EXPECT_THAT(advertised().dump(), HasSubstr("held back: 0000:01:00.0 of its IOMMU group 15"))
      << "the pod of an earlier allocation may not be listed yet";
}

TEST_F(PluginTest, TakesNothingForReleasedWhenNobodySaysWhatIsHeld) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 0));
  fs::remove(directory() / "kubelet.sock");
  fs::remove(kernel.root() / options.pod_resources.socket);
  add_gpu("0000:02:00.0", 16);
  ASSERT_TRUE(allocatable(kGpu, 2)) << "far longer than the period";
  EXPECT_EQ(kubelet->allocate(kAudio, {"0000:01:00.1"}, true).status, 9) << "FAILED_PRECONDITION";
}

// A kubelet lists pods as soon as it listens, before it knows them all and long before it reads our lists.
TEST_F(PluginTest, TakesNothingForReleasedFromAKubeletThatHasNotComeYet) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->stop();

  constexpr int kManyLists = 100;  // far longer than it takes to publish a release
  std::atomic<int> lists = 0;
  std::promise<void> many;
  kernel.directory("elsewhere");
  standin::Kubelet young(
      kernel.root() / "elsewhere",
      {.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path(), .on_list = [&] {
         if (lists.fetch_add(1) == kManyLists) many.set_value();
       }});
  ASSERT_TRUE(young.start());
  ASSERT_EQ(many.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(advertised().dump(), testing::HasSubstr("held back: 0000:01:00.0 of its IOMMU group 15"));
}

// Without the API server a kubelet serves, and lists none of the pods whose devices its checkpoint has.
TEST_F(PluginTest, TakesNothingForReleasedFromAKubeletThatDoesNotKnowItsPodsYet) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(allocatable(kAudio, 0));
  kubelet->stop();

  ListCount lists;
  kubelet = make_ignorant_kubelet(lists);
  ASSERT_TRUE(kubelet->start());
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(lists.become_many());
  EXPECT_TRUE(allocatable(kAudio, 0));
  EXPECT_FALSE(kubelet->allocate(kAudio, {"0000:01:00.1"}, true).ok());

  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  kubelet->remember({.name = "ferry", .resource = {}, .ids = {}});
  ASSERT_TRUE(lists.become_many());
  EXPECT_TRUE(allocatable(kAudio, 0));
  kubelet->release({"0000:01:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1)) << "its pod is gone";
}

TEST_F(PluginTest, AsksAKubeletUntilItKnowsItsPodsThoughNothingIsAllocated) {
  options.pod_resources.period = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  ListCount lists;
  kubelet = make_ignorant_kubelet(lists);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(lists.become_many());
  kubelet->remember({.name = "ferry", .resource = {}, .ids = {}});
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  EXPECT_TRUE(allocatable(kAudio, 0));
}

// After a boot a pod keeps what the checkpoint has for it without an Allocate, and the next asks before the
// kubelet is looked at again.
TEST_F(PluginTest, AsksAKubeletThatDoesNotKnowItsPodsYetBeforeEachAllocate) {
  options.pod_resources.period = std::chrono::hours(1);
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  ListCount lists;
  kubelet = make_ignorant_kubelet(lists);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 1));
  ASSERT_TRUE(lists.are(2)) << "at the start, and when the kubelet came";
  EXPECT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  kubelet->remember({.name = "vm", .resource = kGpu, .ids = {"0000:01:00.0"}});
  const auto answer = kubelet->allocate(kAudio, {"0000:01:00.1"}, true);
  EXPECT_EQ(answer.status, 9) << "FAILED_PRECONDITION";
  EXPECT_THAT(answer.error, HasSubstr("0000:01:00.0 of " + std::string(kGpu) + " is allocated"));
}

TEST_F(PluginTest, RefusesWhatItCannotAskAKubeletAboutThatDoesNotKnowItsPods) {
  options.pod_resources.period = std::chrono::hours(1);
  options.pod_resources.patience = 200ms;
  std::atomic<bool> hangs = false;
  std::promise<void> leave;
  ListCount lists;
  kubelet = std::make_unique<standin::Kubelet>(
      directory(),
      standin::Options{.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path(),
                       .on_list = [&, left = leave.get_future().share()] {
                         lists.add();
                         if (hangs) left.wait_for(kPatience);
                       }});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(lists.are(2));
  hangs = true;
  EXPECT_THAT(kubelet->allocate(kGpu, {"0000:01:00.0"}).error, HasSubstr("who holds devices is not known: "));
  hangs = false;
  leave.set_value();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool given = false;
  while (!given && std::chrono::steady_clock::now() < end)
    given = kubelet->allocate(kGpu, {"0000:01:00.0"}).ok();
  EXPECT_TRUE(given) << "it answers again";
}

TEST_F(PluginTest, BelievesInTheEndThatNothingIsHeldWhereItIsNoPod) {
  options.pod_resources.period = 1ms;
  options.pod_resources.own_pod = {};
  options.pod_resources.doubt = 50ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  predecessor_gave("0000:01:00.0");
  start_both();
  EXPECT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
}

TEST_F(PluginTest, BelievesAKubeletThatGivesADeviceOutWhereItIsNoPod) {
  options.pod_resources.period = 1ms;
  options.pod_resources.own_pod = {};
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  add_gpu("0000:02:00.0", 16);
  predecessor_gave("0000:01:00.0");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 2) && allocatable(kAudio, 0));
  // What it gives out counts from where the plugin has seen that it is there.
  ASSERT_TRUE(offered_becomes([](const auto& file) {
    return file.is_object() && std::ranges::all_of(file["resources"], [](const auto& resource) {
             return resource["registered"] == true;
           });
  }));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:02:00.0"}).ok());
  kubelet->release({"0000:02:00.0"});
  EXPECT_TRUE(allocatable(kAudio, 1));
}

TEST_F(PluginTest, BelievesAKubeletThatNeverListsItsPodOnlyWhereItListsADevice) {
  options.pod_resources.period = 1ms;
  options.pod_resources.own_pod = "default/of-another-name";
  options.pod_resources.doubt = 1ms;
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15);
  add_audio("0000:01:00.1", 15);
  predecessor_gave("0000:01:00.0");
  ListCount lists;
  kubelet = make_ignorant_kubelet(lists);
  kubelet->remember({.name = "static", .resource = {}, .ids = {}});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 0));
  ASSERT_TRUE(lists.become_many());
  EXPECT_TRUE(allocatable(kAudio, 0));
  kubelet->remember({.name = "other", .resource = "example.com/nic", .ids = {"eth1"}});
  EXPECT_TRUE(allocatable(kAudio, 1));
}

TEST_F(PluginTest, EndsWhileAnAllocateWaitsToKnowTheHolders) {
  std::promise<void> leave;
  serve_pods([left = leave.get_future().share()] { left.wait_for(kPatience); });
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  auto answer = std::async(std::launch::async, [&] { return kubelet->allocate(kGpu, 1); });
  EXPECT_EQ(answer.wait_for(20ms), std::future_status::timeout);
  EXPECT_TRUE(stop());
  EXPECT_FALSE(answer.get().ok());
  leave.set_value();
}

// A socket that could not be made when a device came is made when the next news of the host comes.
TEST_F(PluginTest, OffersAResourceWhoseSocketCouldNotBeMadeAtFirst) {
  add_gpu("0000:01:00.0", 10);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  kernel.directory(options.kubelet_directory / kH100Socket);
  add_gpu("0000:81:00.0", 30, "10de:2330");
  ASSERT_TRUE(offered_becomes([](const nlohmann::json& file) {
    return file.contains("resources") && file.dump().find("GH100") != std::string::npos;
  }));
  EXPECT_EQ(registrations(kH100), 0U);
  fs::remove(directory() / kH100Socket);
  kernel.file("dev/vfio/news", "");
  EXPECT_TRUE(allocatable(kH100, 1));
}

TEST_F(PluginTest, OffersTheOthersWhereOneSocketCannotBeMade) {
  options.after_failure = 1ms;
  const auto blocked = options.kubelet_directory / kGpuSocket;
  add_gpu("0000:01:00.0", 10);
  add_gpu("0000:81:00.0", 30, "10de:2330");
  kernel.file(blocked, "mine");
  start_both();
  EXPECT_TRUE(allocatable(kH100, 1));
  EXPECT_EQ(registrations(kGpu), 0U);
  fs::remove(kernel.root() / blocked);
  EXPECT_TRUE(allocatable(kGpu, 1));
}

TEST_F(PluginTest, RegistersAgainWithARestartedKubelet) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1));
  for (int i = 0; i < 3; ++i) {
    kubelet->stop();
    kubelet = make_kubelet();
    ASSERT_TRUE(kubelet->start());  // removes the sockets first, as the kubelet does
    ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1)) << "restart " << i;
  }
}

// A starting kubelet removes our socket, and makes its own: we may come to it before we hear that it has.
TEST_F(PluginTest, RegistersOnceWithAKubeletWhoseSocketIsHeardOfLate) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  for (const unsigned round : {1U, 2U}) {  // in the first one our call may not be over
    fs::rename(directory() / "kubelet.sock", directory() / "elsewhere.sock");
    fs::rename(directory() / "elsewhere.sock", directory() / "kubelet.sock");
    add_gpu(fmt::format("0000:0{}:00.0", 1 + round), 15 + round, "10de:2330");  // seen a moment later
    kernel.file(fmt::format("dev/vfio/news{}", round), "");
    ASSERT_TRUE(allocatable(kH100, round));
    EXPECT_EQ(registrations(kGpu), 1U);
  }
}

TEST_F(PluginTest, WaitsForAKubeletThatIsNotThereYet) {
  add_gpu("0000:01:00.0", 15);
  start();
  ASSERT_TRUE(offered_becomes([](const auto& file) { return file.is_object(); }));
  ASSERT_TRUE(kubelet->start());
  EXPECT_TRUE(allocatable(kGpu, 1));
}

TEST_F(PluginTest, RegistersAgainWhenTheKubeletDropsItAndNothingChangesOnDisk) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  kubelet->drop(kGpu);
  EXPECT_TRUE(calls_become(2));
  EXPECT_TRUE(allocatable(kGpu, 1));
}

TEST_F(PluginTest, MakesItsSocketAnewAndRegistersWhenItVanishes) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  fs::remove(directory() / kGpuSocket);
  EXPECT_TRUE(calls_become(2));
  EXPECT_TRUE(fs::exists(directory() / kGpuSocket));
  EXPECT_TRUE(allocatable(kGpu, 1));
}

TEST_F(PluginTest, LivesWithAKubeletThatRefusesASecondRegistration) {
  kubelet = make_kubelet(standin::Options{.refuse_second_registration = true});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  fs::remove(directory() / kGpuSocket);
  ASSERT_TRUE(calls_become(2));
  EXPECT_THAT(kubelet->registrations().back().error, HasSubstr("connected already"));
  EXPECT_TRUE(kubelet->allocate(kGpu, 1).ok());
  EXPECT_TRUE(kubelet->resources().at(kGpu).connected);
}

TEST_F(PluginTest, MindsNoOtherFilesInTheDirectory) {
  add_gpu("0000:01:00.0", 15);
  kernel.file(options.kubelet_directory / "DEPRECATION", "read me");
  kernel.file(options.kubelet_directory / "kubelet_internal_checkpoint", "{}");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_TRUE(fs::exists(directory() / "DEPRECATION"));
  EXPECT_EQ(stop().has_value(), true);
  EXPECT_TRUE(fs::exists(directory() / "DEPRECATION"));
  EXPECT_TRUE(fs::exists(directory() / "kubelet_internal_checkpoint"));
}

TEST_F(PluginTest, ReplacesASocketThatWasLeftBehind) {
  const auto path = (directory() / kGpuSocket).string();
  const UniqueFd left(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(left.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  add_gpu("0000:01:00.0", 15);
  ASSERT_TRUE(fs::exists(path));
  start();
  ASSERT_TRUE(offered_becomes([](const auto& file) { return file.is_object(); }));
  ASSERT_EQ(::bind(UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0)).get(),
                   reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            -1);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(PluginTest, LeavesAFileAloneThatIsNoSocket) {
  add_gpu("0000:01:00.0", 15);
  kernel.file(options.kubelet_directory / kGpuSocket, "mine");
  const auto ended = run_plugin(kernel, options, {});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, std::errc::file_exists);
  EXPECT_THAT(ended.error().message, HasSubstr(kGpuSocket));
  EXPECT_EQ(kernel.read_file(options.kubelet_directory / kGpuSocket).value_or(""), "mine");
}

TEST_F(PluginTest, EndsItsStreamsAndLeavesNoSocket) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1));
  EXPECT_TRUE(stop());
  EXPECT_TRUE(eventually([](const auto& resources) {
    return !resources.at(kGpu).connected && !resources.at(kH100).connected &&
           resources.at(kGpu).allocatable() == 0;
  }));
  for (const auto& [name, resource] : kubelet->resources())
    EXPECT_TRUE(resource.ended_in_order) << name << ": to the kubelet its connection broke";
  for (const auto& entry : fs::directory_iterator(directory()))
    EXPECT_EQ(entry.path().filename(), "kubelet.sock");
}

TEST_F(PluginTest, MakesNoPodNewByItsEnd) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, {"0000:01:00.0"}).ok());
  ASSERT_TRUE(offered_becomes([](const auto& file) {
    return file.is_object() && file["resources"][0]["devices"][0]["allocated"] == true;
  }));
  const auto path = kernel.root() / options.advertised_file;
  const auto long_ago = fs::last_write_time(path) - std::chrono::hours(1);
  fs::last_write_time(path, long_ago);
  const auto before = advertised();
  EXPECT_TRUE(stop());
  // A list that was on its way may have named the pod.
  if (advertised() == before) {
    EXPECT_EQ(fs::last_write_time(path), long_ago);
  }
}

TEST_F(PluginTest, YieldsItsSocketToASuccessorAndLeavesItThere) {
  add_gpu("0000:01:00.0", 15);
  start();
  ASSERT_TRUE(offered_becomes([](const auto& file) { return file.is_object(); }));
  struct stat mine {};
  ASSERT_EQ(::stat((directory() / kGpuSocket).c_str(), &mine), 0);

  PluginOptions successor_options = options;
  successor_options.advertised_file = "run/ferry/plugin/successor.json";
  const std::jthread successor(
      [&](const std::stop_token& token) { EXPECT_TRUE(run_plugin(kernel, successor_options, token)); });
  ASSERT_TRUE(offered_becomes([&](const auto&) { return kernel.exists(successor_options.advertised_file); }));
  struct stat theirs {};
  ASSERT_EQ(::stat((directory() / kGpuSocket).c_str(), &theirs), 0);
  ASSERT_NE(mine.st_ino, theirs.st_ino);

  EXPECT_TRUE(stop());
  struct stat left {};
  ASSERT_EQ(::stat((directory() / kGpuSocket).c_str(), &left), 0);
  EXPECT_EQ(left.st_ino, theirs.st_ino);
  ASSERT_TRUE(kubelet->start());
  EXPECT_TRUE(allocatable(kGpu, 1)) << "the kubelet removed the socket, and the successor made it anew";
}

TEST_F(PluginTest, EndsWhileTheKubeletDoesNotAnswer) {
  std::promise<void> entered;
  std::promise<void> leave;
  kubelet = make_kubelet(standin::Options{.dial_limit = 100ms, .on_register = [&] {
                                            entered.set_value();
                                            leave.get_future().wait_for(kPatience);
                                          }});
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_EQ(entered.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(stop());
  leave.set_value();
}

TEST_F(PluginTest, SaysThatTheKubeletsDirectoryIsMissing) {
  options.kubelet_directory = "var/lib/kubelet/device-plugins";
  const auto ended = run_plugin(kernel, options, {});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::not_found);
  EXPECT_EQ(ended.error().message, "the kubelet's directory " +
                                       (kernel.root() / "var/lib/kubelet/device-plugins").string() +
                                       " does not exist");
  EXPECT_THAT(ended.error().hint, HasSubstr("kubelet"));
  EXPECT_FALSE(kernel.exists("run/ferry/plugin/advertised.json"));
}

TEST_F(PluginTest, WaitsForAHostThatCannotBeReadYet) {
  options.after_failure = 1ms;
  int scans = 0;
  options.read_vgpus = [&](const HostFs& host, const vfio::Inventory& inventory,
                           const vfio::AcceleratorRules& rules) {
    return ++scans < 3 ? Result<mdev::VgpuInventory>(fail(Errc::malformed_host, "no memory for it"))
                       : mdev::scan_vgpus(host, inventory, rules);
  };
  add_gpu("0000:01:00.0", 15);
  start_both();
  EXPECT_TRUE(allocatable(kGpu, 1));
  EXPECT_TRUE(stop());
}

TEST_F(PluginTest, EndsWhereNoFirstScanComesAbout) {
  options.after_failure = 1ms;
  options.read_vgpus = [](const HostFs&, const vfio::Inventory&, const vfio::AcceleratorRules&) {
    return Result<mdev::VgpuInventory>(fail(Errc::malformed_host, "no memory for it"));
  };
  const auto ended = run_plugin(kernel, options, {});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().message, "no memory for it");
}

TEST_F(PluginTest, SaysThatTheHostHasNoPciBus) {
  kernel.remove("sys/bus/pci/devices");
  const auto ended = run_plugin(kernel, options, {});
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("/sys/bus/pci/devices"));
  EXPECT_FALSE(kernel.exists("run/ferry/plugin/advertised.json"));
}

TEST_F(PluginTest, EndsWhenTheKubeletsDirectoryGoesAway) {
  add_gpu("0000:01:00.0", 15);
  start();
  ASSERT_TRUE(offered_becomes([](const auto& file) { return file.is_object(); }));
  fs::remove_all(directory());
  ASSERT_EQ(result.wait_for(kPatience), std::future_status::ready);
  const auto ended = stop();
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("has gone away"));
}

// With no socket of ours in it nothing tells of that: an open directory that is removed raises no event.
TEST_F(PluginTest, EndsWhenItHasSomethingToServeInADirectoryThatWasMadeAnew) {
  start();
  ASSERT_TRUE(offered_becomes([](const auto& file) { return file.is_object(); }));
  fs::remove_all(directory());
  fs::create_directories(directory());
  add_gpu("0000:01:00.0", 15);
  kernel.file("dev/vfio/news", "");
  ASSERT_EQ(result.wait_for(kPatience), std::future_status::ready);
  const auto ended = stop();
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("has gone away"));
}

TEST_F(PluginTest, RunsWithNothingToOffer) {
  start_both();
  ASSERT_TRUE(
      offered_becomes([](const auto& file) { return file.is_object() && file["resources"].empty(); }));
  EXPECT_TRUE(stop());
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
}

TEST_F(PluginTest, PublishesWhatItOffersAndWhatIsAllocated) {
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15, "10de:2684", 0);
  add_audio("0000:01:00.1", 15);
  kernel.add_function({.address = "0000:05:00.0", .ids = "10de:2684", .group = 18, .driver = "vfio-pci"});
  kernel.add_function({.address = "0000:05:00.1", .ids = "10de:2684", .group = 18, .driver = "nouveau"});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  ASSERT_TRUE(offered_becomes([](const auto& file) {
    return file.is_object() && file["resources"][0]["registered"] == true &&
           file["resources"][1]["registered"] == true &&
           file["resources"][0]["devices"][0]["allocated"] == true;
  }));
  const auto file = advertised();
  EXPECT_EQ(file["version"], 2);
  EXPECT_EQ(file["resources"][0]["name"], kGpu);
  EXPECT_EQ(file["resources"][0]["env"], "PCI_RESOURCE_NVIDIA_COM_AD102_GEFORCE_RTX_4090");
  const auto& gpu = file["resources"][0]["devices"][0];
  EXPECT_EQ(gpu["id"], "0000:01:00.0");
  EXPECT_EQ(gpu["healthy"], true);
  EXPECT_EQ(gpu["numa_node"], 0);
  EXPECT_EQ(gpu["iommu_group"], 15);
  const auto& audio = file["resources"][1]["devices"][0];
  EXPECT_EQ(audio["healthy"], false);
  EXPECT_EQ(audio["reason"], "held back: 0000:01:00.0 of its IOMMU group 15 is allocated");
  EXPECT_EQ(audio["numa_node"], nullptr);
  EXPECT_EQ(file["not_advertised"][0]["id"], "0000:05:00.0");
}

// The kubelet's next call may be on its way, and what writes the file would be beside it.
TEST_F(PluginTest, WritesWhatIsAllocatedAMomentLater) {
  constexpr auto kMoment = 20ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  ASSERT_TRUE(offered_becomes(
      [](const auto& file) { return file.is_object() && file["resources"][0]["registered"] == true; }));
  std::this_thread::sleep_for(3 * kMoment);  // a file that has just been written rests for one anyway
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  ASSERT_TRUE(offered_becomes([](const auto& file) {
    return file.is_object() && file["resources"][0]["devices"][0]["allocated"] == true;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kMoment);
}

}  // namespace
}  // namespace ferry::plugin
