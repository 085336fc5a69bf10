// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metric_families.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/process/spawn.h"
#include "tests/agent/sixteen_boards.h"
#include "tests/agent/snapshots.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using test::must;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> lines(const MetricsSnapshot& snapshot) {
  std::istringstream text(metrics_text(metric_families(snapshot)));
  std::vector<std::string> out;
  for (std::string line; std::getline(text, line);) out.push_back(line);
  return out;
}

/// How many there are (docs/metrics.md).
constexpr std::size_t kFamilies = 31;

/// The samples of one family.
std::vector<std::string> samples(const MetricsSnapshot& snapshot, const std::string& family) {
  std::vector<std::string> out;
  for (const std::string& line : lines(snapshot))
    if (line.starts_with(family + "{") || line.starts_with(family + " ")) out.push_back(line);
  return out;
}

api::AcceleratorStatus whole_gpu() {
  api::AcceleratorStatus gpu = test::gpu(policy::Mode::passthrough, policy::Mode::passthrough);
  gpu.address = {.bus = 0x3b};
  gpu.id = "10de:26b9";
  gpu.iommu_group = 42;
  gpu.driver = "vfio-pci";
  return gpu;
}

api::AcceleratorStatus divided_gpu() {
  api::AcceleratorStatus gpu = test::gpu(policy::Mode::vgpu, policy::Mode::vgpu);
  gpu.vgpus = {{.id = "0000:02:00.4", .type = "L40S-12Q"},
               {.id = "0000:02:00.5", .type = "L40S-12Q"},
               {.id = "0000:02:00.6", .type = "L40S-24Q"}};
  gpu.more_vgpus = {{"L40S-12Q", 1}, {"L40S-24Q", 0}};
  return gpu;
}

MetricsSnapshot two_gpus() {
  MetricsSnapshot snapshot;
  snapshot.runs = {{"hostd", true}, {"plugin", false}};
  auto& host = snapshot.host.content.emplace();
  host.phase = api::NodePhase::ready;
  host.accelerators = {divided_gpu(), whole_gpu()};
  const std::string whole = "nvidia.com/L40S";
  const std::string divided = "nvidia.com/NVIDIA_L40S-12Q";
  snapshot.advertised.content = api::AdvertisedResources{
      .devices = {{.resource = whole,
                   .id = "0000:3b:00.0",
                   .iommu_group = 42,
                   .allocated = true,
                   .pod = "studio/virt-launcher-render-x7x2k"},
                  {.resource = divided, .id = "0000:02:00.4", .iommu_group = 50},
                  {.resource = divided,
                   .id = "0000:02:00.5",
                   .iommu_group = 51,
                   .allocated = true,
                   .healthy = false},
                  {.resource = divided, .id = "0000:02:00.6", .iommu_group = 52, .healthy = false}},
      .resources = {{.name = whole}, {.name = divided, .registered = false}},
      .not_advertised = {{.id = "0000:65:00.0", .reason = {}}}};
  return snapshot;
}

// ---- what is shown

TEST(MetricFamilies, OfTheInventory) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.facts = {{.address = must(vfio::PciAddress::parse("0000:3b:00.0")), .numa_node = 1}};
  EXPECT_THAT(
      samples(snapshot, "ferry_gpu_info"),
      Contains("ferry_gpu_info{pci_bus_id=\"0000:3b:00.0\",product=\"NVIDIA L40S\",device_id=\"10de:26b9\","
               "iommu_group=\"42\",numa_node=\"1\",driver=\"vfio-pci\",mode=\"passthrough\","
               "desired=\"passthrough\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_gpus"),
              ElementsAre("ferry_gpus{mode=\"host\"} 0", "ferry_gpus{mode=\"passthrough\"} 1",
                          "ferry_gpus{mode=\"vgpu\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_state"),
              Contains("ferry_gpu_state{pci_bus_id=\"0000:3b:00.0\",state=\"ready\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_node_phase"), Contains("ferry_node_phase{phase=\"ready\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_process_up"),
              ElementsAre("ferry_process_up{process=\"hostd\"} 1", "ferry_process_up{process=\"plugin\"} 0"));
}

TEST(MetricFamilies, CountClaimsWhereThereIsACheckpoint) {
  MetricsSnapshot snapshot = two_gpus();
  EXPECT_THAT(samples(snapshot, "ferry_dra_claims"), IsEmpty());
  snapshot.claims = std::map<std::string, std::size_t>{{"preparing", 0}, {"prepared", 2}, {"unpreparing", 0}};
  EXPECT_THAT(samples(snapshot, "ferry_dra_claims"), Contains("ferry_dra_claims{phase=\"prepared\"} 2"));
}

TEST(MetricFamilies, OfRegisters) {
  MetricsSnapshot snapshot = two_gpus();
  EXPECT_THAT(samples(snapshot, "ferry_gpu_confidential_mode"), IsEmpty());
  api::AcceleratorStatus& gpu = snapshot.host.content->accelerators.back();
  gpu.registers = api::ReportedRegisters{
      .facts = {.recovery = false, .cc_mode = vfio::CcMode::on, .memory_bytes = 1024, .ecc = true},
      .read_at = 17};
  const std::string of = "{pci_bus_id=\"" + gpu.address.text() + "\"";
  EXPECT_THAT(samples(snapshot, "ferry_gpu_confidential_mode"),
              AllOf(SizeIs(5), Contains("ferry_gpu_confidential_mode" + of + ",mode=\"on\"} 1"),
                    Contains("ferry_gpu_confidential_mode" + of + ",mode=\"off\"} 0")));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_recovery_mode"),
              ElementsAre("ferry_gpu_recovery_mode" + of + "} 0"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_memory_bytes"),
              ElementsAre("ferry_gpu_memory_bytes" + of + "} 1024"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_memory_ecc"), ElementsAre("ferry_gpu_memory_ecc" + of + "} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_registers_read_timestamp_seconds"),
              ElementsAre("ferry_gpu_registers_read_timestamp_seconds" + of + "} 17"));
  gpu.registers->read_at = 0;
  EXPECT_THAT(samples(snapshot, "ferry_gpu_confidential_mode"), IsEmpty()) << "it was never read";
}

TEST(MetricFamilies, OfSanitizing) {
  MetricsSnapshot snapshot = two_gpus();
  EXPECT_THAT(samples(snapshot, "ferry_gpu_sanitize_state"), IsEmpty());
  api::AcceleratorStatus& gpu = snapshot.host.content->accelerators.back();
  gpu.sanitize = api::SanitizeStatus{.state = api::SanitizeState::failed,
                                     .count = 3,
                                     .result = api::SanitizeResult::unproven,
                                     .milliseconds = 2100};
  const std::string of = "{pci_bus_id=\"" + gpu.address.text() + "\"";
  EXPECT_THAT(samples(snapshot, "ferry_gpu_sanitize_state"),
              AllOf(SizeIs(4), Contains("ferry_gpu_sanitize_state" + of + ",state=\"failed\"} 1"),
                    Contains("ferry_gpu_sanitize_state" + of + ",state=\"available\"} 0")));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_sanitize_result"),
              AllOf(SizeIs(5), Contains("ferry_gpu_sanitize_result" + of + ",result=\"unproven\"} 1")));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_sanitize_seconds"),
              ElementsAre("ferry_gpu_sanitize_seconds" + of + "} 2.1"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_sanitizings_total"),
              ElementsAre("ferry_gpu_sanitizings_total" + of + "} 3"));
}

// The sound card of one that was unplugged: status and labels do not have it either.
TEST(MetricFamilies, WhatAnUnpluggedGpuHasLeftBehindIsNoGpu) {
  MetricsSnapshot snapshot = two_gpus();
  api::AcceleratorStatus audio =
      test::gpu(policy::Mode::passthrough, policy::Mode::host, api::GpuState::blocked);
  audio.address = {.bus = 0x65, .function = 1};
  audio.pci_class = "0403";
  snapshot.host.content->accelerators.push_back(audio);
  EXPECT_THAT(samples(snapshot, "ferry_gpus"), Contains("ferry_gpus{mode=\"passthrough\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_info"), Not(Contains(HasSubstr("0000:65:00.1"))));
  for (const char* gpu : {"0300", "0302", ""}) {
    snapshot.host.content->accelerators.back().pci_class = gpu;
    EXPECT_THAT(samples(snapshot, "ferry_gpus"), Contains("ferry_gpus{mode=\"passthrough\"} 2")) << gpu;
  }
}

// FerryGpuBlocked needs both samples: another attempt does not restart its time.
TEST(MetricFamilies, WhatIsLeftBehindHasAStateWhileItIsRefusedOrTriedAgain) {
  MetricsSnapshot snapshot = two_gpus();
  api::AcceleratorStatus audio =
      test::gpu(policy::Mode::passthrough, policy::Mode::host, api::GpuState::blocked);
  audio.address = {.bus = 0x65, .function = 1};
  audio.pci_class = "0403";
  snapshot.host.content->accelerators.push_back(audio);
  api::AcceleratorStatus& unfinished = snapshot.host.content->accelerators.back();
  EXPECT_THAT(samples(snapshot, "ferry_gpu_blocked"), Contains(HasSubstr("0000:65:00.1")));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_state"),
              Contains("ferry_gpu_state{pci_bus_id=\"0000:65:00.1\",state=\"blocked\"} 1"));
  unfinished.state = api::GpuState::pending;
  EXPECT_THAT(samples(snapshot, "ferry_gpu_state"),
              Contains("ferry_gpu_state{pci_bus_id=\"0000:65:00.1\",state=\"pending\"} 1"));
  unfinished.state = api::GpuState::ready;
  EXPECT_THAT(samples(snapshot, "ferry_gpu_state"), Not(Contains(HasSubstr("0000:65:00.1"))));
}

TEST(MetricFamilies, OfAllocations) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.vmis = {{"studio/virt-launcher-render-x7x2k", "render"}};
  EXPECT_THAT(
      samples(snapshot, "ferry_device_allocated"),
      ElementsAre(
          "ferry_device_allocated{pci_bus_id=\"0000:3b:00.0\",device=\"0000:3b:00.0\",resource=\"nvidia.com/"
          "L40S\","
          "namespace=\"studio\",pod=\"virt-launcher-render-x7x2k\",vmi=\"render\"} 1",
          "ferry_device_allocated{pci_bus_id=\"0000:02:00.0\",device=\"0000:02:00.4\",resource=\"nvidia.com/"
          "NVIDIA_L40S-12Q\",namespace=\"\",pod=\"\",vmi=\"\"} 0",
          "ferry_device_allocated{pci_bus_id=\"0000:02:00.0\",device=\"0000:02:00.5\",resource=\"nvidia.com/"
          "NVIDIA_L40S-12Q\",namespace=\"\",pod=\"\",vmi=\"\"} 1",
          "ferry_device_allocated{pci_bus_id=\"0000:02:00.0\",device=\"0000:02:00.6\",resource=\"nvidia.com/"
          "NVIDIA_L40S-12Q\",namespace=\"\",pod=\"\",vmi=\"\"} 0"));
  EXPECT_THAT(
      samples(snapshot, "ferry_resource_devices"),
      Contains("ferry_resource_devices{resource=\"nvidia.com/NVIDIA_L40S-12Q\",state=\"unhealthy\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_resource_registered"),
              Contains("ferry_resource_registered{resource=\"nvidia.com/NVIDIA_L40S-12Q\"} 0"));
  EXPECT_THAT(samples(snapshot, "ferry_devices_not_advertised"),
              ElementsAre("ferry_devices_not_advertised 1"));
}

// Nobody shall read it, and an alert that nobody does would say the wrong thing.
TEST(MetricFamilies, SayNothingOfRegistrationsWhileThePluginIsOnStandby) {
  MetricsSnapshot snapshot;
  snapshot.advertised.content = api::AdvertisedResources{
      .resources = {{.name = "nvidia.com/L40S", .registered = false}}, .standby = "another serves"};
  EXPECT_THAT(samples(snapshot, "ferry_resource_registered"), testing::IsEmpty());
  EXPECT_THAT(samples(snapshot, "ferry_resource_devices"), testing::SizeIs(4)) << "what there is, is shown";
}

// A GPU that dies in a VM.
TEST(MetricFamilies, WhatAPodHasMayBeUnhealthyToo) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.advertised.content->devices[0].healthy = false;
  const auto of_state = [](const std::string& state, int count) {
    return "ferry_resource_devices{resource=\"nvidia.com/L40S\",state=\"" + state + "\"} " +
           std::to_string(count);
  };
  EXPECT_THAT(samples(snapshot, "ferry_resource_devices"),
              AllOf(Contains(of_state("allocated", 0)), Contains(of_state("allocated_unhealthy", 1)),
                    Contains(of_state("free", 0)), Contains(of_state("unhealthy", 0))));
}

// hostd waits for the VM's end, and has it withdrawn: that is no fault.
TEST(MetricFamilies, WhatAPodHasAndHostdAwaitsIsNotUnhealthy) {
  MetricsSnapshot snapshot = two_gpus();
  api::AdvertisedDevice& device = snapshot.advertised.content->devices[0];
  device.healthy = false;
  snapshot.host.content->unavailable = {{.id = "0000:3b:00.0", .reason = {}}};
  const auto counted = Contains("ferry_resource_devices{resource=\"nvidia.com/L40S\",state=\"allocated\"} 1");
  EXPECT_THAT(samples(snapshot, "ferry_resource_devices"), counted);
  device.id = "3";
  EXPECT_THAT(samples(snapshot, "ferry_resource_devices"), counted) << "for Kata it has a number of its own";
}

// A GPU's audio while a pod has the GPU: nothing is wrong with it.
TEST(MetricFamilies, WhatIsHeldWithItsGroupIsNotUnhealthy) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.advertised.content->resources.push_back({.name = "nvidia.com/AUDIO"});
  snapshot.advertised.content->devices.push_back({.resource = "nvidia.com/AUDIO",
                                                  .id = "0000:3b:00.1",
                                                  .iommu_group = 3,
                                                  .healthy = false,
                                                  .held_with_group = true});
  const auto of_state = [](const std::string& state, int count) {
    return "ferry_resource_devices{resource=\"nvidia.com/AUDIO\",state=\"" + state + "\"} " +
           std::to_string(count);
  };
  EXPECT_THAT(samples(snapshot, "ferry_resource_devices"),
              AllOf(Contains(of_state("allocated", 1)), Contains(of_state("unhealthy", 0))));
}

// For Kata a device has a number of its own.
TEST(MetricFamilies, ADeviceOfKataIsKnownByItsGroup) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.advertised.content->devices[0].id = "3";
  EXPECT_THAT(samples(snapshot, "ferry_device_allocated"),
              Contains(StartsWith("ferry_device_allocated{pci_bus_id=\"0000:3b:00.0\",device=\"3\"")));
  snapshot.advertised.content->devices[0].iommu_group = 99;
  EXPECT_THAT(samples(snapshot, "ferry_device_allocated"),
              Contains(StartsWith("ferry_device_allocated{pci_bus_id=\"\",device=\"3\"")));
}

TEST(MetricFamilies, APodThatNoLongerHasItIsNotNamed) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.advertised.content->devices[0].allocated = false;
  EXPECT_THAT(samples(snapshot, "ferry_device_allocated"), Not(Contains(HasSubstr("studio"))));
}

TEST(MetricFamilies, OfVgpus) {
  EXPECT_THAT(
      samples(two_gpus(), "ferry_vgpu_instances"),
      ElementsAre("ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-12Q\",state=\"free\"} 1",
                  "ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-12Q\",state=\"used\"} 1",
                  "ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-24Q\",state=\"free\"} 1",
                  "ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-24Q\",state=\"used\"} 0"));
  MetricsSnapshot unknown = two_gpus();
  unknown.advertised.content.reset();
  EXPECT_THAT(samples(unknown, "ferry_vgpu_instances"), IsEmpty());  // nobody says who has them
}

// A VM of libvirt's, or QEMU by hand: the kubelet knows nothing of it.
TEST(MetricFamilies, OfVgpusThatNoPodHas) {
  MetricsSnapshot snapshot = two_gpus();
  auto& vgpus = snapshot.host.content->accelerators[0].vgpus;
  vgpus[0].users.emplace().push_back({.kind = "virtual_machine", .name = "by-hand"});
  vgpus[1].users.emplace();  // what a pod was given and has not opened yet
  vgpus[2].users.emplace();
  EXPECT_THAT(
      samples(snapshot, "ferry_vgpu_instances"),
      ElementsAre("ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-12Q\",state=\"free\"} 0",
                  "ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-12Q\",state=\"used\"} 2",
                  "ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-24Q\",state=\"free\"} 1",
                  "ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-24Q\",state=\"used\"} 0"));
  snapshot.advertised.content.reset();
  EXPECT_THAT(
      samples(snapshot, "ferry_vgpu_instances"),
      Contains("ferry_vgpu_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-12Q\",state=\"used\"} 1"))
      << "hostd alone says it";
}

TEST(MetricFamilies, OfRoomForMoreVgpus) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.advertised.content.reset();
  EXPECT_THAT(samples(snapshot, "ferry_vgpu_creatable_instances"),
              ElementsAre("ferry_vgpu_creatable_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-12Q\"} 1",
                          "ferry_vgpu_creatable_instances{pci_bus_id=\"0000:02:00.0\",type=\"L40S-24Q\"} 0"))
      << "hostd alone says it, a full GPU has zero, and one that cannot be divided has none";
}

TEST(MetricFamilies, OfRefusals) {
  MetricsSnapshot snapshot = two_gpus();
  api::AcceleratorStatus& gpu = snapshot.host.content->accelerators[1];
  gpu.state = api::GpuState::blocked;
  gpu.only_in_use = true;
  gpu.users = {
      {.kind = "process", .name = "a"}, {.kind = "process", .name = "b"}, {.kind = "ghost", .name = "c"}};
  EXPECT_THAT(samples(snapshot, "ferry_gpu_blocked"),
              ElementsAre("ferry_gpu_blocked{pci_bus_id=\"0000:3b:00.0\",reason=\"in_use\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_gpu_users"),
              ElementsAre("ferry_gpu_users{pci_bus_id=\"0000:3b:00.0\",kind=\"other\"} 1",
                          "ferry_gpu_users{pci_bus_id=\"0000:3b:00.0\",kind=\"process\"} 2"));
}

TEST(MetricFamilies, OfSysfs) {
  MetricsSnapshot snapshot;
  snapshot.looked_at = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'250));
  snapshot.facts = {{.address = must(vfio::PciAddress::parse("0000:3b:00.0")),
                     .power_state = "D0",
                     .link = {.current_speed = 2.5e9, .max_speed = 16e9, .current_lanes = 8, .max_lanes = 16},
                     .errors = {{.port = "upstream",
                                 .severity = "correctable",
                                 .counts = {.total = 7, .counts = {{"BadTLP", 3}, {"RxErr", 0}}}},
                                {.severity = "fatal", .counts = {.total = std::nullopt, .counts = {}}}},
                     .group_viable = false},
                    {.address = must(vfio::PciAddress::parse("0000:3c:00.0")), .held = true}};
  EXPECT_THAT(
      lines(snapshot),
      AllOf(Contains("ferry_pcie_link_transfers_per_second{pci_bus_id=\"0000:3b:00.0\"} 2500000000"),
            Contains("ferry_pcie_link_max_transfers_per_second{pci_bus_id=\"0000:3b:00.0\"} 16000000000"),
            Contains("ferry_pcie_link_lanes{pci_bus_id=\"0000:3b:00.0\"} 8"),
            Contains("ferry_pcie_link_max_lanes{pci_bus_id=\"0000:3b:00.0\"} 16"),
            Contains("ferry_gpu_power_state{pci_bus_id=\"0000:3b:00.0\",state=\"D0\"} 1"),
            Contains("ferry_gpu_power_state{pci_bus_id=\"0000:3b:00.0\",state=\"D3cold\"} 0"),
            Contains("ferry_gpu_group_viable{pci_bus_id=\"0000:3b:00.0\"} 0"),
            Contains("ferry_gpu_stuck{pci_bus_id=\"0000:3b:00.0\"} 0"),
            Contains("ferry_gpu_stuck{pci_bus_id=\"0000:3c:00.0\"} 1"),
            Contains("ferry_sysfs_read_timestamp_seconds 1700000000.25")));
  EXPECT_THAT(
      samples(snapshot, "ferry_pcie_aer_errors_total"),
      ElementsAre("ferry_pcie_aer_errors_total{pci_bus_id=\"0000:3b:00.0\",port=\"upstream\",severity="
                  "\"correctable\"} 7"));
  EXPECT_THAT(samples(snapshot, "ferry_pcie_aer_errors_by_kind_total"),
              ElementsAre("ferry_pcie_aer_errors_by_kind_total{pci_bus_id=\"0000:3b:00.0\",port=\"upstream\","
                          "severity=\"correctable\",error=\"BadTLP\"} 3"));
  EXPECT_THAT(samples(snapshot, "ferry_pcie_link_lanes"), testing::SizeIs(1));  // nothing of the held one
}

TEST(MetricFamilies, OfWhatHasHappened) {
  MetricsSnapshot snapshot;
  snapshot.changes.ended = {{api::NodePhase::failed, 2}};
  snapshot.changes.by_duration.at(0) = 1;
  snapshot.changes.by_duration.back() = 1;
  snapshot.changes.seconds = 400.5;
  snapshot.requests = {{{.verb = "watch", .code = "200"}, 3}, {{.verb = "get", .code = "none"}, 1}};
  EXPECT_THAT(
      samples(snapshot, "ferry_reconciles_total"),
      ElementsAre("ferry_reconciles_total{result=\"ready\"} 0", "ferry_reconciles_total{result=\"failed\"} 2",
                  "ferry_reconciles_total{result=\"idle\"} 0",
                  "ferry_reconciles_total{result=\"blocked\"} 0"));
  EXPECT_THAT(lines(snapshot), AllOf(Contains("ferry_reconcile_duration_seconds_bucket{le=\"300\"} 1"),
                                     Contains("ferry_reconcile_duration_seconds_bucket{le=\"+Inf\"} 2"),
                                     Contains("ferry_reconcile_duration_seconds_sum 400.5"),
                                     Contains("ferry_reconcile_duration_seconds_count 2")));
  EXPECT_THAT(samples(snapshot, "ferry_api_requests_total"),
              ElementsAre("ferry_api_requests_total{verb=\"get\",code=\"none\"} 1",
                          "ferry_api_requests_total{verb=\"watch\",code=\"200\"} 3"));
  EXPECT_THAT(samples(snapshot, "ferry_artifact_pulls_total"), testing::IsEmpty());
  snapshot.pulls = PullCounts{.done = 2, .failed = 1, .under_way = "kata-a"};
  EXPECT_THAT(samples(snapshot, "ferry_artifact_pulls_total"),
              ElementsAre("ferry_artifact_pulls_total{result=\"done\"} 2",
                          "ferry_artifact_pulls_total{result=\"failed\"} 1"));
  EXPECT_THAT(samples(snapshot, "ferry_artifact_pull_running"),
              ElementsAre("ferry_artifact_pull_running{class=\"kata-a\"} 1"));
  snapshot.pulls->under_way.clear();
  EXPECT_THAT(samples(snapshot, "ferry_artifact_pull_running"), testing::IsEmpty());
  EXPECT_THAT(samples(snapshot, "ferry_blocked_changes_total"),
              ElementsAre("ferry_blocked_changes_total{reason=\"in_use\"} 0",
                          "ferry_blocked_changes_total{reason=\"other\"} 0"));
}

// ---- what is not

TEST(MetricFamilies, WhatIsNotKnownHasNoSample) {
  MetricsSnapshot snapshot;
  snapshot.host.broken = true;
  for (const std::string& line : lines(snapshot)) {
    EXPECT_THAT(line, Not(HasSubstr("ferry_gpu"))) << line;
    EXPECT_THAT(line, Not(HasSubstr("pci_bus_id"))) << line;
    EXPECT_THAT(line, Not(HasSubstr("ferry_sysfs"))) << line;
  }
  EXPECT_THAT(samples(snapshot, "ferry_file_unreadable"),
              ElementsAre("ferry_file_unreadable{file=\"status.json\"} 1",
                          "ferry_file_unreadable{file=\"advertised.json\"} 0"));
}

TEST(MetricFamilies, WordsThatNobodyKnowsDoNotMultiply) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.facts = {{.address = must(vfio::PciAddress::parse("0000:3b:00.0")), .power_state = "D9"}};
  EXPECT_THAT(samples(snapshot, "ferry_gpu_power_state"), IsEmpty());
}

// Prometheus takes nothing of a scrape in which a sample stands twice.
TEST(MetricFamilies, NoSampleStandsTwice) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.host.content->accelerators.push_back(whole_gpu());
  auto& advertised = *snapshot.advertised.content;
  advertised.resources.push_back(advertised.resources[0]);
  advertised.devices.push_back(advertised.devices[1]);
  std::set<std::string> seen;
  for (const std::string& line : lines(snapshot)) {
    if (line.starts_with('#')) continue;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
}

TEST(MetricFamilies, TextFromOutsideStaysOneLine) {
  MetricsSnapshot snapshot = two_gpus();
  snapshot.host.content->accelerators[1].model = "a\"b\\c\nd";
  EXPECT_THAT(samples(snapshot, "ferry_gpu_info"), Contains(HasSubstr(R"(product="a\"b\\c\nd",)")));
}

// What Prometheus' own linter says of names, types and help.
TEST(MetricFamilies, KeepPrometheusConventions) {
  const char* const promtool = std::getenv("FERRY_PROMTOOL");
  if (promtool == nullptr) GTEST_SKIP() << "FERRY_PROMTOOL names no promtool";
  MetricsSnapshot snapshot = two_gpus();
  snapshot.pulls = PullCounts{.done = 1, .failed = 0, .under_way = "kata-a"};
  snapshot.looked_at = std::chrono::system_clock::now();
  snapshot.host.content->accelerators[1].state = api::GpuState::blocked;
  snapshot.host.content->accelerators[1].users = {{.kind = "process", .name = "a"}};
  snapshot.requests = {{{.verb = "get", .code = "200"}, 1}};
  snapshot.facts = {{.address = must(vfio::PciAddress::parse("0000:3b:00.0")),
                     .power_state = "D0",
                     .link = {.current_speed = 2.5e9, .max_speed = 16e9, .current_lanes = 8, .max_lanes = 16},
                     .errors = {{.counts = {.total = 7, .counts = {{"BadTLP", 3}}}}},
                     .group_viable = true}};
  const test::ScratchDirectory scratch;
  const auto families = metric_families(snapshot);
  EXPECT_EQ(families.size(), kFamilies);
  scratch.file("metrics", metrics_text(families));
  const std::string line =
      fmt::format("'{}' check metrics < '{}/metrics'", promtool, scratch.path().string());
  EXPECT_EQ(reap(must(spawn("sh", {"sh", "-c", line}, {}))), 0);
}

// ---- how much there is

TEST(MetricFamilies, OfSixteenBoardsFitTwoHundredKibibytes) {
  const std::string text = metrics_text(metric_families(test::sixteen_boards()));
  EXPECT_EQ(std::ranges::count(text, '\n') > 1'000, true);
  EXPECT_LT(text.size(), 200U * 1'024);
  RecordProperty("bytes", static_cast<int>(text.size()));
}

}  // namespace
}  // namespace ferry::agent
