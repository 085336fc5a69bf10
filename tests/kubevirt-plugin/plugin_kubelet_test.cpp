// SPDX-License-Identifier: Apache-2.0
// The whole plugin and its kubelet: registrations, sockets, starts and ends of both.
#include <chrono>
#include <filesystem>
#include <future>
#include <stop_token>
#include <string>
#include <sys/stat.h>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/kubevirt-plugin/whole_plugin.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;
using namespace plugin_test;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

// A socket that could not be made when a device came is made when the next news of the host comes.
TEST_F(PluginTest, AdvertisesAResourceWhoseSocketCouldNotBeMadeAtFirst) {
  add_gpu("0000:01:00.0", 10);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  kernel.directory(options.kubelet_directory / kH100Socket);
  add_gpu("0000:81:00.0", 30, "10de:2330");
  ASSERT_TRUE(advertised_becomes([](const nlohmann::json& file) {
    return file.contains("resources") && file.dump().find("GH100") != std::string::npos;
  }));
  EXPECT_EQ(registrations(kH100), 0U);
  fs::remove(directory() / kH100Socket);
  kernel.file("dev/vfio/news", "");
  EXPECT_TRUE(allocatable(kH100, 1));
}

TEST_F(PluginTest, AdvertisesTheOthersWhereOneSocketCannotBeMade) {
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
  ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
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

// The kubelet marks the resource as ended only after it has closed the stream.
TEST_F(PluginTest, LetsTheKubeletEndAResourceBeforeItRegistersItAgain) {
  options.dropped = 300ms;
  add_gpu("0000:01:00.0", 15);
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1));
  const auto begin = std::chrono::steady_clock::now();
  kubelet->drop(kGpu);
  EXPECT_TRUE(calls_become(2));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, options.dropped);
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
  ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
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
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
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
  ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
  struct stat mine {};
  ASSERT_EQ(::stat((directory() / kGpuSocket).c_str(), &mine), 0);

  PluginOptions successor_options = options;
  successor_options.advertised_file = "run/ferry/plugin/successor.json";
  const std::jthread successor(
      [&](const std::stop_token& token) { EXPECT_TRUE(run_plugin(kernel, successor_options, token)); });
  ASSERT_TRUE(
      advertised_becomes([&](const auto&) { return kernel.exists(successor_options.advertised_file); }));
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
  const EndFirst end_first(*this);
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
  ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
  fs::remove_all(directory());
  ASSERT_EQ(result.wait_for(kPatience), std::future_status::ready);
  const auto ended = stop();
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("has gone away"));
}

// The directory has no socket of the plugin, and the kernel raises no event for an open directory that goes.
TEST_F(PluginTest, EndsWhenItHasSomethingToServeInADirectoryThatWasMadeAnew) {
  start();
  ASSERT_TRUE(advertised_becomes([](const auto& file) { return file.is_object(); }));
  fs::remove_all(directory());
  fs::create_directories(directory());
  add_gpu("0000:01:00.0", 15);
  kernel.file("dev/vfio/news", "");
  ASSERT_EQ(result.wait_for(kPatience), std::future_status::ready);
  const auto ended = stop();
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("has gone away"));
}

TEST_F(PluginTest, RunsWithNothingToAdvertise) {
  start_both();
  ASSERT_TRUE(
      advertised_becomes([](const auto& file) { return file.is_object() && file["resources"].empty(); }));
  EXPECT_TRUE(stop());
  EXPECT_THAT(kubelet->registrations(), IsEmpty());
}

TEST_F(PluginTest, PublishesWhatItAdvertisesAndWhatIsAllocated) {
  options.rules.companions = Companions::devices;
  add_gpu("0000:01:00.0", 15, "10de:2684", 0);
  add_audio("0000:01:00.1", 15);
  kernel.add_function({.address = "0000:05:00.0", .ids = "10de:2684", .group = 18, .driver = "vfio-pci"});
  kernel.add_function({.address = "0000:05:00.1", .ids = "10de:2684", .group = 18, .driver = "nouveau"});
  start_both();
  ASSERT_TRUE(allocatable(kGpu, 1) && allocatable(kAudio, 1));
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
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
  ASSERT_TRUE(advertised_becomes(
      [](const auto& file) { return file.is_object() && file["resources"][0]["registered"] == true; }));
  std::this_thread::sleep_for(3 * kMoment);  // a file that has just been written rests for one anyway
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(kubelet->allocate(kGpu, 1).ok());
  ASSERT_TRUE(advertised_becomes([](const auto& file) {
    return file.is_object() && file["resources"][0]["devices"][0]["allocated"] == true;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kMoment);
}

}  // namespace
}  // namespace ferry::plugin
