// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/bind/undo_journal.h"
#include "vgpu-dm/apply/gpu_run.h"
#include "vgpu-dm/apply/write_turns.h"
#include "vgpu-dm/plan/plan_parts.h"
#include "vgpu-dm/types/type_names.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

// A driver may answer a write before its effect shows.
constexpr int kMostAttempts = 10;
constexpr std::chrono::milliseconds kPollPeriod{100};
// A daemon of the driver may have to register new functions first.
constexpr std::chrono::seconds kTypesPollPeriod{1};

// The tool that switches functions binds a GPU anew, one GPU at a time as with its "ALL". It needs a lock
// that an open handle of the library blocks, whichever GPU the handle is for.
std::mutex& driver_calls() {
  static std::mutex mutex;
  return mutex;
}

/// True if the driver offers vGPUs on all of its `number` new functions. A daemon of the driver may register
/// them one by one, and their types after them. In MIG mode no type is listed until there is a GPU instance.
bool offers_all(const mdev::VgpuGpu& gpu, std::uint32_t number, const mdev::ManagedGpu* said) {
  if (gpu.parents.size() < number) return false;
  if (!gpu.framework->lists_only_creatable_types()) return true;
  if (said != nullptr && said->mig == mdev::GpuSwitch::on) return true;
  return std::ranges::any_of(gpu.parents,
                             [](const mdev::VgpuParent& parent) { return !parent.types.empty(); });
}

}  // namespace

// A driver that has just come back may take a while to offer its types.
Result<> GpuRun::can_be_put_back() {
  const mdev::VgpuGpu& before = before_.gpu;
  for (int attempt = 1;; ++attempt) {
    if (auto unwritable = cannot_write(*gpu(), snapshot_)) return fail(std::move(*unwritable));
    if (gpu()->function.driver != before.function.driver) {
      return fail(Errc::failed, fmt::format("{}: it is on {} instead of on {}", before.label(),
                                            gpu()->function.driver.value_or("no driver"),
                                            before.function.driver.value_or("none")));
    }
    const bool offers = !gpu()->parents.empty() || !before.on_itself();
    if (offers || attempt == kMostAttempts) return {};
    on_.pause(kTypesPollPeriod);
    if (auto r = look_again(); !r) return r;
  }
}

// Asking is slow: the answer is renewed only after a stage that may have changed it.
void GpuRun::ask_library_again() {
  if (!library_is_stale_ && (snapshot_.managed.contains(outcome_.gpu) || !planner_.asks_library(*gpu())))
    return;
  auto said = ask_library(on_, outcome_.gpu);
  library_is_stale_ = !said;  // its earlier answer no longer holds
  snapshot_.managed.insert_or_assign(outcome_.gpu, std::move(said));
  if (!before_.prepared && !before_.managed) before_.managed = managed();
}

Result<> GpuRun::look_again() {
  auto now = scan_known_gpu_again(on_.host, *inventory_, *gpu());
  if (!now) return fail(std::move(now).error());
  *gpu() = std::move(*now);
  only_devices_are_fresh_ = false;
  ask_library_again();
  if (auto kept = remember_names(on_.host, {gpu(), 1}); !kept && outcome_.notes.empty())
    outcome_.notes.push_back("the names of vGPU types are not kept: " + kept.error().message);
  return {};
}

Result<> GpuRun::look_again_with_users() {
  if (auto r = look_again(); !r) return r;
  // The rollback may switch virtual functions off.
  const bool may_go =
      before_.prepared || planner_.may_shed_functions(*gpu(), snapshot_.managed_gpu(outcome_.gpu));
  const auto besides = [may_go](const mdev::VgpuGpu& gpu) {
    return may_go ? gpu.functions : std::vector<vfio::PciAddress>();
  };
  auto use = ask(on_, *inventory_, {gpu(), 1}, besides);
  if (!use) return fail(std::move(use).error());
  snapshot_.use = std::move(*use);
  return {};
}

// Enough after writes to vGPUs: a complete scan reads every type of every function and costs more.
void GpuRun::look_at_devices(std::span<const VgpuStep> steps) {
  const auto shows = [this](const VgpuStep& step) {
    if (step.kind == VgpuStep::Kind::remove) return true;
    return step.kind == VgpuStep::Kind::create && !step.placement && !gpu()->has_vf_params;
  };
  const auto facts = std::ranges::all_of(steps, shows) ? mdev::VgpuFacts::identity : mdev::VgpuFacts::all;
  mdev::scan_devices_again(on_.host, *inventory_, facts, *gpu());
  only_devices_are_fresh_ = true;
}

Result<> GpuRun::switch_functions(const VgpuStep& step) {
  if (step.kind == VgpuStep::Kind::set_autoprobe)
    return mdev::set_autoprobe(vf_switch(), step.parent, step.number != 0);
  Result<> done;
  {
    const std::lock_guard lock(driver_calls());
    const auto to_switch = still_to_switch(step);
    if (!to_switch) return fail(to_switch.error());
    if (!*to_switch) {
      before_.functions_are_ours = false;
      return rescan();
    }
    if (step.kind == VgpuStep::Kind::enable_vfs) before_.functions_are_ours = true;
    done = step.kind == VgpuStep::Kind::enable_vfs
               ? step.framework->enable_functions(vf_switch(), step.parent, step.number, step.for_host)
               : step.framework->disable_functions(vf_switch(), step.parent);
    if (done && step.kind == VgpuStep::Kind::disable_vfs) {
      before_.functions_are_ours = false;
      // This is done under the lock: new functions of another GPU may get the numbers of these IOMMU groups.
      if (step.framework->binds_functions()) done = vfio::erase_from_undo_journal(on_.host, gpu()->functions);
    }
  }
  // The scan is needed after a failure, too: some functions may have come.
  auto seen = rescan();
  return done ? seen : done;
}

Result<> GpuRun::rescan() {
  auto inventory = vfio::scan(on_.host);
  if (!inventory) return fail(std::move(inventory).error());
  own_ = std::move(*inventory);
  inventory_ = &own_;
  return {};
}

// While this GPU waited for its permit, other programs may have switched its functions, put vGPUs on them or
// given them to VMs as they are.
Result<bool> GpuRun::still_to_switch(const VgpuStep& step) {
  if (auto r = rescan(); !r) return fail(std::move(r).error());
  auto now = scan_known_gpu_again(on_.host, *inventory_, *gpu());
  if (!now) return fail(std::move(now).error());
  if (!now->devices.empty()) {
    return fail(Errc::refused, fmt::format("it carries {} by now", counted(now->devices.size(), "vGPU")),
                "something else may be creating vGPUs on this node");
  }
  if (const Error* problem = now->problem())
    return fail(Errc::refused, "it may carry vGPUs that cannot be read: " + problem->message, problem->hint);
  if (step.kind == VgpuStep::Kind::enable_vfs) return now->function.sriov_numvfs == 0;
  const auto use = ask(on_, *inventory_, {&*now, 1}, &mdev::VgpuGpu::functions);
  if (!use) return fail(use.error());
  if (auto used = functions_in_use(*now, *use); !used.empty()) return fail(std::move(used.front()));
  return true;
}

Result<> GpuRun::write_now(const VgpuStep& step) {
  const VgpuStep::Target target = step.target();
  if (target == VgpuStep::Target::vgpu) return write_vgpu(step);
  library_is_stale_ = snapshot_.managed.contains(outcome_.gpu);
  before_.prepared = true;
  if (target == VgpuStep::Target::functions) return switch_functions(step);
  const std::lock_guard lock(driver_calls());
  return have_library_do(*on_.management, step);
}

Result<> GpuRun::write_vgpu(const VgpuStep& step) {
  if (step.binds_function()) {
    const auto rebound = rebind_functions({&step, 1}, false);
    return rebound_to(rebound, step);
  }
  if (step.kind == VgpuStep::Kind::remove) {
    RemovalFence fence(on_.host);
    if (auto r = keep_users_away({&step, 1}, fence); !r) return r;
    return write_attribute_of(step);
  }
  if (step.kind != VgpuStep::Kind::set_placement) {
    if (auto done = write_attribute_of(step); !done) return done;
  }
  const auto& placement = step.placement;
  if (!placement) return {};
  auto placed = place(on_, step, *placement);
  if (!placed && step.kind == VgpuStep::Kind::create) misplaced_ = step.id;
  return placed;
}

// Binds the functions of vGPUs that are made to a VFIO driver, or unbinds those of removed vGPUs. A driver of
// the host would only begin to use functions that go.
Result<vfio::RebindOutcome> GpuRun::rebind_functions(std::span<const VgpuStep> steps, bool functions_go) {
  const bool made = steps.front().kind == VgpuStep::Kind::create;
  const vfio::RebindContext context{
      .host = &on_.host, .writer = &on_.writer, .probe = &on_.uses, .rules = on_.rules, .on_step = {}};
  vfio::RebindRequest request;
  for (const VgpuStep& step : steps) {
    request.accelerators.push_back(step.parent);
    if (!made && functions_go) request.removed_next.insert(step.parent);
  }
  auto rebound = vfio::apply_rebinds_only(context, std::move(request),
                                          made ? vfio::Direction::to_vfio : vfio::Direction::back);
  const auto add = [&](const std::string& note) {
    if (std::ranges::find(outcome_.notes, note) == outcome_.notes.end()) outcome_.notes.push_back(note);
  };
  if (rebound) {
    std::ranges::for_each(rebound->notes, add);
    for (const vfio::RebindResult& result : rebound->results) std::ranges::for_each(result.rebind.notes, add);
  }
  return rebound;
}

Result<> GpuRun::rebound_to(const Result<vfio::RebindOutcome>& outcome, const VgpuStep& step) {
  if (!outcome) return fail(outcome.error());
  const vfio::RebindResult* const result = outcome->find(step.parent);
  return result != nullptr ? result->check() : fail(Errc::failed, "nothing came of it");
}

// Binds or unbinds the functions together; the error is that of the first function that did not change.
Result<> GpuRun::rebind_all(std::span<const VgpuStep> steps, bool functions_go) {
  const auto rebound = rebind_functions(steps, functions_go);
  Result<> first;
  for (const VgpuStep& step : steps) {
    auto done = rebound_to(rebound, step);
    if (done) {
      succeeded(step);
      continue;
    }
    done = fail(std::move(done).error().during(step.text()));
    if (observe_) observe_(step, done);
    if (first || done.error().code == Errc::stuck) first = std::move(done);
  }
  return first;
}

Result<> GpuRun::write_attribute_of(const VgpuStep& step) {
  const auto writes = writes_of(on_.host, step);
  if (!writes) return fail(writes.error());
  auto done = on_.writer.write_in_order(*writes, {});
  if (done) return done;
  note_failure(step, done.error());
  return fail(explained(on_, step, std::move(done).error()));
}

// Closes the fence, and probes the users of vGPUs that it leaves open.
Result<> GpuRun::keep_users_away(std::span<const VgpuStep> removals, RemovalFence& fence) {
  if (auto closed = fence.close(*gpu(), removals); !closed) return closed;
  for (const VgpuStep& step : removals) {
    const auto device = std::ranges::find(gpu()->devices, step.id, &mdev::VgpuDevice::id);
    if (device == gpu()->devices.end() || !fence.leaves_open(step)) continue;
    const vfio::UseQuestion question = mdev::use_question(*device);
    auto use = on_.uses.look({&question, 1});
    if (!use) return fail(std::move(use).error());
    if (auto used = in_use(*gpu(), {&*device}, *use, "stop what uses it")) return fail(std::move(*used));
  }
  return {};
}

// Fences all vGPUs together, so that none is removed if a VM has taken another one, or singly if the fence
// cannot hold them all.
Result<> GpuRun::remove_all(std::span<const VgpuStep> steps) {
  // The permit comes first: no wait may come between the fence, or the probe, and the removal.
  const WriteTurns::Permit permit(WriteTurns::shared());
  RemovalFence fence(on_.host);
  if (auto closed = fence.close(*gpu(), steps); !closed) return closed;
  if (std::ranges::none_of(steps, [&](const VgpuStep& step) { return fence.leaves_open(step); }))
    return write_together(steps);
  fence.open();
  for (const VgpuStep& step : steps) {
    RemovalFence of_one(on_.host);
    if (auto r = keep_users_away({&step, 1}, of_one); !r) return r;
    if (auto done = write_together({&step, 1}); !done) return done;
  }
  return {};
}

Result<> GpuRun::write(const VgpuStep& step) {
  auto done = write_now(step);
  if (!done) done = fail(std::move(done).error().during(step.text()));
  if (observe_) observe_(step, done);
  return done;
}

// Hands all writes to the writing process at once: waiting for each would double the cost. Needs a permit.
Result<> GpuRun::write_together(std::span<const VgpuStep> steps) {
  std::vector<AttributeWrite> writes;
  std::vector<std::size_t> step_of;  // the step of each write
  for (std::size_t i = 0; i < steps.size(); ++i) {
    auto of_step = writes_of(on_.host, steps[i]);
    if (!of_step) {
      const Result<> failed = fail(std::move(of_step).error().during(steps[i].text()));
      if (observe_) observe_(steps[i], failed);
      return failed;
    }
    std::ranges::move(*of_step, std::back_inserter(writes));
    step_of.resize(writes.size(), i);
  }
  std::size_t at = 0;  // the steps before this one have ended
  const auto end_before = [&](std::size_t step) {
    for (; at < step; ++at) succeeded(steps[at]);
  };
  for (std::size_t first = 0; first < writes.size();) {
    const auto begin = [&](std::size_t begun) { end_before(step_of[first + begun]); };
    auto done = on_.writer.write_in_order(std::span(writes).subspan(first), begin);
    if (done) {
      end_before(steps.size());
      return {};
    }
    const VgpuStep& step = steps[at];
    // Another program has removed it since the scan, as intended.
    const bool gone = step.kind == VgpuStep::Kind::remove && is_gone(done.error());
    note_failure(step, done.error());
    done = fail(explained(on_, step, std::move(done).error()).during(step.text()));
    if (observe_) observe_(step, done);
    if (!gone) return done;
    ++at;
    while (first < writes.size() && step_of[first] < at) ++first;
  }
  return {};
}

Result<> GpuRun::write_each(std::span<const VgpuStep> steps) {
  for (const VgpuStep& step : steps) {
    auto done = write(step);
    if (done || misplaced_ == step.id) outcome_.done.push_back(step);
    if (!done) return done;
  }
  return {};
}

// Applies the steps of the first kind: creations wait until a scan has seen the removals.
Result<> GpuRun::do_stage(const std::vector<VgpuStep>& steps) {
  const auto end =
      std::ranges::find_if(steps, [&](const VgpuStep& step) { return step.kind != steps.front().kind; });
  const std::span<const VgpuStep> stage(steps.begin(), end);
  const bool functions_go = std::ranges::any_of(
      steps, [](const VgpuStep& step) { return step.kind == VgpuStep::Kind::disable_vfs; });
  if (gpu()->has_vf_params && stage.front().kind == VgpuStep::Kind::set_params) keep_params_of(stage);
  if (auto done = write_stage(stage, functions_go); !done) return done;
  return read_back(stage);
}

void GpuRun::keep_params_of(std::span<const VgpuStep> steps) {
  for (const mdev::VgpuDevice& device : gpu()->devices) {
    if (device.params && std::ranges::find(steps, device.id, &VgpuStep::id) != steps.end())
      before_.params.try_emplace(device.id, *device.params);
  }
}

Result<> GpuRun::write_stage(std::span<const VgpuStep> stage, bool functions_go) {
  if (stage.front().binds_function()) return rebind_all(stage, functions_go);
  if (stage.front().kind == VgpuStep::Kind::remove) return remove_all(stage);
  // Each vGPU is moved to its placement before the next is made (placement.h).
  const bool placed =
      std::ranges::any_of(stage, [](const VgpuStep& step) { return step.placement.has_value(); });
  const bool together = stage.front().target() == VgpuStep::Target::vgpu && !placed;
  if (!together) return write_each(stage);
  const WriteTurns::Permit permit(WriteTurns::shared());
  return write_together(stage);
}

Result<> GpuRun::read_back(std::span<const VgpuStep> steps) {
  for (int attempt = 1;; ++attempt) {
    if (steps.front().target() == VgpuStep::Target::vgpu) {
      look_at_devices(steps);
    } else {
      library_is_stale_ = snapshot_.managed.contains(outcome_.gpu);
      if (auto r = look_again(); !r) return r;
    }
    const auto said = snapshot_.managed.find(outcome_.gpu);
    Result<> held;
    for (const VgpuStep& step : steps) {
      held = verify(step, *gpu(), said == snapshot_.managed.end() ? nullptr : &said->second);
      if (!held) break;
    }
    const bool all_there = steps.front().kind != VgpuStep::Kind::enable_vfs ||
                           offers_all(*gpu(), steps.front().number, snapshot_.managed_gpu(outcome_.gpu));
    if ((held && all_there) || attempt == kMostAttempts) return held;
    const bool of_functions = steps.front().target() == VgpuStep::Target::functions;
    on_.pause(of_functions ? kTypesPollPeriod : kPollPeriod);
  }
}

Result<mdev::ManagedGpu> ask_library(const VgpuHost& on, const vfio::PciAddress& gpu) {
  if (on.management == nullptr) return fail(Errc::unsupported, "there is no library of the driver to ask");
  const std::lock_guard lock(driver_calls());
  return on.management->read(gpu);
}

}  // namespace ferry::vgpu
