// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_verdict.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "vfio/bind/move_members.h"
#include "vgpu-dm/plan/verdict.h"

namespace ferry::policy {
namespace {

std::string driver_of(const vfio::PciFunction& function) {
  return function.driver ? "driver " + *function.driver : "no driver";
}

std::string as_found(const mdev::VgpuGpu& gpu, Mode found) {
  return fmt::format("{} ({})", text(found), driver_of(gpu.function));
}

/// Names a function of the GPU's card that is still on a driver of the host; empty: none is.
std::string left_behind(const vfio::Inventory& inventory, const mdev::VgpuGpu& gpu) {
  for (const auto& [address, function] : inventory.functions) {
    if (!vfio::is_companion(gpu.function, function) || !function.driver || vfio::on_vfio_driver(function))
      continue;
    return fmt::format("{} of its card is on {}", address.text(), *function.driver);
  }
  return {};
}

void compare(const vfio::Inventory& inventory, const mdev::VgpuGpu& gpu, const vgpu::GpuVerdict& carried,
             NodeVerdict& verdict) {
  const Mode wanted = verdict.wanted.value_or(verdict.found);
  const bool away = wanted == Mode::passthrough;
  if (gpu.function.problem) {
    verdict.difference = fmt::format("{}: wanted {}, but it cannot be read: {}", gpu.label(), text(wanted),
                                     gpu.function.problem->message);
  } else if (away != (verdict.found == Mode::passthrough)) {
    verdict.difference =
        fmt::format("{}: wanted {}, found {}", gpu.label(), text(wanted), as_found(gpu, verdict.found));
  } else if (away) {
    if (const std::string behind = left_behind(inventory, gpu); !behind.empty()) {
      verdict.difference = fmt::format("{}: wanted {}, but {}", gpu.label(), text(wanted), behind);
    }
  } else {
    verdict.difference = carried.difference;
  }
}

}  // namespace

Mode mode_of(const mdev::VgpuGpu& gpu) {
  if (vfio::on_vfio_driver(gpu.function)) return Mode::passthrough;
  return gpu.devices.empty() ? Mode::host : Mode::vgpu;
}

std::string NodeVerdict::label() const {
  return fmt::format("GPU {} ({})", index, gpu.text());
}

std::vector<NodeVerdict> judge_policy(const Policy& policy, const vfio::Inventory& inventory,
                                      const mdev::VgpuInventory& vgpus, const ModelNames& models) {
  const WantedState wanted = wanted_state(policy, vgpus, models);
  std::vector<NodeVerdict> out;
  for (vgpu::GpuVerdict& carried : vgpu::judge(wanted.vgpus, vgpus)) {
    const mdev::VgpuGpu* gpu = vgpus.find(carried.gpu);
    if (gpu == nullptr) continue;
    NodeVerdict verdict{.index = carried.index, .gpu = carried.gpu, .found = mode_of(*gpu)};
    if (const auto mode = wanted.modes.find(carried.gpu); mode != wanted.modes.end()) {
      verdict.wanted = mode->second;
      compare(inventory, *gpu, carried, verdict);
      verdict.wanted_vgpus = std::move(carried.wanted);
    }
    verdict.found_vgpus = std::move(carried.found);
    out.push_back(std::move(verdict));
  }
  return out;
}

}  // namespace ferry::policy
