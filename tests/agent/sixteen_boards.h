// SPDX-License-Identifier: Apache-2.0
// The largest node that the metrics are made for: what they may weigh and take is measured of it.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "agent/metrics/metric_families.h"
#include "tests/support/must.h"

namespace ferry::test {

inline agent::AcceleratorStatus board(unsigned number) {
  constexpr unsigned kFunctions = 32;
  agent::AcceleratorStatus gpu;
  gpu.id = "10de:26b9";
  gpu.driver = "nvidia";
  gpu.mode = policy::Mode::vgpu;
  gpu.desired = policy::Mode::vgpu;
  gpu.state = "ready";
  gpu.model = "AD102GL [L40S]";
  gpu.address = fmt::format("0000:{:02x}:00.0", number);
  gpu.iommu_group = number;
  for (unsigned function = 0; function < kFunctions; ++function)
    gpu.vgpus.push_back({.id = fmt::format("0000:{:02x}:{:02x}.{}", number, 1 + function / 8, function % 8),
                         .type = "NVIDIA L40S-1Q"});
  constexpr unsigned kTypes = 24;  // as many as a board of this kind lists
  for (unsigned type = 1; type <= kTypes; ++type) gpu.more_vgpus[fmt::format("L40S-{}Q", type)] = 0;
  return gpu;
}

inline agent::GpuFacts facts_of(const agent::AcceleratorStatus& gpu) {
  agent::GpuFacts out{
      .address = must(vfio::PciAddress::parse(gpu.address)),
      .numa_node = 1,
      .power_state = "D0",
      .link = {.current_speed = 16e9, .max_speed = 16e9, .current_lanes = 16, .max_lanes = 16},
      .group_viable = true};
  for (const agent::LinkEnd end : {agent::LinkEnd::device, agent::LinkEnd::upstream})
    for (const agent::Severity severity :
         {agent::Severity::correctable, agent::Severity::nonfatal, agent::Severity::fatal})
      out.errors.push_back(
          {.end = end, .severity = severity, .counts = {.total = 3, .counts = {{"BadTLP", 3}}}});
  return out;
}

/// 16 GPUs with 32 virtual functions each, all of which pods have.
inline agent::MetricsSnapshot sixteen_boards() {
  constexpr unsigned kGpus = 16;
  agent::MetricsSnapshot view;
  view.host.content.emplace();
  view.runs = {{"hostd", true}, {"plugin", true}};
  agent::AdvertisedResource resource{.name = "nvidia.com/NVIDIA_L40S-1Q", .registered = true, .devices = {}};
  for (unsigned i = 1; i <= kGpus; ++i) {
    const agent::AcceleratorStatus gpu = board(i);
    view.host.content->accelerators.push_back(gpu);
    view.facts.push_back(facts_of(gpu));
    for (const agent::VgpuStatus& vgpu : gpu.vgpus) {
      const std::string pod =
          fmt::format("team-{}/virt-launcher-desktop-{}-x7x2k", i, resource.devices.size());
      resource.devices.push_back(
          {.id = vgpu.id, .iommu_group = 100 + i, .healthy = true, .allocated = true, .pod = pod});
      view.vmis[pod] = fmt::format("desktop-{}", resource.devices.size());
    }
  }
  view.offer.content = agent::AdvertisedResources{.resources = {resource}, .not_advertised = {}};
  return view;
}

}  // namespace ferry::test
