// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of the whole plugin.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/kubevirt-plugin/plugin_fixture.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::plugin_test {

/// The plugin beside a kubelet that may know nothing yet, and what an earlier plugin left on disk.
class PluginTest : public Fixture {
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

  /// Writes the advertised.json that an earlier plugin has left.
  void predecessor_gave(const std::string& gpu) {
    kernel.file(options.advertised_file,
                fmt::format(R"({{"resources": [{{"name": "{}", "env": "A", "devices": [
                                                      {{"id": "{}", "allocated": true}}]}}]}})",
                            kGpu, gpu));
  }
  /// Starts the plugin on a host with a vGPU that is a virtual function, 0000:17:00.4.
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

  /// A kubelet that knows no pod yet. `lists` must outlive it.
  std::unique_ptr<standin::Kubelet> make_ignorant_kubelet(ListCount& lists) const {
    return std::make_unique<standin::Kubelet>(
        directory(),
        standin::Options{.pod_resources = (kernel.root() / options.pod_resources.socket).parent_path(),
                         .on_list = [&lists] { lists.add(); }});
  }
};

}  // namespace ferry::plugin_test
