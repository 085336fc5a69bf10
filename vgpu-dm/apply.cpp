// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "common/side_by_side.h"
#include "common/stuck_writes.h"
#include "vgpu-dm/gpu_preparation.h"
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
    if (is_read(write)) continue;
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

Result<Seen> look_at_all(const VgpuHost& on, const std::function<bool(const VgpuGpu&)>& asks_library) {
  auto inventory = scan(on.host);
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = scan_known_vgpus(on.host, *inventory, on.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  auto use = ask(on.uses, all_devices(*vgpus));
  if (!use) return fail(std::move(use).error());
  auto stuck = stuck_devices(on.host, *vgpus);
  if (!stuck) return fail(std::move(stuck).error());
  Seen seen{.inventory = std::move(*inventory),
            .view = {.inventory = std::move(*vgpus),
                     .use = std::move(*use),
                     .node = on.node,
                     .stuck = std::move(*stuck)}};
  for (const VgpuGpu& gpu : seen.view.inventory.gpus) {
    if (asks_library(gpu)) seen.view.managed.emplace(gpu.address(), ask_library(on, gpu.address()));
  }
  return seen;
}

/// For one GPU: of the others, what they carry is enough.
VgpuView view_of(const VgpuView& all, const PciAddress& gpu) {
  VgpuView out{.inventory = {}, .use = all.use, .node = all.node, .stuck = all.stuck, .managed = all.managed};
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

/// Probes and callers are asked and told by one thread at a time.
class OneAtATime final : public UseProbe {
 public:
  OneAtATime(const VgpuHost& on, const StepObserver& observe) : probe_(on.uses), observe_(observe) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    const std::lock_guard lock(mutex_);
    return probe_.look(questions);
  }
  VgpuHost around(const VgpuHost& on) {
    return {.host = on.host,
            .writer = on.writer,
            .uses = *this,
            .rules = on.rules,
            .node = on.node,
            .deadline = on.deadline,
            .pause = on.pause,
            .management = on.management};
  }
  StepObserver observer() {
    if (!observe_) return {};
    return [this](const VgpuStep& step, const Result<>& done) {
      const std::lock_guard lock(mutex_);
      observe_(step, done);
    };
  }

 private:
  UseProbe& probe_;
  const StepObserver& observe_;
  std::mutex mutex_;
};

/// The GPUs that shall be written to once more, right before the first write: a VM may have started since.
/// What keeps one from being looked at becomes its refusal.
void look_again(const VgpuHost& on, Seen& seen, VgpuPlan& plan) {
  std::vector<VgpuDevice> devices;
  for (GpuPlan& of_gpu : plan.gpus) {
    if (of_gpu.steps.empty()) continue;
    VgpuGpu& gpu = *std::ranges::find(seen.view.inventory.gpus, of_gpu.gpu,
                                      [](const VgpuGpu& known) { return known.address(); });
    if (auto now = scan_known_gpu_again(on.host, seen.inventory, gpu)) {
      gpu = std::move(*now);
      devices.insert(devices.end(), gpu.devices.begin(), gpu.devices.end());
    } else {
      of_gpu.refusal = std::move(now).error();
    }
  }
  if (auto use = ask(on.uses, devices)) {
    seen.view.use = std::move(*use);
  } else {
    for (GpuPlan& of_gpu : plan.gpus) {
      if (!of_gpu.steps.empty()) of_gpu.refusal = use.error();
    }
  }
}

Result<VgpuOutcome> carry_out(const VgpuHost& on, Seen seen, VgpuPlan plan, const GpuPlanner& planner,
                              const StepObserver& observe) {
  VgpuOutcome out;
  out.notes = std::move(plan.notes);
  if (auto kept = remember_names(on.host, seen.view.inventory.gpus); !kept)
    out.notes.push_back("the names of vGPU types are not kept: " + kept.error().message);
  OneAtATime one(on, observe);
  const VgpuHost shared = one.around(on);
  const StepObserver told = one.observer();
  const auto busy = static_cast<std::size_t>(
      std::ranges::count_if(plan.gpus, [](const GpuPlan& gpu) { return !gpu.steps.empty(); }));
  on.writer.prepare(std::min(busy, kMostSideBySide));  // they start while we look
  look_again(on, seen, plan);
  const auto begin = std::chrono::steady_clock::now();
  out.gpus.resize(plan.gpus.size());
  side_by_side(plan.gpus.size(), [&](std::size_t i) {
    const GpuPlan& gpu = plan.gpus[i];
    out.gpus[i] = run_gpu(shared, planner, seen.inventory, view_of(seen.view, gpu.gpu), gpu, told);
  });
  out.applied = std::chrono::steady_clock::now() - begin;
  return out;
}

bool of_nobody(const VgpuGpu& /*gpu*/) {
  return false;
}

bool asks(const Profile& profile, const VgpuGpu& gpu) {
  const ProfileItem* item = profile.item_for(gpu);
  return item != nullptr && asks_library(*item, gpu);
}

GpuPlanner planner_for(const Profile& profile) {
  return {.plan = [&](const VgpuView& view, const VgpuGpu& gpu) { return plan_profile(profile, view, gpu); },
          .asks_library = [&](const VgpuGpu& gpu) { return asks(profile, gpu); }};
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
  auto seen = look_at_all(on, of_nobody);
  if (!seen) return fail(std::move(seen).error());
  return std::move(seen->view);
}

Result<VgpuView> look(const VgpuHost& on, std::span<const Profile> profiles) {
  auto seen = look_at_all(on, [&](const VgpuGpu& gpu) {
    return std::ranges::any_of(profiles, [&](const Profile& profile) { return asks(profile, gpu); });
  });
  if (!seen) return fail(std::move(seen).error());
  return std::move(seen->view);
}

Result<VgpuOutcome> apply_profile(const VgpuHost& on, const Profile& profile, const StepObserver& observe) {
  const GpuPlanner planner = planner_for(profile);
  auto seen = look_at_all(on, planner.asks_library);
  if (!seen) return fail(std::move(seen).error());
  VgpuPlan plan = plan_profile(profile, seen->view);
  return carry_out(on, std::move(*seen), std::move(plan), planner, observe);
}

Result<VgpuOutcome> remove_vgpus(const VgpuHost& on, const Removal& removal, const StepObserver& observe) {
  auto seen = look_at_all(on, of_nobody);
  if (!seen) return fail(std::move(seen).error());
  const GpuPlanner planner{
      .plan = [&](const VgpuView& view, const VgpuGpu& gpu) { return plan_removal(removal, view, gpu); },
      .asks_library = of_nobody};
  VgpuPlan plan = plan_removal(removal, seen->view);
  return carry_out(on, std::move(*seen), std::move(plan), planner, observe);
}

}  // namespace ferry
