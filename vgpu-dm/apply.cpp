// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply.h"

#include <algorithm>
#include <utility>

#include "common/stuck_writes.h"
#include "vgpu-dm/gpu_run.h"
#include "vgpu-dm/type_names.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

std::vector<VgpuDevice> all_devices(const VgpuInventory& inventory) {
  std::vector<VgpuDevice> out;
  for (const VgpuGpu& gpu : inventory.gpus) out.insert(out.end(), gpu.devices.begin(), gpu.devices.end());
  return out;
}

Result<std::set<std::string>> stuck_devices(HostFs& host, const VgpuInventory& inventory) {
  auto writes = stuck_writes(host);
  if (!writes) return fail(std::move(writes).error());
  std::set<std::string> out;
  for (const StuckWrite& write : *writes) {
    for (const VgpuGpu& gpu : inventory.gpus) {
      const auto note = [&](const std::string& device) {
        if (concerns(write, device)) out.insert(device);
      };
      note(gpu.address().text());
      for (const VgpuParent& parent : gpu.parents) note(parent.address.text());
      for (const VgpuDevice& device : gpu.devices) note(device.id.text);
    }
  }
  return out;
}

struct Seen {
  Inventory inventory;
  VgpuView view;
};

Result<Seen> look_at_all(const VgpuHost& on) {
  auto inventory = scan(on.host);
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = scan_known_vgpus(on.host, *inventory, on.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  auto use = ask(on.uses, all_devices(*vgpus));
  if (!use) return fail(std::move(use).error());
  auto stuck = stuck_devices(on.host, *vgpus);
  if (!stuck) return fail(std::move(stuck).error());
  return Seen{.inventory = std::move(*inventory),
              .view = {.inventory = std::move(*vgpus),
                       .use = std::move(*use),
                       .node = on.node,
                       .stuck = std::move(*stuck)}};
}

/// For one GPU: of the others, what they carry is enough.
VgpuView view_of(const VgpuView& all, const PciAddress& gpu) {
  VgpuView out{.inventory = {}, .use = all.use, .node = all.node, .stuck = all.stuck};
  out.inventory.gpus.reserve(all.inventory.gpus.size());
  for (const VgpuGpu& other : all.inventory.gpus) {
    if (other.address() == gpu) {
      out.inventory.gpus.push_back(other);
      continue;
    }
    VgpuGpu carried;
    carried.index = other.index;
    carried.function = other.function;
    carried.devices = other.devices;
    out.inventory.gpus.push_back(std::move(carried));
  }
  return out;
}

Result<VgpuOutcome> carry_out(const VgpuHost& on, const Seen& seen, VgpuPlan plan, const GpuPlanner& planner,
                              const StepObserver& observe) {
  VgpuOutcome out;
  out.notes = std::move(plan.notes);
  if (auto kept = remember_names(on.host, seen.view.inventory.gpus); !kept)
    out.notes.push_back("the names of vGPU types are not kept: " + kept.error().message);
  out.gpus.reserve(plan.gpus.size());
  for (const GpuPlan& gpu : plan.gpus) {
    out.gpus.push_back(run_gpu(on, planner, seen.inventory, view_of(seen.view, gpu.gpu), gpu, observe));
  }
  return out;
}

}  // namespace

std::string_view text(GpuOutcome::Kind kind) {
  switch (kind) {
    case GpuOutcome::Kind::left_alone:
      return "left alone";
    case GpuOutcome::Kind::already_so:
      return "already so";
    case GpuOutcome::Kind::changed:
      return "changed";
    case GpuOutcome::Kind::refused:
      return "refused";
    case GpuOutcome::Kind::failed:
      return "failed";
  }
  return "unknown";
}

bool VgpuOutcome::wrote() const {
  return std::any_of(gpus.begin(), gpus.end(), [](const GpuOutcome& gpu) { return !gpu.done.empty(); });
}

ExitStatus VgpuOutcome::status() const {
  ExitStatus status = ExitStatus::done;
  for (const GpuOutcome& gpu : gpus) {
    if (gpu.kind == GpuOutcome::Kind::failed) {
      status = worse(status, ExitStatus::failed);
    } else if (gpu.error) {
      status = worse(status, exit_status_of(*gpu.error));
    }
  }
  return wrote() ? once_written(status) : status;
}

Result<VgpuView> look(const VgpuHost& on) {
  auto seen = look_at_all(on);
  if (!seen) return fail(std::move(seen).error());
  return std::move(seen->view);
}

Result<VgpuOutcome> apply_profile(const VgpuHost& on, const Profile& profile, const StepObserver& observe) {
  const auto seen = look_at_all(on);
  if (!seen) return fail(Error(seen.error()));
  return carry_out(
      on, *seen, plan_profile(profile, seen->view),
      [&](const VgpuView& view, const VgpuGpu& gpu) { return plan_profile(profile, view, gpu); }, observe);
}

Result<VgpuOutcome> remove_vgpus(const VgpuHost& on, const Removal& removal, const StepObserver& observe) {
  const auto seen = look_at_all(on);
  if (!seen) return fail(Error(seen.error()));
  return carry_out(
      on, *seen, plan_removal(removal, seen->view),
      [&](const VgpuView& view, const VgpuGpu& gpu) { return plan_removal(removal, view, gpu); }, observe);
}

}  // namespace ferry
