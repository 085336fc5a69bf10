// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/cc_manager.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "api/labels.h"
#include "vfio/judgement/finding.h"
#include "vfio/registers/chip.h"

namespace ferry::agent {
namespace {

constexpr const char* kDeployed = "nvidia.com/gpu.deploy.cc-manager";

}  // namespace

bool has_cc_manager(const Labels& node) {
  const std::string deployed = value_of(node, kDeployed);
  return !deployed.empty() && deployed != "false";
}

std::vector<ResetInUse> resets_in_use(const Labels& node, const api::HostStatus& host) {
  std::vector<ResetInUse> out;
  const std::string wanted = value_of(node, api::kCcModeLabel);
  if (!has_cc_manager(node) || wanted.empty() || wanted == value_of(node, api::kCcModeStateLabel)) return out;
  const std::string_view in_use = vfio::rule(vfio::RuleId::in_use).name;
  for (const api::AcceleratorStatus& gpu : host.accelerators) {
    if (!vfio::gpu_chip(gpu.id) || !gpu.findings) continue;
    const auto use = std::ranges::find_if(*gpu.findings, [&](const api::ReportedFinding& finding) {
      return finding.rule == in_use && finding.answer == vfio::Answer::yes;
    });
    if (use == gpu.findings->end()) continue;
    out.push_back(
        {.gpu = gpu.address,
         .text = fmt::format("NVIDIA's CC manager is asked for the mode '{}' ({}) and resets {}, which is in "
                             "use: {}; set that label back, or end the use first",
                             wanted, api::kCcModeLabel, gpu.address.text(), use->text)});
  }
  return out;
}

}  // namespace ferry::agent
