// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_comparison.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "policy/policy_yaml.h"
#include "vfio/bind/driver_modules.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::policy {
Mode mode_of(const mdev::VgpuGpu& gpu) {
  if (vfio::on_vfio_driver(gpu.function)) return Mode::passthrough;
  return gpu.devices.empty() ? Mode::host : Mode::vgpu;
}

std::string ModeComparison::label() const {
  return fmt::format("GPU {} ({})", index, gpu.text());
}

std::vector<ModeComparison> judge_policy(const Policy& policy, const mdev::VgpuInventory& vgpus,
                                         const vfio::GpuFindings& findings, const ModelNames& models) {
  const ResolvedPolicy resolved = resolve(policy, vgpus, models);
  std::vector<ModeComparison> out;
  for (vgpu::GpuComparison& carried : vgpu::judge(resolved.vgpus, vgpus)) {
    const mdev::VgpuGpu* gpu = vgpus.find(carried.gpu);
    if (gpu == nullptr) continue;
    ModeComparison comparison{.index = carried.index, .gpu = carried.gpu, .found = mode_of(*gpu)};
    if (const auto mode = resolved.modes.find(carried.gpu); mode != resolved.modes.end()) {
      comparison.desired = mode->second;
      const auto of_gpu = vfio::findings_about(findings, carried.gpu);
      const vfio::Finding* sick = vfio::illness_of(gpu->function, of_gpu);
      const bool away = mode->second == Mode::passthrough;
      const vfio::Finding* obstacle = away ? vfio::obstacle_to(of_gpu, vfio::Blocks::ready) : nullptr;
      const auto no_driver = vfio::no_host_driver(gpu->function);
      if (sick != nullptr) {
        comparison.difference =
            fmt::format("{}: expected {}, but {}", gpu->label(), text(mode->second), sick->text);
      } else if (away != (comparison.found == Mode::passthrough)) {
        const auto& driver = gpu->function.driver;
        comparison.difference =
            fmt::format("{}: expected {}, found {} ({})", gpu->label(), text(mode->second),
                        text(comparison.found), driver ? "driver " + *driver : "no driver");
      } else if (obstacle != nullptr) {
        comparison.difference =
            fmt::format("{}: expected {}, but {}", gpu->label(), text(mode->second), obstacle->text);
      } else if (no_driver && mode->second == Mode::host) {
        comparison.difference = fmt::format("{}: expected host, but {}", gpu->label(), no_driver->text());
      } else if (!away) {
        comparison.difference = carried.difference;
      }
      comparison.desired_vgpus = std::move(carried.desired);
    }
    comparison.for_dra = resolved.for_dra.contains(carried.gpu);
    comparison.found_vgpus = std::move(carried.found);
    out.push_back(std::move(comparison));
  }
  return out;
}

std::vector<std::string> items_without_gpu(const Policy& policy, const mdev::VgpuInventory& inventory,
                                           const ModelNames& models) {
  std::vector<std::string> out;
  for (const PolicyItem& item : policy.items) {
    // Each number of an item in a file may have become an item (ProfileItem::only).
    const auto is_in_use = [&](const PolicyItem& part) {
      const bool is_of_it =
          &part == &item || (item.gpus.only && part.gpus.only && part.gpus.place == item.gpus.place);
      return is_of_it && std::ranges::any_of(inventory.gpus, [&](const mdev::VgpuGpu& gpu) {
               return part.matches(gpu, models);
             });
    };
    if (std::ranges::any_of(policy.items, is_in_use)) continue;
    std::string idle = item.gpus.place + ": matches no GPU of this node";
    if (!item.gpus.only || std::ranges::find(out, idle) == out.end()) out.push_back(std::move(idle));
  }
  return out;
}

std::vector<std::string> items_without_gpu(const vgpu::Profile& profile,
                                           const mdev::VgpuInventory& inventory) {
  return items_without_gpu(policy_of(profile), inventory);
}

}  // namespace ferry::policy
