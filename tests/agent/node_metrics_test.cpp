// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <stop_token>
#include <string>
#include <sys/stat.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/metrics/metrics_server.h"
#include "api/files.h"
#include "hostfs/locks.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string state(const std::string& phase) {
  return R"({"version": 2, "desired": {"generation": 1}, "phase": ")" + phase +
         R"(", "accelerators": [{"address": "0000:3b:00.0", "id": "10de:26b9", "model": "NVIDIA L40S",
           "iommu_group": 42, "driver": "vfio-pci", "mode": "passthrough", "desired": null,
           "state": "unmanaged", "users": [], "vgpus": []}], "unavailable": []})";
}

class NodeMetricsTest : public testing::Test {
 protected:
  static constexpr const char* kGpu = "sys/bus/pci/devices/0000:3b:00.0/";

  /// Runs the loop until the metrics say something.
  ::testing::AssertionResult comes_to_say(const std::string& text) {
    for (const auto end = EventLoop::Clock::now() + 20s; EventLoop::Clock::now() < end;) {
      if (metrics_->text().find(text) != std::string::npos) return ::testing::AssertionSuccess();
      run_for(5ms);
    }
    return ::testing::AssertionFailure() << metrics_->text();
  }
  void run_for(std::chrono::milliseconds time) {
    std::stop_source stop;
    loop_->at(EventLoop::Clock::now() + time, [&stop] { stop.request_stop(); });
    loop_->run(stop.get_token());
  }

  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  const test::ScratchDirectory scratch_;
  HostFs host_{scratch_.path()};
  kube::RequestCounts requests_;
  std::unique_ptr<NodeMetrics> metrics_ = std::make_unique<NodeMetrics>(
      *loop_, host_, [this] { return requests_; },
      [] {
        return std::map<std::string, std::string>{{"a/b", "vm"}};
      },
      [] { return std::map<std::string, std::string>(); },
      [] {
        PullCounts out;
        out.done = 1;
        return std::optional(out);
      },
      5ms);
};

TEST_F(NodeMetricsTest, FollowTheFiles) {
  metrics_->begin();
  EXPECT_THAT(metrics_->text(), Not(HasSubstr("ferry_gpu_info")));
  scratch_.file(api::kStatusFile, state("ready"));
  scratch_.file(api::kAdvertisedFile,
                R"({"version": 2, "resources": [{"name": "r", "registered": true, "devices": [
    {"id": "0000:3b:00.0", "healthy": true, "iommu_group": 42, "allocated": true, "pod": "a/b"}]}],
    "not_advertised": []})");
  metrics_->host_changed();
  requests_[{.verb = "get", .code = "200"}] = 1;
  EXPECT_THAT(metrics_->text(), AllOf(HasSubstr("ferry_gpu_info{pci_bus_id=\"0000:3b:00.0\""),
                                      HasSubstr("namespace=\"a\",pod=\"b\",vmi=\"vm\"} 1"),
                                      HasSubstr("ferry_api_requests_total{verb=\"get\",code=\"200\"} 1"),
                                      HasSubstr("ferry_process_up{process=\"plugin\"} 0")));
  scratch_.file(api::kStatusFile, "half a fi");
  metrics_->host_changed();
  EXPECT_THAT(metrics_->text(), AllOf(HasSubstr("ferry_file_unreadable{file=\"status.json\"} 1"),
                                      Not(HasSubstr("ferry_gpu_info"))));
  scratch_.remove(api::kStatusFile);
  metrics_->host_changed();
  EXPECT_THAT(metrics_->text(), HasSubstr("ferry_file_unreadable{file=\"status.json\"} 0"));
}

TEST_F(NodeMetricsTest, CountWhatHostdDoes) {
  scratch_.file(api::kStatusFile, state("ready"));
  metrics_->begin();
  for (const char* phase : {"applying", "failed"}) {
    scratch_.file(api::kStatusFile, state(phase));
    metrics_->host_changed();
  }
  EXPECT_THAT(metrics_->text(), AllOf(HasSubstr("ferry_reconciles_total{result=\"failed\"} 1"),
                                      HasSubstr("ferry_reconcile_duration_seconds_count 1")));
}

TEST_F(NodeMetricsTest, SeeWhoRuns) {
  metrics_->begin();
  for (const auto& [process, file] :
       {std::pair("plugin", "run/ferry/plugin/plugin.lock"), {"hostd", "run/ferry/hostd.running"}}) {
    const std::string sample = std::string("ferry_process_up{process=\"") + process + "\"} ";
    EXPECT_THAT(metrics_->text(), HasSubstr(sample + "0"));
    const auto liveness = must(LivenessLock::announce(host_, file));
    EXPECT_THAT(metrics_->text(), HasSubstr(sample + "1"));
  }
}

TEST_F(NodeMetricsTest, FollowSysfs) {
  scratch_.file(api::kStatusFile, state("ready"));
  scratch_.file(std::string(kGpu) + "power_state", "D0\n");
  metrics_->begin();
  EXPECT_TRUE(comes_to_say("ferry_gpu_power_state{pci_bus_id=\"0000:3b:00.0\",state=\"D0\"} 1"));
  EXPECT_THAT(metrics_->text(), HasSubstr("ferry_sysfs_read_timestamp_seconds"));
  scratch_.file(std::string(kGpu) + "power_state", "D3hot\n");
  EXPECT_TRUE(comes_to_say("ferry_gpu_power_state{pci_bus_id=\"0000:3b:00.0\",state=\"D3hot\"} 1"));
}

TEST_F(NodeMetricsTest, ReadNothingOfWhatIsNoGpu) {
  std::string with_class = state("ready");
  with_class.insert(with_class.find(R"("model")"), R"("class": "0403", )");
  scratch_.file(api::kStatusFile, with_class);
  scratch_.file(std::string(kGpu) + "power_state", "D0\n");
  metrics_->begin();
  EXPECT_TRUE(comes_to_say("ferry_sysfs_read_timestamp_seconds"));
  EXPECT_THAT(metrics_->text(), Not(HasSubstr("pci_bus_id")));
}

// A named pipe that nobody writes to: who opens it hangs as in a driver.
TEST_F(NodeMetricsTest, AReadThatHangsHoldsUpNobody) {
  scratch_.file(api::kStatusFile, state("ready"));
  const auto pipe = scratch_.path() / kGpu / "power_state";
  scratch_.directory(kGpu);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  metrics_->begin();
  run_for(50ms);
  EXPECT_THAT(metrics_->text(), AllOf(HasSubstr("ferry_gpu_info"), Not(HasSubstr("ferry_sysfs_read"))));
  metrics_.reset();
  // So that the thread that was left behind ends before the folder does.
  const UniqueFd end(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_TRUE(end.valid());
}

}  // namespace
}  // namespace ferry::agent
