// SPDX-License-Identifier: Apache-2.0
// The largest node that the metrics are made for: what they may weigh and take is measured of it.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "agent/metrics/metric_families.h"

namespace ferry::test {

inline api::AcceleratorStatus board(unsigned number) {
  constexpr unsigned kFunctions = 32;
  api::AcceleratorStatus gpu;
  gpu.id = "10de:26b9";
  gpu.driver = "nvidia";
  gpu.mode = policy::Mode::vgpu;
  gpu.desired = policy::Mode::vgpu;
  gpu.state = api::GpuState::ready;
  gpu.model = "AD102GL [L40S]";
  gpu.address = {.bus = static_cast<std::uint8_t>(number)};
  gpu.iommu_group = number;
  for (unsigned function = 0; function < kFunctions; ++function)
    gpu.vgpus.push_back({.id = fmt::format("0000:{:02x}:{:02x}.{}", number, 1 + function / 8, function % 8),
                         .type = "NVIDIA L40S-1Q"});
  constexpr unsigned kTypes = 24;  // as many as a board of this kind lists
  for (unsigned type = 1; type <= kTypes; ++type) gpu.more_vgpus[fmt::format("L40S-{}Q", type)] = 0;
  return gpu;
}

inline agent::GpuFacts facts_of(const api::AcceleratorStatus& gpu) {
  agent::GpuFacts out{
      .address = gpu.address,
      .numa_node = 1,
      .power_state = "D0",
      .link = {.current_speed = 16e9, .max_speed = 16e9, .current_lanes = 16, .max_lanes = 16},
      .group_viable = true};
  for (const char* const port : {"device", "upstream"})
    for (const char* const severity : {"correctable", "nonfatal", "fatal"})
      out.errors.push_back(
          {.port = port, .severity = severity, .counts = {.total = 3, .counts = {{"BadTLP", 3}}}});
  return out;
}

/// 16 GPUs with 32 virtual functions each, all of which pods have.
inline agent::MetricsSnapshot sixteen_boards() {
  constexpr unsigned kGpus = 16;
  agent::MetricsSnapshot snapshot;
  snapshot.host.content.emplace();
  snapshot.runs = {{"hostd", true}, {"plugin", true}};
  auto& advertised = snapshot.advertised.content.emplace();
  advertised.resources = {{.name = "nvidia.com/NVIDIA_L40S-1Q"}};
  for (unsigned i = 1; i <= kGpus; ++i) {
    const api::AcceleratorStatus gpu = board(i);
    snapshot.host.content->accelerators.push_back(gpu);
    snapshot.facts.push_back(facts_of(gpu));
    for (const api::VgpuStatus& vgpu : gpu.vgpus) {
      const std::string pod =
          fmt::format("team-{}/virt-launcher-desktop-{}-x7x2k", i, advertised.devices.size());
      advertised.devices.push_back({.resource = advertised.resources[0].name,
                                    .id = vgpu.id,
                                    .iommu_group = 100 + i,
                                    .allocated = true,
                                    .pod = pod});
      snapshot.vmis[pod] = fmt::format("desktop-{}", advertised.devices.size());
    }
  }
  return snapshot;
}

}  // namespace ferry::test
