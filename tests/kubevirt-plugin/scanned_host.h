// SPDX-License-Identifier: Apache-2.0
// The fixture of the scanner's tests: a fake host with GPUs and vGPUs, and a scanner of it.
#pragma once

#include <chrono>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kubevirt-plugin/discovery/scanner.h"
#include "kubevirt-plugin/discovery/sysfs_check.h"
#include "tests/kubevirt-plugin/nvidia_rules.h"
#include "tests/support/fake_kernel.h"

namespace ferry::plugin_test {

/// A host whose devices the plugin's scanner finds.
class ScannerTest : public testing::Test {
 protected:
  static constexpr const char* kUuid = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11";
  static constexpr const char* kOtherUuid = "7be1a8a0-54c2-4a25-8f08-0c1f6f2f9d22";

  ScannerTest() {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nouveau", .ids = {"class:0300"}});
    kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel.add_driver({.name = "pcieport", .ids = {"class:0604"}});
    kernel.add_driver({.name = "nvidia"});
    kernel.file("dev/vfio/vfio", "");
  }

  void add_gpu(const std::string& address, unsigned group, const std::string& driver = "vfio-pci",
               int numa = -1, const std::string& ids = "10de:2684") {
    kernel.add_function(
        {.address = address, .ids = ids, .group = group, .driver = driver, .numa_node = numa});
  }
  void add_audio(const std::string& address, unsigned group, const std::string& driver = "vfio-pci") {
    kernel.add_function(
        {.address = address, .ids = "10de:22ba", .class_code = 0x040300, .group = group, .driver = driver});
  }
  void add_vgpu(const std::string& parent, const std::string& uuid, const std::string& type,
                const std::string& name, unsigned group) {
    const std::string home = "sys/devices/pci0000:00/" + parent + "/";
    kernel.link("sys/class/mdev_bus/" + parent, "../../devices/pci0000:00/" + parent);
    kernel.file(home + "mdev_supported_types/" + type + "/name", name + "\n");
    kernel.file(home + "mdev_supported_types/" + type + "/available_instances", "3\n");
    kernel.link(home + uuid + "/mdev_type", "../mdev_supported_types/" + type);
    kernel.link(home + uuid + "/iommu_group", "../../../../kernel/iommu_groups/" + std::to_string(group));
    kernel.link(home + uuid + "/driver", "../../../../bus/mdev/drivers/vfio_mdev");
    kernel.link("sys/bus/mdev/devices/" + uuid, "../../../devices/pci0000:00/" + parent + "/" + uuid);
    kernel.file("dev/vfio/" + std::to_string(group), "");
  }

  plugin::ResourceSet scan() {
    auto offer = scanner.scan();
    EXPECT_TRUE(offer) << offer.error().message;
    return offer.value_or(plugin::ResourceSet{});
  }
  plugin::ScannedDevice only_device() {
    const auto offer = scan();
    EXPECT_EQ(offer.resources.size(), 1U);
    return offer.resources.at(0).devices.at(0);
  }
  plugin::HostAnswer::Container ask_about(const std::vector<plugin::ScannedDevice>& devices) const {
    const plugin::SysfsCheck check(kernel, rules, std::chrono::seconds(20));
    plugin::HandOut what{.groups = {}, .containers = {devices}};
    for (const auto& device : devices) what.groups.insert(device.iommu_group);
    plugin::HostAnswer answer;
    check.ask(what, [&](plugin::HostAnswer said) { answer = std::move(said); });
    for (const auto& [group, state] : answer.groups) EXPECT_EQ(state, plugin::GroupState::closed) << group;
    return answer.containers.at(0);
  }
  Result<std::vector<std::string>> nodes_now(const plugin::ScannedDevice& device) const {
    return std::move(ask_about({device}).nodes.at(0));
  }
  /// The result of `work` while the process may open one more file, and no second.
  template <typename Work>
  static auto with_one_descriptor(Work work) {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int free = ::dup(STDERR_FILENO);  // the lowest that is
    const int next = ::dup(STDERR_FILENO);
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = limit.rlim_max};
    for (const int fd : {free, next}) ::close(fd);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    auto result = work();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    return result;
  }
  std::string refusal(const plugin::ScannedDevice& device) const {
    const auto now = nodes_now(device);
    return now ? std::string() : now.error().message;
  }
  static std::vector<std::string> resource_names(const plugin::ResourceSet& offer) {
    std::vector<std::string> texts;
    texts.reserve(offer.resources.size());
    for (const auto& resource : offer.resources) texts.push_back(resource.name.text());
    return texts;
  }
  static std::vector<std::string> ids(const plugin::Resource& resource) {
    std::vector<std::string> texts;
    texts.reserve(resource.devices.size());
    for (const auto& device : resource.devices) texts.push_back(device.id);
    return texts;
  }

  test::FakeKernel kernel;
  plugin::ResourceRules rules = test::nvidia_rules();
  plugin::Scanner scanner{kernel, rules};
};

}  // namespace ferry::plugin_test
