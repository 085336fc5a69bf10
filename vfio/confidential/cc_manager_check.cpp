// SPDX-License-Identifier: Apache-2.0
#include "vfio/confidential/cc_manager_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "vfio/registers/chip.h"

namespace ferry::vfio {
namespace {

// Source: NVIDIA's k8s-cc-manager (785d77e), which writes it while it runs.
constexpr const char* kReadiness = "run/nvidia/validations/.cc-manager-ctr-ready";

}  // namespace

std::optional<Check> cc_manager_check(const HostFs& host, const Inventory& inventory,
                                      const GpuFindings& findings) {
  if (!host.exists(kReadiness)) return std::nullopt;
  std::vector<std::string> in_use;
  for (const auto& [address, of_gpu] : findings) {
    const PciFunction* const gpu = inventory.find(address);
    if (gpu == nullptr || gpu->vendor != kNvidia || !gpu_chip(gpu->device)) continue;
    const bool used = std::ranges::any_of(of_gpu, [](const Finding& finding) {
      return finding.rule == RuleId::in_use && finding.answer == Answer::yes;
    });
    if (used) in_use.push_back(address.text());
  }
  Check check{"cc-manager", kHostSubject,
              "NVIDIA's CC manager resets every GPU of Hopper and newer for a change of its mode"};
  if (in_use.empty()) return std::move(check).passed("it runs, and no GPU with such a mode is in use");
  return std::move(check).warned(
      fmt::format("it runs, and these GPUs are in use: {}; a change of the Node's label nvidia.com/cc.mode "
                  "would reset them",
                  fmt::join(in_use, ", ")),
      "do not change that label before the VMs have ended, or set nvidia.com/gpu.deploy.cc-manager=false");
}

}  // namespace ferry::vfio
