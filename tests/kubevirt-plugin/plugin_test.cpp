// SPDX-License-Identifier: Apache-2.0
// The whole plugin against a kubelet stand-in, over real unix sockets.
#include "kubevirt-plugin/plugin.h"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kubevirt-plugin/directory_watch.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/kubelet_standin/standin.h"

namespace ferry {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
namespace fs = std::filesystem;

constexpr auto kPatience = 20s;
constexpr const char* kGpu = "nvidia.com/AD102_GEFORCE_RTX_4090";
constexpr const char* kGpuSocket = "kubevirt-AD102_GEFORCE_RTX_4090.sock";
constexpr const char* kAudio = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER";
constexpr const char* kH100 = "nvidia.com/GH100_H100_SXM5_80GB";
constexpr const char* kVgpu = "nvidia.com/NVIDIA_A40-8Q";
constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";

class PluginTest : public testing::Test {
 protected:
  PluginTest() {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nvidia"});
    kernel.add_driver({.name = "nouveau", .ids = {"class:0300"}});
    kernel.file("dev/vfio/vfio", "");
    kernel.directory(options.kubelet_directory);
  }
  void TearDown() override { EXPECT_TRUE(stop()); }

  void add_gpu(const std::string& address, unsigned group, const std::string& ids = "10de:2684",
               int numa = -1) {
    kernel.add_function(
        {.address = address, .ids = ids, .group = group, .driver = "vfio-pci", .numa_node = numa});
  }
  void add_audio(const std::string& address, unsigned group) {
    kernel.add_function({.address = address,
                         .ids = "10de:22ba",
                         .class_code = 0x040300,
                         .group = group,
                         .driver = "vfio-pci"});
  }
  void add_vgpu() {
    kernel.add_function({.address = "0000:81:00.0", .ids = "10de:2235", .group = 30, .driver = "nvidia"});
    const std::string home = "sys/devices/pci0000:00/0000:81:00.0/";
    kernel.link("sys/class/mdev_bus/0000:81:00.0", "../../devices/pci0000:00/0000:81:00.0");
    kernel.file(home + "mdev_supported_types/nvidia-558/name", "NVIDIA A40-8Q\n");
    kernel.file(home + "mdev_supported_types/nvidia-558/available_instances", "3\n");
    kernel.link(home + kUuid + "/mdev_type", "../mdev_supported_types/nvidia-558");
    kernel.link(home + kUuid + "/iommu_group", "../../../../kernel/iommu_groups/211");
    kernel.link(std::string("sys/bus/mdev/devices/") + kUuid,
                std::string("../../../devices/pci0000:00/0000:81:00.0/") + kUuid);
    kernel.file("dev/vfio/211", "");
  }

  fs::path directory() const { return kernel.root() / options.kubelet_directory; }
  void start() {
    std::packaged_task<Result<>(std::stop_token)> task(
        [this](const std::stop_token& token) { return run_plugin(kernel, options, token); });
    result = task.get_future();
    plugin = std::jthread(std::move(task));
  }
  void start_both() {
    ASSERT_TRUE(kubelet->start());
    start();
  }
  /// What run_plugin() returned.
  Result<> stop() {
    if (!plugin.joinable()) return {};
    plugin.request_stop();
    EXPECT_EQ(result.wait_for(kPatience), std::future_status::ready) << "the plugin does not end";
    plugin.join();
    return result.get();
  }
  bool eventually(const standin::Kubelet::Condition& condition) const {
    return kubelet->wait_for(condition, kPatience);
  }
  bool allocatable(const std::string& resource, std::size_t count) const {
    return eventually([&](const standin::Resources& resources) {
      const auto known = resources.find(resource);
      return known != resources.end() && known->second.connected && known->second.allocatable() == count;
    });
  }
  std::size_t registrations(const std::string& resource) const {
    std::size_t count = 0;
    for (const auto& one : kubelet->registrations())
      if (one.resource == resource && one.error.empty()) ++count;
    return count;
  }
  bool calls_become(std::size_t count) const {
    return eventually([&](const auto&) { return kubelet->registrations().size() >= count; });
  }
  nlohmann::json offered() const {
    const auto text = kernel.read_file(options.offered_file);
    return text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  }
  /// Waits for a change of the offered file until it is as wanted.
  bool offered_becomes(const std::function<bool(const nlohmann::json&)>& wanted) const {
    const auto file = kernel.root() / options.offered_file;
    fs::create_directories(file.parent_path());
    const auto watch = DirectoryWatch::open(file.parent_path());
    EXPECT_TRUE(watch);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!wanted(offered())) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd fd{.fd = watch->fd(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || ::poll(&fd, 1, static_cast<int>(left.count())) == 0) return false;
      watch->read();
    }
    return true;
  }

  test::FakeKernel kernel;
  // A socket's path has room for little more than the kubelet's own directory.
  PluginOptions options = {
      .kubelet_directory = "kubelet", .rules = {}, .offered_file = "run/ferry/offered.json"};
  std::unique_ptr<standin::Kubelet> kubelet = std::make_unique<standin::Kubelet>(directory());
  std::future<Result<>> result;
  std::jthread plugin;
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

TEST_F(PluginTest, AnswersAnUnknownIdWithAnErrorThatNamesIt) {
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto answer = kubelet->allocate(kGpu, {"0000:ff:00.0"}, true);
  EXPECT_EQ(answer.status, 5) << "NOT_FOUND";
  EXPECT_THAT(answer.error, HasSubstr("0000:ff:00.0: no such device is offered"));
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
  options.rules.companions = true;
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

// A socket that could not be made when a device came is made when the next news of the host comes.
TEST_F(PluginTest, OffersAResourceWhoseSocketCouldNotBeMadeAtFirst) {
  add_gpu("0000:01:00.0", 10);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  kernel.directory(options.kubelet_directory / "kubevirt-GH100_H100_SXM5_80GB.sock");
  add_gpu("0000:81:00.0", 30, "10de:2330");
  ASSERT_TRUE(offered_becomes([](const nlohmann::json& file) {
    return file.contains("resources") && file.dump().find("GH100") != std::string::npos;
  }));
  EXPECT_EQ(registrations(kH100), 0U);
  fs::remove(directory() / "kubevirt-GH100_H100_SXM5_80GB.sock");
  kernel.file("dev/vfio/news", "");
  EXPECT_TRUE(allocatable(kH100, 1));
}

TEST_F(PluginTest, RegistersAgainWithARestartedKubelet) {
  add_gpu("0000:01:00.0", 15);
  add_gpu("0000:02:00.0", 16, "10de:2330");
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1));
  for (int i = 0; i < 3; ++i) {
    kubelet->stop();
    kubelet = std::make_unique<standin::Kubelet>(directory());
    ASSERT_TRUE(kubelet->start());  // removes the sockets first, as the kubelet does
    ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kH100, 1)) << "restart " << i;
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
  kubelet =
      std::make_unique<standin::Kubelet>(directory(), standin::Options{.refuse_second_registration = true});
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
  for (const auto& entry : fs::directory_iterator(directory()))
    EXPECT_EQ(entry.path().filename(), "kubelet.sock");
  EXPECT_FALSE(kernel.exists(options.offered_file));
}

TEST_F(PluginTest, YieldsItsSocketToASuccessorAndLeavesItThere) {
  add_gpu("0000:01:00.0", 15);
  start();
  ASSERT_TRUE(offered_becomes([](const auto& file) { return file.is_object(); }));
  struct stat mine {};
  ASSERT_EQ(::stat((directory() / kGpuSocket).c_str(), &mine), 0);

  PluginOptions successor_options = options;
  successor_options.offered_file = "run/ferry/successor.json";
  const std::jthread successor(
      [&](const std::stop_token& token) { EXPECT_TRUE(run_plugin(kernel, successor_options, token)); });
  ASSERT_TRUE(offered_becomes([&](const auto&) { return kernel.exists(successor_options.offered_file); }));
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
  kubelet = std::make_unique<standin::Kubelet>(directory(),
                                               standin::Options{.dial_limit = 100ms, .on_register = [&] {
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
  EXPECT_FALSE(kernel.exists("run/ferry/offered.json"));
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

TEST_F(PluginTest, RunsWithNothingToOffer) {
  start_both();
  ASSERT_TRUE(
      offered_becomes([](const auto& file) { return file.is_object() && file["resources"].empty(); }));
  EXPECT_TRUE(stop());
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
}

TEST_F(PluginTest, PublishesWhatItOffersAndWhatIsAllocated) {
  options.rules.companions = true;
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
  const auto file = offered();
  EXPECT_EQ(file["version"], 1);
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
  EXPECT_EQ(file["not_offered"][0]["id"], "0000:05:00.0");
}

}  // namespace
}  // namespace ferry
