// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/apply/apply.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "common/side_by_side.h"
#include "common/text/words.h"
#include "mdev/framework.h"
#include "mdev/stuck_gpus.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/pci/pci_function.h"
#include "vfio/quiesce/quiesce_plan.h"
#include "vgpu-dm/apply/gpu_run.h"
#include "vgpu-dm/apply/write_turns.h"
#include "vgpu-dm/plan/gpu_preparation.h"
#include "vgpu-dm/plan/plan_parts.h"
#include "vgpu-dm/plan/release_plan.h"
#include "vgpu-dm/types/type_names.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {
namespace {

vfio::RebindContext release_context(const VgpuHost& on) {
  return {.host = &on.host,
          .writer = &on.writer,
          .probe = &on.uses,
          .rules = on.rules,
          .on_step = on.on_release,
          .service_manager = on.service_manager,
          .persistence = on.persistence};
}

/// Quiesces the plan's device users and returns the result for each GPU of it. A GPU is refused in the plan
/// if one of its users was not even asked.
std::vector<vfio::QuiesceRequest> quiesce(const vfio::RebindContext& context,
                                          const vfio::Inventory& inventory, vfio::StoppedServices& services,
                                          VgpuPlan& plan) {
  std::vector<vfio::QuiesceRequest> requests;
  requests.reserve(plan.gpus.size());
  for (const GpuPlan& gpu : plan.gpus) {
    vfio::QuiesceRequest& request = requests.emplace_back();
    request.devices = {gpu.gpu};
    request.users = gpu.releases;
  }
  quiesce(context, inventory, services, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (auto& refusal = requests[i].refusal)
      plan.gpus[i].refusal = std::move(*refusal).during(plan.gpus[i].label());
  }
  return requests;
}

/// The whole virtual functions that Ferry bound. No record is read on a host without one on a VFIO driver.
Result<std::set<vfio::PciAddress>> bound_by_ferry(const HostFs& host, const mdev::VgpuInventory& inventory) {
  const auto has_bound = [](const mdev::VgpuGpu& gpu) {
    return gpu.framework->binds_functions() && !gpu.devices.empty();
  };
  if (std::ranges::none_of(inventory.gpus, has_bound)) return std::set<vfio::PciAddress>();
  const auto journal = vfio::read_undo_journal(host);
  if (!journal) return fail(journal.error());
  std::set<vfio::PciAddress> out;
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    if (!has_bound(gpu)) continue;
    for (const mdev::VgpuDevice& device : gpu.devices)
      if (journal->has_bound(device.parent, device.type_id)) out.insert(device.parent);
  }
  return out;
}

struct FullSnapshot {
  vfio::Inventory inventory;
  VgpuSnapshot snapshot;
  std::map<vfio::PciAddress, TypeNames> named = {};  // by the library
};

/// Runs after the library was asked: its answer tells which GPUs may be switched or lose virtual functions.
Result<vfio::UseReport> ask_users(const VgpuHost& on, const GpuPlanner& planner, const FullSnapshot& full,
                                  std::span<const mdev::VgpuGpu> gpus) {
  return ask(on, full.inventory, gpus, [&](const mdev::VgpuGpu& gpu) {
    const mdev::ManagedGpu* said = full.snapshot.managed_gpu(gpu.address());
    auto out = planner.may_shed_functions(gpu, said) ? gpu.functions : std::vector<vfio::PciAddress>();
    if (planner.may_switch(gpu, said)) out.push_back(gpu.address());
    return out;
  });
}

Result<FullSnapshot> look_at_all(const VgpuHost& on, const GpuPlanner& planner,
                                 const vfio::Inventory* scanned = nullptr) {
  auto inventory = scanned != nullptr ? Result<vfio::Inventory>(*scanned) : vfio::scan(on.host);
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = scan_known_vgpus(on.host, *inventory, on.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  auto stuck = mdev::StuckGpus::read(on.host);
  if (!stuck) return fail(std::move(stuck).error());
  auto bound = bound_by_ferry(on.host, *vgpus);
  if (!bound) return fail(std::move(bound).error());
  FullSnapshot full{.inventory = std::move(*inventory),
                    .snapshot = {.inventory = std::move(*vgpus),
                                 .node = on.node,
                                 .stuck = std::move(*stuck),
                                 .release = vfio::possible_release(on.release, on.service_manager),
                                 .persistence_by_gpu = on.persistence != nullptr,
                                 .spares_foreign = on.spares_foreign,
                                 .bound_by_ferry = std::move(*bound)}};
  for (mdev::VgpuGpu& gpu : full.snapshot.inventory.gpus) {
    // A driver with a stuck write is asked nothing more.
    const auto unwritable = cannot_write(gpu, full.snapshot);
    if (unwritable && unwritable->code == Errc::stuck) continue;
    std::optional<Result<mdev::ManagedGpu>> said;
    if (planner.reads_names(gpu) && driver_lists_no_name(on.host, gpu)) {
      said = ask_library(on, gpu.address());
      if (*said) full.named.emplace(gpu.address(), name_by_library(on.host, **said, gpu));
    }
    if (!planner.asks_library(gpu)) continue;
    if (!said) said = ask_library(on, gpu.address());
    full.snapshot.managed.emplace(gpu.address(), std::move(*said));
  }
  auto use = ask_users(on, planner, full, full.snapshot.inventory.gpus);
  if (!use) return fail(std::move(use).error());
  full.snapshot.use = std::move(*use);
  return full;
}

/// The snapshot for one GPU; it needs only the vGPUs of other GPUs.
VgpuSnapshot snapshot_of(const VgpuSnapshot& all, const vfio::PciAddress& gpu) {
  VgpuSnapshot out{.inventory = {},
                   .use = all.use,
                   .node = all.node,
                   .stuck = all.stuck,
                   .managed = all.managed,
                   .spares_foreign = all.spares_foreign,
                   .bound_by_ferry = all.bound_by_ferry};
  out.inventory.gpus.reserve(all.inventory.gpus.size());
  for (const mdev::VgpuGpu& other : all.inventory.gpus) {
    if (other.address() == gpu) {
      out.inventory.gpus.push_back(other);
      continue;
    }
    mdev::VgpuGpu carried;
    carried.index = other.index;
    carried.function = other.function;
    carried.devices = other.devices;
    out.inventory.gpus.push_back(std::move(carried));
  }
  return out;
}

/// Scans the GPUs that will be written to again, right before the first write: a VM may have started since. A
/// failed scan or probe becomes the GPU's refusal.
void look_again(const VgpuHost& on, const GpuPlanner& planner, FullSnapshot& full, VgpuPlan& plan) {
  std::vector<mdev::VgpuGpu> looked_at;
  for (GpuPlan& of_gpu : plan.gpus) {
    if (of_gpu.steps.empty()) continue;
    mdev::VgpuGpu& gpu =
        *std::ranges::find(full.snapshot.inventory.gpus, of_gpu.gpu, &mdev::VgpuGpu::address);
    if (auto now = scan_known_gpu_again(on.host, full.inventory, gpu)) {
      gpu = std::move(*now);
      looked_at.push_back(gpu);
    } else {
      of_gpu.refusal = std::move(now).error();
    }
  }
  if (auto use = ask_users(on, planner, full, looked_at)) {
    full.snapshot.use = std::move(*use);
  } else {
    for (GpuPlan& of_gpu : plan.gpus) {
      if (!of_gpu.steps.empty()) of_gpu.refusal = use.error();
    }
  }
}

VgpuOutcome apply_plan(const VgpuHost& on, vfio::StoppedServices& services, FullSnapshot full, VgpuPlan plan,
                       const GpuPlanner& planner, const StepObserver& observe) {
  VgpuOutcome out;
  out.notes = std::move(plan.notes);
  if (auto kept = remember_names(on.host, full.snapshot.inventory.gpus, full.named); !kept)
    out.notes.push_back("the names of vGPU types are not kept: " + kept.error().message);
  const auto gone = recorded_functions_gone(on.host, full.snapshot.inventory);
  Result<> forgotten;
  if (!gone)
    forgotten = fail(gone.error());
  else if (!gone->empty())
    forgotten = vfio::erase_from_undo_journal(on.host, *gone);
  if (!forgotten)
    out.notes.push_back("the records of removed virtual functions stay: " + forgotten.error().message);
  vfio::OneAtATime one(on.uses);
  const VgpuHost shared{.host = on.host,
                        .writer = on.writer,
                        .uses = one,
                        .rules = on.rules,
                        .node = on.node,
                        .deadline = on.deadline,
                        .pause = on.pause,
                        .management = on.management};
  const StepObserver guarded_observer = one.guarded(observe);
  const auto busy = static_cast<std::size_t>(
      std::ranges::count_if(plan.gpus, [](const GpuPlan& gpu) { return !gpu.steps.empty(); }));
  // Writing processes start during the scan. A process without a permit would only slow the others down.
  on.writer.prepare(std::min({busy, kMostSideBySide, std::size_t{WriteTurns::at_once()}}));
  auto requests = quiesce(release_context(on), full.inventory, services, plan);
  look_again(on, planner, full, plan);
  refuse_held(full.snapshot, plan);
  const auto begin = std::chrono::steady_clock::now();
  out.gpus.resize(plan.gpus.size());
  // Once a GPU has finished, the common scan is old for GPUs that still wait: a VM may have started since.
  std::atomic<bool> one_has_ended = false;
  side_by_side(plan.gpus.size(), [&](std::size_t i) {
    const GpuPlan& gpu = plan.gpus[i];
    if (auto& failure = requests[i].failure) {
      out.gpus[i] = {.index = gpu.index,
                     .gpu = gpu.gpu,
                     .kind = GpuOutcome::Kind::failed,
                     .error = std::move(*failure).during(gpu.label())};
      return;
    }
    const bool is_old = one_has_ended;
    GpuRun run(shared, planner, full.inventory, snapshot_of(full.snapshot, gpu.gpu), gpu, guarded_observer);
    out.gpus[i] = run.run(gpu, is_old);
    if (!gpu.steps.empty()) one_has_ended = true;
    out.gpus[i].released = std::move(requests[i].released);
  });
  out.applied = std::chrono::steady_clock::now() - begin;
  return out;
}

/// Scans, plans and applies; quiesces device users for it and resumes them.
Result<VgpuOutcome> plan_and_apply(const VgpuHost& on, const GpuPlanner& planner, const StepObserver& observe,
                                   const vfio::Inventory* scanned = nullptr,
                                   const std::function<VgpuPlan(const VgpuSnapshot&)>& plan = {}) {
  vfio::StoppedServices services(release_context(on));
  if (auto read = services.take_over(); !read) return fail(std::move(read).error());
  Result<VgpuOutcome> outcome = look_at_all(on, planner, scanned).map([&](FullSnapshot full) {
    VgpuPlan planned = plan ? plan(full.snapshot) : plan_each(full.snapshot, planner.plan);
    return apply_plan(on, services, std::move(full), std::move(planned), planner, observe);
  });
  if (!on.more_follows) vfio::add_results(services.start_all(), outcome);
  return outcome;
}

/// A planner without plans, for a scan on behalf of any of these profiles.
GpuPlanner looker_for(std::span<const Profile> profiles) {
  const auto any = [=](auto test) {
    return [=](const mdev::VgpuGpu& gpu, auto... said) {
      return std::ranges::any_of(profiles, [&](const Profile& profile) {
        const ProfileItem* item = profile.item_for(gpu);
        return item != nullptr && test(*item, gpu, said...);
      });
    };
  };
  return {
      .plan = {},
      .asks_library = any(asks_library),
      .reads_names = any([](const ProfileItem& item, const mdev::VgpuGpu&) { return !item.vgpus.empty(); }),
      .may_shed_functions = any(may_shed_functions),
      .may_switch = any(may_switch)};
}

GpuPlanner planner_for(const Profile& profile) {
  GpuPlanner planner = looker_for({&profile, 1});
  planner.plan = [&](const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu) {
    return plan_profile(profile, snapshot, gpu);
  };
  return planner;
}

}  // namespace

std::string_view text(GpuOutcome::Kind kind) {
  using Kind = GpuOutcome::Kind;
  constexpr Words<Kind, 5> kWords = {{{"skipped", Kind::unmanaged},
                                      {"already so", Kind::already_so},
                                      {"changed", Kind::changed},
                                      {"refused", Kind::refused},
                                      {"failed", Kind::failed}}};
  return word_for(kWords, kind, "unknown");
}

bool VgpuOutcome::wrote() const {
  return std::any_of(gpus.begin(), gpus.end(), [](const GpuOutcome& gpu) { return !gpu.done.empty(); });
}

ExitStatus VgpuOutcome::status() const {
  ExitStatus status = errors.empty() ? ExitStatus::done : ExitStatus::failed;
  for (const GpuOutcome& gpu : gpus) {
    if (gpu.kind == GpuOutcome::Kind::failed) status = worse(status, ExitStatus::failed);
    if (gpu.kind == GpuOutcome::Kind::refused) status = worse(status, ExitStatus::refused);
  }
  return status;
}

Result<std::vector<vfio::PciAddress>> recorded_functions_gone(const HostFs& host,
                                                              const mdev::VgpuInventory& vgpus) {
  std::set<std::string> ids;  // of the functions that the GPUs have or can have
  for (const mdev::VgpuGpu& gpu : vgpus.gpus) {
    if (!gpu.framework->binds_functions()) continue;
    for (const mdev::VgpuType& type : gpu.unlisted) ids.insert(type.id);
    for (const mdev::VgpuParent& parent : gpu.parents)
      for (const mdev::VgpuType& type : parent.types) ids.insert(type.id);
  }
  std::vector<vfio::PciAddress> out;
  if (ids.empty()) return out;
  const auto journal = vfio::read_undo_journal(host);
  if (!journal) return fail(journal.error());
  for (const auto& [address, prior] : journal->members)
    if (ids.contains(prior.ids) && !host.exists(vfio::sysfs_path(address))) out.push_back(address);
  return out;
}

Result<VgpuSnapshot> look(const VgpuHost& on, std::span<const Profile> profiles,
                          const vfio::Inventory* scanned) {
  auto full = look_at_all(on, looker_for(profiles), scanned);
  if (!full) return fail(std::move(full).error());
  return std::move(full->snapshot);
}

Result<VgpuOutcome> apply_profile(const VgpuHost& on, const Profile& profile, const StepObserver& observe,
                                  const vfio::Inventory* scanned) {
  const auto plan = [&](const VgpuSnapshot& snapshot) { return plan_profile(profile, snapshot); };
  return plan_and_apply(on, planner_for(profile), observe, scanned, plan);
}

std::vector<Error> put_back(const VgpuHost& on, const Profile& profile, const GpuOutcome& changed,
                            const StepObserver& observe) {
  const GpuPlanner planner = planner_for(profile);
  auto full = look_at_all(on, planner);
  if (!full) return {std::move(full).error()};
  if (full->snapshot.inventory.find(changed.gpu) == nullptr) {
    return {{.code = Errc::not_found, .message = changed.gpu.text() + " is gone"}};
  }
  std::vector<Error> errors;
  vfio::StoppedServices services(release_context(on));
  std::vector<vfio::QuiesceRequest> requests(1);
  if (std::ranges::any_of(changed.done, &VgpuStep::needs_gpu_free)) {
    if (auto read = services.take_over(); !read) return {std::move(read).error()};
    const mdev::VgpuGpu& gpu = *full->snapshot.inventory.find(changed.gpu);
    const auto itself = [](const mdev::VgpuGpu& one) { return std::vector{one.address()}; };
    const auto use = ask(on, full->inventory, {&gpu, 1}, itself);
    if (!use) return {use.error()};
    requests.front().devices = {changed.gpu};
    // Modules are left out: other GPUs may need them by now.
    vfio::QuiescePlan to_quiesce;
    for (const vfio::DeviceUser& user : use->of(changed.gpu.text())) {
      const auto may = vfio::may_release(user, full->snapshot.release, changed.gpu);
      if (may && may->kind != vfio::Releasable::Kind::module) to_quiesce.add(*may, user, changed.gpu);
    }
    const auto yes = [](const vfio::PciAddress&) { return true; };
    requests.front().users = vfio::users_to_quiesce(to_quiesce, on.persistence != nullptr, yes, yes);
    quiesce(release_context(on), full->inventory, services, requests);
    for (const auto& why : {requests.front().failure, requests.front().refusal})
      if (why) errors.push_back(*why);
  }
  // After a stuck order about the GPU nothing more is written.
  if (errors.empty() || errors.front().code != Errc::stuck) {
    GpuRun run(on, planner, full->inventory, snapshot_of(full->snapshot, changed.gpu),
               {.index = changed.index, .gpu = changed.gpu}, observe);
    std::ranges::move(run.put_back(changed), std::back_inserter(errors));
  }
  if (!on.more_follows) std::ranges::move(services.start_all().errors, std::back_inserter(errors));
  return errors;
}

Result<VgpuOutcome> remove_vgpus(const VgpuHost& on, const Removal& removal, const StepObserver& observe) {
  const GpuPlanner planner{.plan = [&](const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu) {
    return plan_removal(removal, snapshot, gpu);
  }};
  return plan_and_apply(on, planner, observe);
}

Result<VgpuOutcome> add_vgpu(const VgpuHost& on, const Addition& addition, const StepObserver& observe,
                             const vfio::Inventory* scanned) {
  const GpuPlanner planner{
      .plan = [&](const VgpuSnapshot& snapshot,
                  const mdev::VgpuGpu& gpu) { return plan_addition(addition, snapshot, gpu); },
      .asks_library = [&](const mdev::VgpuGpu& gpu) { return needs_library(addition, gpu); },
      .may_switch = [&](const mdev::VgpuGpu& gpu,
                        const mdev::ManagedGpu* said) { return may_switch_sizes(addition, gpu, said); }};
  return plan_and_apply(on, planner, observe, scanned);
}

Result<VgpuOutcome> enable_functions_again(const VgpuHost& on, const FunctionsAgain& functions,
                                           const StepObserver& observe) {
  const GpuPlanner planner{
      .plan = [&](const VgpuSnapshot& snapshot,
                  const mdev::VgpuGpu& gpu) { return plan_functions_again(functions, snapshot, gpu); },
      .asks_library = [&](const mdev::VgpuGpu& gpu) { return gpu.address() == functions.gpu; },
      .may_switch = [&](const mdev::VgpuGpu& gpu,
                        const mdev::ManagedGpu*) { return gpu.address() == functions.gpu; }};
  return plan_and_apply(on, planner, observe);
}

}  // namespace ferry::vgpu
