// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/cc_manager.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "vfio/judgement/finding.h"
#include "vfio/registers/chip.h"

namespace ferry::agent {
namespace {

constexpr std::string_view kNvidia = "10de:";
constexpr const char* kDeployed = "nvidia.com/gpu.deploy.cc-manager";
constexpr const char* kWanted = "nvidia.com/cc.mode";
constexpr const char* kReached = "nvidia.com/cc.mode.state";

}  // namespace

bool has_cc_manager(const Labels& node) {
  const std::string deployed = value_of(node, kDeployed);
  return !deployed.empty() && deployed != "false";
}

std::vector<ResetInUse> resets_in_use(const Labels& node, const api::HostStatus& host) {
  std::vector<ResetInUse> out;
  const std::string wanted = value_of(node, kWanted);
  if (!has_cc_manager(node) || wanted.empty() || wanted == value_of(node, kReached)) return out;
  const std::string_view in_use = vfio::rule(vfio::RuleId::in_use).name;
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    if (!gpu.findings || !gpu.id.starts_with(kNvidia)) continue;
    std::uint16_t device = 0;
    std::from_chars(gpu.id.data() + kNvidia.size(), gpu.id.data() + gpu.id.size(), device, 16);
    if (!vfio::gpu_chip(device)) continue;  // it has no such modes
    const auto use = std::ranges::find_if(*gpu.findings, [&](const api::ReportedFinding& finding) {
      return finding.rule == in_use && finding.answer == vfio::Answer::yes;
    });
    if (use == gpu.findings->end()) continue;
    out.push_back(
        {.gpu = gpu.address,
         .text = fmt::format("NVIDIA's CC manager is asked for the mode '{}' ({}) and resets {}, which is in "
                             "use: {}; set that label back, or end the use first",
                             wanted, kWanted, gpu.address.text(), use->text)});
  }
  return out;
}

}  // namespace ferry::agent
