// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/stuck_writes.h"
#include "mdev/mdev_bus.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

using Planner = std::function<VgpuPlan(const VgpuView&)>;

Result<UseReport> ask(UseProbe& uses, const std::vector<VgpuDevice>& devices) {
  if (devices.empty()) return UseReport{};
  std::vector<UseQuestion> questions;
  questions.reserve(devices.size());
  for (const VgpuDevice& device : devices) questions.push_back(use_question(device));
  return uses.look(questions);
}

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
      for (const VgpuDevice& device : gpu.devices) note(device.id.text);
    }
  }
  return out;
}

/// One GPU's way to its plan, and back when something fails.
class GpuRun {
 public:
  GpuRun(const VgpuHost& on, const Planner& planner, const Inventory& inventory, VgpuView first,
         const GpuPlan& plan, const StepObserver& observe)
      : on_(on), planner_(planner), inventory_(inventory), view_(std::move(first)), observe_(observe) {
    outcome_.index = plan.index;
    outcome_.gpu = plan.gpu;
    outcome_.notes = plan.notes;
  }

  GpuOutcome run(const GpuPlan& first) {
    if (first.refusal) return end(GpuOutcome::Kind::refused, *first.refusal);
    if (!first.matched) return end(GpuOutcome::Kind::left_alone);
    if (first.steps.empty()) return end(GpuOutcome::Kind::already_so);

    // Looked at again right before the first write: a VM may have started since.
    if (auto r = look_again(Users::ask); !r) return end(GpuOutcome::Kind::refused, std::move(r).error());
    const VgpuGpu before = *gpu();
    for (int stage = 0; stage < kMostStages; ++stage) {
      const GpuPlan plan = plan_now();
      if (plan.refusal) {
        if (outcome_.done.empty()) return end(GpuOutcome::Kind::refused, *plan.refusal);
        return fail_and_undo(before, *plan.refusal);
      }
      if (plan.steps.empty()) {
        return end(outcome_.done.empty() ? GpuOutcome::Kind::already_so : GpuOutcome::Kind::changed);
      }
      if (auto r = do_stage(plan.steps); !r) return fail_and_undo(before, std::move(r).error());
    }
    return fail_and_undo(before,
                         Error{.code = Errc::failed,
                               .message = before.label() + ": what was written did not hold when read back",
                               .hint = "something else may be creating or removing vGPUs on this node"});
  }

 private:
  enum class Users { ask, as_before };

  // Removals, then creations, then perhaps once more what somebody else did meanwhile.
  static constexpr int kMostStages = 4;

  GpuOutcome end(GpuOutcome::Kind kind, std::optional<Error> error = {}) {
    outcome_.kind = kind;
    outcome_.error = std::move(error);
    return std::move(outcome_);
  }

  const VgpuGpu* gpu() const { return view_.inventory.find(outcome_.gpu); }

  GpuPlan plan_now() const {
    VgpuPlan plan = planner_(view_);
    const auto found = std::find_if(plan.gpus.begin(), plan.gpus.end(),
                                    [&](const GpuPlan& p) { return p.gpu == outcome_.gpu; });
    return std::move(*found);  // a GPU of the inventory is in every plan
  }

  Result<> look_again(Users users) {
    auto vgpus = scan_known_vgpus(on_.host, inventory_, on_.rules);
    if (!vgpus) return fail(std::move(vgpus).error());
    view_.inventory = std::move(*vgpus);
    if (users == Users::as_before) return {};
    auto use = ask(on_.uses, gpu()->devices);
    if (!use) return fail(std::move(use).error());
    view_.use = std::move(*use);
    return {};
  }

  Result<> write(const VgpuStep& step) const {
    Result<> done;
    switch (step.kind) {
      case VgpuStep::Kind::remove:
        done = on_.writer.write(remove_path(step.parent, step.id), "1", on_.deadline);
        break;
      case VgpuStep::Kind::create:
        done = on_.writer.write(create_path(step.parent, step.type_id), step.id.text, on_.deadline);
        break;
    }
    if (!done) done = fail(std::move(done).error().during(step.text()));
    if (observe_) observe_(step, done);
    return done;
  }

  // The steps of one kind that come first: creations wait until a scan has seen the removals.
  Result<> do_stage(const std::vector<VgpuStep>& steps) {
    const auto end = std::find_if(steps.begin(), steps.end(),
                                  [&](const VgpuStep& step) { return step.kind != steps.front().kind; });
    for (auto step = steps.begin(); step != end; ++step) {
      auto done = write(*step);
      // Removed by somebody else since the scan: what was wanted.
      if (!done && step->kind == VgpuStep::Kind::remove && is_gone(done.error())) continue;
      if (!done) return done;
      outcome_.done.push_back(*step);
    }
    if (auto r = look_again(Users::as_before); !r) return r;
    for (auto step = steps.begin(); step != end; ++step) {
      if (auto r = verify(*step); !r) return r;
    }
    return {};
  }

  Result<> verify(const VgpuStep& step) const {
    const VgpuDevice* device = view_.inventory.find(step.id);
    const auto lied = [&](const char* what) {
      return fail(Errc::failed, fmt::format("{}: the kernel took the write, but {}", step.text(), what));
    };
    if (step.kind == VgpuStep::Kind::remove) {
      if (device != nullptr && device->type_id == step.type_id) return lied("the vGPU is still there");
      return {};
    }
    if (device == nullptr) return lied("there is no such vGPU");
    if (device->type_id != step.type_id || device->parent != step.parent) return lied("it is another vGPU");
    if (!device->iommu_group) return lied("no driver has taken the vGPU");
    return {};
  }

  GpuOutcome fail_and_undo(const VgpuGpu& before, Error error) {
    if (error.code == Errc::stuck) {
      outcome_.undo_errors.push_back(
          {.code = Errc::stuck,
           .message = before.label() + ": left as it is, since a write has not returned",
           .hint = {}});
    } else if (auto undone = undo(before); !undone) {
      outcome_.undo_errors.push_back(std::move(undone).error());
    }
    return end(GpuOutcome::Kind::failed, std::move(error));
  }

  // Each write that fails is kept as an error of its own, and the others are still made.
  Result<> undo(const VgpuGpu& before) {
    if (auto r = look_again(Users::ask); !r) return fail(std::move(r).error().during("undo"));
    for (const VgpuStep& step : plan_undo(before, *gpu(), view_.use)) {
      if (auto done = write(step); !done) {
        outcome_.undo_errors.push_back(std::move(done).error().during("undo"));
        if (outcome_.undo_errors.back().code == Errc::stuck) return {};
      }
    }
    if (auto r = look_again(Users::as_before); !r) return fail(std::move(r).error().during("undo"));
    const auto left = plan_undo(before, *gpu(), {});
    if (left.empty() || !outcome_.undo_errors.empty()) return {};
    return fail(Errc::failed, fmt::format("undo: still to do: {}", left.front().text()));
  }

  const VgpuHost& on_;
  const Planner& planner_;
  const Inventory& inventory_;
  VgpuView view_;
  const StepObserver& observe_;
  GpuOutcome outcome_;
};

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

Result<VgpuOutcome> carry_out(const VgpuHost& on, const Planner& planner, const StepObserver& observe) {
  auto seen = look_at_all(on);
  if (!seen) return fail(std::move(seen).error());
  VgpuPlan plan = planner(seen->view);
  VgpuOutcome out;
  out.notes = std::move(plan.notes);
  for (const GpuPlan& gpu : plan.gpus) {
    out.gpus.push_back(GpuRun(on, planner, seen->inventory, seen->view, gpu, observe).run(gpu));
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
  return carry_out(
      on, [&](const VgpuView& view) { return plan_profile(profile, view); }, observe);
}

Result<VgpuOutcome> remove_vgpus(const VgpuHost& on, const Removal& removal, const StepObserver& observe) {
  return carry_out(
      on, [&](const VgpuView& view) { return plan_removal(removal, view); }, observe);
}

}  // namespace ferry
