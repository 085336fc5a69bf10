// SPDX-License-Identifier: Apache-2.0
// The whole plugin beside a hostd that sanitizes GPUs between two pods.
#include <chrono>
#include <functional>
#include <future>
#include <string>

#include <gmock/gmock.h>

#include "api/files.h"
#include "tests/kubevirt-plugin/whole_plugin.h"

namespace ferry::plugin {
namespace {

using namespace std::chrono_literals;
using namespace plugin_test;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kOne = "0000:01:00.0";
constexpr const char* kTwo = "0000:02:00.0";

class PluginSanitizingTest : public PluginTest {
 protected:
  /// As hostd writes it. `finding`: why the GPU is kept back; empty: it is not.
  void publish(const std::string& state, unsigned count, const std::string& finding = {}) {
    Json file = {{"version", 2}, {"generation", ++generation_}, {"unavailable", Json::array()}};
    file["sanitized"] = {{{"id", kOne}, {"state", state}, {"count", count}}};
    if (!finding.empty()) file["unfit"] = {{{"id", kOne}, {"driver", "vfio-pci"}, {"reason", finding}}};
    EXPECT_TRUE(kernel.write_file(api::kStatusFile, file.dump()));
  }
  /// Two GPUs, of which hostd sanitizes one, with the count 3; a pod has that one.
  void start_with_one_given(std::chrono::milliseconds period = 1h) {
    options.pod_resources.period = period;
    add_gpu(kOne, 15);
    add_gpu(kTwo, 16);
    publish("available", 3);
    start_both();
    ASSERT_TRUE(allocatable(kGpu, 2));
    ASSERT_TRUE(kubelet->allocate(kGpu, {kOne}).ok());
    publish("in_use", 3);
    ASSERT_TRUE(entry_becomes([](const Json& gpu) { return gpu["allocated"] == true; }));
  }
  bool entry_becomes(const std::function<bool(const Json&)>& desired, const char* id = kOne) const {
    return advertised_becomes([&](const Json& file) {
      if (!file.is_object()) return false;
      for (const auto& resource : file["resources"])
        for (const auto& device : resource["devices"])
          if (device["id"] == id) return desired(device);
      return false;
    });
  }
  bool is_marked_used(unsigned count) const {
    return entry_becomes([&](const Json& gpu) {
      return gpu["allocated"] == false && gpu["healthy"] == false && gpu.value("used_since", 0U) == count;
    });
  }
  bool is_healthy_again() const {
    return entry_becomes(
        [](const Json& gpu) { return gpu["healthy"] == true && !gpu.contains("used_since"); });
  }
  /// The next pod comes. The kubelet has freed the GPU, which the plugin may not have heard.
  std::future<standin::Answer> ask_again() {
    kubelet->release({kOne});
    return std::async(std::launch::async, [this] { return kubelet->allocate(kGpu, {kOne}, true); });
  }

 private:
  unsigned generation_ = 0;
};

TEST_F(PluginSanitizingTest, ListsAGpuAsUnhealthyFromItsReleaseUntilItIsSanitized) {
  start_with_one_given(1ms);
  kubelet->release({kOne});
  ASSERT_TRUE(is_marked_used(3));
  EXPECT_TRUE(allocatable(kGpu, 1));
  publish("sanitizing", 3, "it is being sanitized");
  ASSERT_TRUE(entry_becomes([](const Json& gpu) { return gpu["reason"] == "it is being sanitized"; }));
  EXPECT_TRUE(is_marked_used(3));
  publish("available", 4);
  EXPECT_TRUE(is_healthy_again());
  EXPECT_TRUE(allocatable(kGpu, 2));
  EXPECT_TRUE(kubelet->allocate(kGpu, {kOne}).ok());
}

TEST_F(PluginSanitizingTest, HoldsTheNextPodUntilTheGpuIsSanitized) {
  start_with_one_given();
  auto answer = ask_again();
  ASSERT_TRUE(is_marked_used(3)) << "hostd sees that the first use is over";
  EXPECT_TRUE(kubelet->allocate(kGpu, {kTwo}).ok()) << "no other GPU waits";
  publish("sanitizing", 3, "it is being sanitized");
  ASSERT_TRUE(entry_becomes([](const Json& gpu) { return gpu["reason"] == "it is being sanitized"; }));
  EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
  publish("available", 4);
  const auto given = answer.get();
  EXPECT_TRUE(given.ok()) << given.error;
  EXPECT_TRUE(entry_becomes([](const Json& gpu) { return gpu["allocated"] == true; }));
}

TEST_F(PluginSanitizingTest, RefusesTheNextPodAfterATime) {
  options.sanitize_patience = 50ms;
  start_with_one_given();
  const auto answer = ask_again().get();
  EXPECT_EQ(answer.status, 9);
  EXPECT_THAT(answer.error, HasSubstr("0000:01:00.0: it is being sanitized after its last use; hostd has not "
                                      "finished within 0.05 s"));
  EXPECT_TRUE(is_marked_used(3));
}

TEST_F(PluginSanitizingTest, RefusesTheNextPodAtOnceWhereTheGpuCannotBeSanitized) {
  options.sanitize_patience = 1h;
  start_with_one_given(1ms);
  kubelet->release({kOne});
  ASSERT_TRUE(is_marked_used(3));
  publish("failed", 4, "its reset failed");
  ASSERT_TRUE(entry_becomes([](const Json& gpu) { return gpu["reason"] == "its reset failed"; }));
  EXPECT_THAT(ask_again().get().error, HasSubstr("its reset failed"));
}

TEST_F(PluginSanitizingTest, RefusesTheWaitingPodOnceTheSanitizingHasFailed) {
  options.sanitize_patience = 1h;
  start_with_one_given();
  auto answer = ask_again();
  ASSERT_TRUE(is_marked_used(3));
  publish("failed", 4, "its reset failed");
  EXPECT_THAT(answer.get().error, HasSubstr("its reset failed"));
}

TEST_F(PluginSanitizingTest, EndsWhileAPodWaits) {
  options.sanitize_patience = 1h;
  start_with_one_given();
  auto answer = ask_again();
  ASSERT_TRUE(is_marked_used(3));
  EXPECT_TRUE(stop());
  EXPECT_THAT(answer.get().error, HasSubstr("the plugin is ending"));
}

TEST_F(PluginSanitizingTest, RemembersOverARestartThatAGpuIsUsed) {
  start_with_one_given(1ms);
  kubelet->release({kOne});
  ASSERT_TRUE(is_marked_used(3));
  ASSERT_TRUE(stop());
  start();
  ASSERT_TRUE(allocatable(kGpu, 1));
  EXPECT_TRUE(is_marked_used(3));
  auto answer = ask_again();
  EXPECT_EQ(answer.wait_for(50ms), std::future_status::timeout);
  publish("available", 4);
  EXPECT_TRUE(answer.get().ok());
}

TEST_F(PluginSanitizingTest, KeepsItsOrdersWhereTheyCannotBeRead) {
  start_with_one_given(1ms);
  kubelet->release({kOne});
  ASSERT_TRUE(is_marked_used(3));
  publish("in a state that came later", 4);
  EXPECT_TRUE(kubelet->allocate(kGpu, {kTwo}).ok());
  ASSERT_TRUE(entry_becomes([](const Json& gpu) { return gpu["allocated"] == true; }, kTwo))
      << "the plugin reads its events in order";
  EXPECT_TRUE(is_marked_used(3));
  publish("available", 4);
  EXPECT_TRUE(is_healthy_again());
}

}  // namespace
}  // namespace ferry::plugin
