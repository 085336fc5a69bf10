// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/carried_extras.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/text/counted.h"
#include "vgpu-dm/plan/gpu_room.h"

namespace ferry::vgpu {
namespace {

std::map<std::string, std::vector<const mdev::VgpuDevice*>> by_type(const mdev::VgpuGpu& gpu) {
  std::map<std::string, std::vector<const mdev::VgpuDevice*>> out;
  for (const mdev::VgpuDevice& device : gpu.devices) out[device.short_name].push_back(&device);
  return out;
}

}  // namespace

CarriedExtras extras_of(const mdev::VgpuGpu& gpu) {
  CarriedExtras out;
  out.several_sizes = carries_several_sizes(gpu);
  for (const auto& [type, devices] : by_type(gpu)) {
    const std::string text = devices.front()->params.value_or("");
    const auto params = VgpuParams::parse(text);
    if (!params) {
      out.unsaid.push_back(fmt::format("{}: the parameters of vGPU {} ({}), '{}', cannot stand in a file: {}",
                                       gpu.label(), devices.front()->id.text, type, text,
                                       params.error().message));
      continue;
    }
    const bool same = std::ranges::all_of(devices, [&](const mdev::VgpuDevice* device) {
      const auto others = VgpuParams::parse(device->params.value_or(""));
      return others && *others == *params;
    });
    if (!same) {
      out.unsaid.push_back(
          fmt::format("{}: its {} of type {} differ in their parameters, which stand once "
                      "for all of a type: left out",
                      gpu.label(), counted(devices.size(), "vGPU"), type));
    } else if (!params->entries.empty()) {
      out.params.emplace(type, *params);
    }
  }
  return out;
}

std::vector<std::string> unsaid_by_v1(const mdev::VgpuInventory& inventory) {
  std::vector<std::string> out;
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    const CarriedExtras extras = extras_of(gpu);
    if (extras.several_sizes) {
      out.push_back(gpu.label() +
                    ": carries vGPUs of several sizes; v1 cannot say that it may, and they could not be made "
                    "again by it: `ferry export` writes a file that can");
    }
    if (!extras.params.empty() || !extras.unsaid.empty()) {
      out.push_back(gpu.label() +
                    ": its vGPUs have parameters, which v1 cannot say: `ferry export` writes "
                    "a file that can");
    }
  }
  return out;
}

}  // namespace ferry::vgpu
