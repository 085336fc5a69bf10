// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "vgpu-dm/plan/placement.h"
#include "vgpu-dm/plan/plan.h"
#include "vgpu-dm/plan/plan_parts.h"

namespace ferry::vgpu {
namespace {

auto same(const mdev::VgpuDevice& a) {
  return [&a](const mdev::VgpuDevice& b) {
    return a.id == b.id && a.parent == b.parent && a.type_id == b.type_id;
  };
}

/// True if the GPU has virtual functions, but not as many as before, and their number counts. The kernel
/// changes the number only from and to 0.
bool must_recount(const mdev::VgpuGpu& before, const mdev::VgpuGpu& now) {
  return now.framework->binds_functions() && now.function.sriov_numvfs > 0 &&
         now.function.sriov_numvfs != before.function.sriov_numvfs;
}

bool has(const mdev::VgpuGpu& gpu, const mdev::VgpuDevice& device) {
  return std::ranges::any_of(gpu.devices, same(device));
}

}  // namespace

std::vector<std::string> not_put_back(const mdev::VgpuGpu& before, const mdev::VgpuGpu& now) {
  std::vector<std::string> out;
  for (const mdev::VgpuDevice& device : before.devices) {
    if (has(now, device)) continue;
    const bool taken =
        now.on_virtual_functions() &&
        std::ranges::find(now.devices, device.parent, &mdev::VgpuDevice::parent) != now.devices.end();
    out.push_back(fmt::format("vGPU {} ({}) is gone{}", device.id.text, device.short_name,
                              taken ? ": another one is on " + device.parent.text() : ""));
  }
  if (before.function.driver && before.function.driver != now.function.driver)
    out.push_back(fmt::format("it is on {} instead of on {}", now.function.driver.value_or("no driver"),
                              *before.function.driver));
  const bool had_functions = before.function.sriov_numvfs > 0;
  if (had_functions != (now.function.sriov_numvfs > 0)) {
    out.push_back(fmt::format("its virtual functions are still {}", had_functions ? "off" : "on"));
  } else if (must_recount(before, now)) {
    out.push_back(fmt::format("it has {} instead of {}",
                              counted(now.function.sriov_numvfs, "virtual function"),
                              before.function.sriov_numvfs));
  }
  return out;
}

std::vector<VgpuStep> plan_undo(const mdev::VgpuGpu& before, const mdev::VgpuGpu& now,
                                const vfio::UseReport& use) {
  std::vector<VgpuStep> steps;
  std::set<vfio::PciAddress> occupied;  // have a vGPU that stays
  const bool recount = must_recount(before, now);
  for (const mdev::VgpuDevice& device : now.devices) {
    if ((recount || !has(before, device)) && use.blind.empty() && use.of(device.id.text).empty()) {
      steps.push_back(removal_of(now, device, "it was not there before"));
    } else if (now.on_virtual_functions()) {
      occupied.insert(device.parent);
    }
  }
  // Functions are switched off only if no vGPU is on them, whoever made it: a vGPU to be removed may still
  // turn out to be in use.
  const bool had_none = before.function.sriov_numvfs == 0 && now.function.sriov_numvfs > 0;
  if ((had_none || recount) && !may_carry(now) && functions_in_use(now, use).empty())
    steps.push_back(
        functions_off(now, had_none ? "there were none before" : "it had another number of them before"));
  if (before.function.sriov_numvfs > 0 && now.function.sriov_numvfs == 0 && now.devices.empty()) {
    steps.push_back(functions_on(before, before.function.sriov_numvfs, "they were there before"));
    steps.back().for_host = before.host_has_vfs;
  }
  if (before.vf_autoprobe && now.vf_autoprobe && before.vf_autoprobe != now.vf_autoprobe)
    steps.push_back(autoprobe_step(now, *before.vf_autoprobe, "it was so before"));
  if (recount) return steps;
  std::vector<VgpuStep> made;
  std::vector<VgpuStep> params;
  std::vector<VgpuMove> moves;
  for (const mdev::VgpuDevice& device : before.devices) {
    const auto there = std::ranges::find_if(now.devices, same(device));
    const bool is_there = there != now.devices.end();
    if (!is_there && occupied.contains(device.parent)) continue;
    const bool is_free = !is_there || use.of(device.id.text).empty();
    if (!is_there) {
      made.push_back(removal_of(before, device, "it was there before"));
      made.back().kind = VgpuStep::Kind::create;
      made.back().placement = device.placement;
    } else if (is_free && device.placement && there->placement && device.placement != there->placement) {
      moves.push_back({.device = &*there, .to = *device.placement});
    }
    const std::string had = device.params.value_or("");
    const std::string has_now = is_there ? there->params.value_or("") : "";
    if (had == has_now || !is_free) continue;
    params.push_back(params_of(before, device, had.empty() ? " " : had, "it had them before"));
  }
  for (const VgpuMove& move : in_order(moves)) steps.push_back(move_of(now, move, "it was there before"));
  std::ranges::move(made, std::back_inserter(steps));
  std::ranges::move(params, std::back_inserter(steps));
  return steps;
}

}  // namespace ferry::vgpu
