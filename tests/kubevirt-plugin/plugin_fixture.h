// SPDX-License-Identifier: Apache-2.0
// The plugin on a fake host, and a stand-in for the kubelet, for the tests of both together.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/pinned.h"
#include "hostfs/directory_watch.h"
#include "kubevirt-plugin/plugin.h"
#include "tests/kubevirt-plugin/nvidia_rules.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/kata_cdi_check.h"
#include "tests/support/kubelet_standin/standin.h"

namespace ferry::plugin_test {

using namespace std::chrono_literals;

inline constexpr auto kPatience = 20s;
inline constexpr const char* kGpu = "nvidia.com/AD102_GEFORCE_RTX_4090";
inline constexpr const char* kGpuSocket = "kubevirt-AD102_GEFORCE_RTX_4090.sock";
inline constexpr const char* kAudio = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER";
inline constexpr const char* kH100 = "nvidia.com/GH100_H100_SXM5_80GB";
inline constexpr const char* kH100Socket = "kubevirt-GH100_H100_SXM5_80GB.sock";
inline constexpr const char* kVgpu = "nvidia.com/NVIDIA_A40-8Q";
inline constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";

class Fixture : public testing::Test {
 protected:
  /// Ends the plugin and the kubelet before the locals that the kubelet's callbacks use. Declare it after
  /// them.
  class EndFirst : Pinned {
   public:
    explicit EndFirst(Fixture& test) : test_(test) {}
    ~EndFirst() {
      EXPECT_TRUE(test_.stop());
      test_.kubelet->stop();
    }

   private:
    Fixture& test_;
  };

  Fixture() {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nvidia"});
    kernel.add_driver({.name = "nouveau", .ids = {"class:0300"}});
    kernel.file("dev/vfio/vfio", "");
    kernel.directory(options.kubelet_directory);
  }
  void TearDown() override {
    EXPECT_TRUE(stop());
    test::expect_kata_reads_our_cdi_files(kernel.root());
  }

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

  /// A kubelet that lists its pods too.
  std::unique_ptr<standin::Kubelet> make_kubelet(standin::Options with = {}) const {
    with.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path();
    with.on_fault = [](const std::string& fault) { ADD_FAILURE() << fault; };
    auto made = std::make_unique<standin::Kubelet>(directory(), std::move(with));
    made->remember({.name = "ferry", .resource = {}, .ids = {}});
    return made;
  }
  /// It calls `on_list` each time before it does.
  void serve_pods(std::function<void()> on_list) { kubelet = make_kubelet({.on_list = std::move(on_list)}); }
  /// As a kubelet leaves it that ended.
  UniqueFd bind_pods_socket() {
    kernel.directory(options.pod_resources.socket.parent_path());
    return bind_socket(kernel.root() / options.pod_resources.socket);
  }
  static sockaddr_un address_of(const std::filesystem::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }
  static UniqueFd bind_socket(const std::filesystem::path& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = address_of(path);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static UniqueFd connect_to(const std::filesystem::path& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = address_of(path);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  std::filesystem::path directory() const { return kernel.root() / options.kubelet_directory; }
  void start() {
    std::packaged_task<Result<>(std::stop_token)> task(
        [this](const std::stop_token& token) { return plugin::run_plugin(kernel, options, token); });
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
  nlohmann::json advertised() const {
    const auto text = kernel.read_file(options.advertised_file);
    return text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  }
  /// Waits for a change of advertised.json until it is as expected.
  bool advertised_becomes(const std::function<bool(const nlohmann::json&)>& desired) const {
    const auto file = kernel.root() / options.advertised_file;
    std::filesystem::create_directories(file.parent_path());
    const auto watch = DirectoryWatch::open(file.parent_path());
    EXPECT_TRUE(watch);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!desired(advertised())) {
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
  plugin::PluginOptions options = {
      .kubelet_directory = "kubelet",
      .rules = test::nvidia_rules(),
      .advertised_file = "run/ferry/plugin/advertised.json",
      .dropped = 2ms,
      .pod_resources = {.socket = "pods/kubelet.sock", .settling = 0ms, .own_pod = "default/ferry"}};
  std::unique_ptr<standin::Kubelet> kubelet = make_kubelet();
  std::future<Result<>> result;
  std::jthread plugin;
};

}  // namespace ferry::plugin_test
