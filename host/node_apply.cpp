// SPDX-License-Identifier: Apache-2.0
#include "host/node_apply.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/quiesce/stopped_services.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T> more) {
  std::ranges::move(more, std::back_inserter(to));
}

/// Adds the results of another run, or its error.
void add(vfio::RebindOutcome& to, Result<vfio::RebindOutcome> more) {
  if (!more) return to.errors.push_back(std::move(more).error());
  append(to.results, std::move(more->results));
  append(to.notes, std::move(more->notes));
  append(to.errors, std::move(more->errors));
  to.applied += more->applied;
}

bool contains(const std::vector<vfio::PciAddress>& addresses, const vfio::PciAddress& address) {
  return std::ranges::find(addresses, address) != addresses.end();
}

struct PolicyInput {
  vfio::Inventory inventory;
  mdev::VgpuInventory vgpus;
  policy::ResolvedPolicy resolved;
};

// `scanned` as for preview_policy(), here and below.
Result<PolicyInput> read_input(const NodeContext& context, const policy::Policy& policy,
                               const vfio::Inventory* scanned = nullptr) {
  auto inventory = scanned != nullptr ? Result<vfio::Inventory>(*scanned) : vfio::scan(context.fs());
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = vgpu::scan_known_vgpus(context.fs(), *inventory, context.rebind_context.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  policy::ResolvedPolicy resolved = policy::resolve(policy, *vgpus, context.models);
  if (auto allowed = policy::check_allocations(resolved, *inventory, *vgpus, context.resources, context.dra);
      !allowed)
    return fail(std::move(allowed).error());
  for (const vfio::PciAddress& gpu : context.dra) resolved.modes.erase(gpu);
  std::erase_if(resolved.vgpus.items,
                [&](const vgpu::ProfileItem& item) { return item.only && context.dra.contains(*item.only); });
  return PolicyInput{
      .inventory = std::move(*inventory), .vgpus = std::move(*vgpus), .resolved = std::move(resolved)};
}

struct Rollback {
  vfio::RebindRequest gpus;
  vfio::RebindRequest unfinished;  ///< functions left by an unplugged GPU: no policy covers them
};

// Finds the GPUs that are on vfio, or that the undo journal lists because a killed run left them half-way.
Result<Rollback> to_give_back(const NodeContext& context, const PolicyInput& input) {
  auto journal = vfio::read_undo_journal(context.fs());
  if (!journal) return fail(std::move(journal).error());
  Rollback back;
  back.unfinished.accelerators = unfinished(input.inventory, context.rebind_context.rules, *journal);
  back.unfinished.recorded_only = true;
  for (const auto& [address, mode] : input.resolved.modes) {
    const vfio::PciFunction* gpu = input.inventory.find(address);
    if (mode == policy::Mode::passthrough || gpu == nullptr || !context.rebind_context.rules.match(*gpu))
      continue;
    if (vfio::on_vfio_driver(*gpu) || journal->speaks_of(*gpu)) back.gpus.accelerators.push_back(address);
  }
  return back;
}

vfio::RebindRequest to_give_away(const NodeContext& context, const PolicyInput& input) {
  vfio::RebindRequest request;
  request.untouchable = mdev::carriers_of_vgpus(input.vgpus, [&](const mdev::VgpuDevice& device) {
    return vgpu::is_ours(context.vgpu_host.node, device);
  });
  request.release = input.resolved.release;
  for (const vgpu::ProfileItem& item : input.resolved.vgpus.items)
    if (item.only) request.named_at.emplace(*item.only, item.place);
  for (const auto& [address, mode] : input.resolved.modes) {
    const vfio::PciFunction* gpu = input.inventory.find(address);
    if (mode == policy::Mode::passthrough && gpu != nullptr && context.rebind_context.rules.match(*gpu))
      request.accelerators.push_back(address);
  }
  return request;
}

// An empty request asks no probe and needs no IOMMU. Even then the last stage resumes the services that a
// killed run left stopped; the first stage leaves that to the last.
Result<vfio::RebindOutcome> rebind(const NodeContext& context, const vfio::RebindRequest& request,
                                   vfio::Direction direction, const vfio::Inventory* scanned = nullptr) {
  if (!request.accelerators.empty())
    return vfio::apply_rebinds(context.rebind_context, request, direction, scanned);
  return direction == vfio::Direction::to_vfio ? vfio::start_what_was_stopped(context.rebind_context)
                                               : vfio::RebindOutcome{};
}
Result<vfio::RebindPreview> preview(const NodeContext& context, const vfio::RebindRequest& request,
                                    vfio::Direction direction, const vfio::Inventory& scanned) {
  if (!request.accelerators.empty())
    return vfio::preview_rebinds(context.rebind_context, request, direction, &scanned);
  if (direction == vfio::Direction::back) return vfio::RebindPreview{};
  auto notes = vfio::notes_on_stopped_services(context.fs());
  if (!notes) return fail(std::move(notes).error());
  return vfio::RebindPreview{.plan = {}, .notes = std::move(*notes)};
}

/// The request for the time when these GPUs have no vGPUs or virtual functions left.
vfio::RebindRequest once_empty(vfio::RebindRequest request, const std::set<vfio::PciAddress>& gpus) {
  for (const vfio::PciAddress& gpu : gpus) request.untouchable.erase(gpu);
  request.sheds_functions = gpus;
  return request;
}

/// The context with the settings of the vGPU stage. It may quiesce the same services as the bind and unbind
/// stages, in the same way. These services stay stopped until the last stage is over, because a service
/// started earlier would open the GPUs again before the last stage.
NodeContext dividing(NodeContext context, const policy::ResolvedPolicy& resolved) {
  vgpu::VgpuHost& out = context.vgpu_host;
  out.release = resolved.release;
  if (resolved.foreign) out.spares_foreign = *resolved.foreign == policy::Foreign::keep;
  out.service_manager = context.rebind_context.service_manager;
  out.persistence = context.rebind_context.persistence;
  out.on_release = context.rebind_context.on_step;
  out.more_follows = true;
  return context;
}

/// Adds the other obstacles for these GPUs: those to the loss of their vGPUs and functions.
Result<> add_what_keeps_vgpus(const vgpu::VgpuHost& on, const vgpu::Profile& vgpus,
                              const vfio::Inventory* scanned, std::vector<vfio::Refusal>& refusals) {
  auto snapshot = look(on, {&vgpus, 1}, scanned);
  if (!snapshot) return fail(snapshot.error());
  // The users of the GPU itself are among the reasons already.
  for (const vfio::Refusal& refusal : refusals)
    for (const vfio::PciAddress& gpu : refusal.devices) snapshot->use.users.erase(gpu.text());
  for (const vgpu::GpuPlan& plan : vgpu::plan_profile(vgpus, *snapshot).gpus) {
    if (!plan.refusal) continue;
    for (vfio::Refusal& refusal : refusals) {
      if (contains(refusal.devices, plan.gpu))
        append(refusal.reasons, vgpu::reasons_of(*plan.refusal, plan.reasons));
    }
  }
  return {};
}

// GPUs whose bind to vfio would be refused keep their vGPUs and functions, which would otherwise be lost in
// vain. Returns these refusals.
Result<std::vector<vfio::Refusal>> keep_what_cannot_go(const NodeContext& context, PolicyInput& input,
                                                       const vfio::Inventory* scanned) {
  std::set<vfio::PciAddress> emptied;  // they lose vGPUs or virtual functions before they go to vfio
  for (const mdev::VgpuGpu& gpu : input.vgpus.gpus) {
    const auto mode = input.resolved.modes.find(gpu.address());
    const bool goes = mode != input.resolved.modes.end() && mode->second == policy::Mode::passthrough;
    const bool loses = !gpu.devices.empty() || gpu.function.sriov_numvfs > 0;
    if (goes && loses && !vfio::on_vfio_driver(gpu.function)) emptied.insert(gpu.address());
  }
  if (emptied.empty()) return std::vector<vfio::Refusal>{};

  auto away = vfio::preview_rebinds(context.rebind_context, once_empty(to_give_away(context, input), emptied),
                                    vfio::Direction::to_vfio, scanned);
  if (!away) return fail(std::move(away).error());
  const auto loses_nothing = [&](const vfio::Refusal& refusal) {
    return std::ranges::none_of(refusal.devices,
                                [&](const vfio::PciAddress& gpu) { return emptied.contains(gpu); });
  };
  std::erase_if(away->plan.refusals, loses_nothing);
  const auto is_refused = [&](const vgpu::ProfileItem& item) {
    return item.only && std::ranges::any_of(away->plan.refusals, [&](const vfio::Refusal& refusal) {
             return contains(refusal.devices, *item.only);
           });
  };
  if (away->plan.refusals.empty()) return std::vector<vfio::Refusal>{};

  vgpu::Profile refused = input.resolved.vgpus;
  std::erase_if(refused.items, [&](const vgpu::ProfileItem& item) { return !is_refused(item); });
  std::erase_if(input.resolved.vgpus.items, is_refused);
  if (auto added = add_what_keeps_vgpus(dividing(context, input.resolved).vgpu_host, refused, scanned,
                                        away->plan.refusals);
      !added)
    return fail(std::move(added).error());
  return std::move(away->plan.refusals);
}

/// The request without the GPUs that are refused already.
vfio::RebindRequest without(vfio::RebindRequest request, const std::vector<vfio::Refusal>& refusals) {
  for (const vfio::Refusal& refusal : refusals)
    for (const vfio::PciAddress& gpu : refusal.devices) std::erase(request.accelerators, gpu);
  return request;
}

// A GPU that could not come back gets no vGPUs; its unbind has been reported already.
vgpu::Profile without_those_still_away(PolicyInput input, const vfio::RebindOutcome& unbound) {
  for (const vfio::RebindResult& result : unbound.results) {
    if (result.status == vfio::RebindResult::Status::done ||
        result.status == vfio::RebindResult::Status::already)
      continue;
    for (const vfio::PciAddress& device : result.devices) {
      const mdev::VgpuGpu* gpu = input.vgpus.find(device);
      std::erase_if(input.resolved.vgpus.items,
                    [&](const vgpu::ProfileItem& item) { return gpu != nullptr && item.matches(*gpu); });
    }
  }
  return std::move(input.resolved.vgpus);
}

}  // namespace

Result<> check_possible(const policy::ResolvedPolicy& resolved, const vfio::Inventory& inventory) {
  for (const auto& [gpu, mode] : resolved.modes) {
    if (mode != policy::Mode::passthrough || inventory.find(gpu) == nullptr) continue;
    for (const vfio::PciAddress& other : vfio::concerned(inventory, {gpu})) {
      const auto of_other = resolved.modes.find(other);
      if (of_other == resolved.modes.end() || of_other->second == policy::Mode::passthrough) continue;
      return fail(Errc::refused,
                  fmt::format("{} is to be passed through and {} is not, but they share an IOMMU group",
                              gpu.text(), other.text()),
                  "give both one mode, or the card another slot");
    }
  }
  return {};
}

NodeContext context_for(NodeContext context, const policy::Policy& policy) {
  context.rebind_context.rules = policy::rules_for(policy, std::move(context.rebind_context.rules));
  context.vgpu_host.rules = policy::rules_for(policy, std::move(context.vgpu_host.rules));
  return context;
}

Result<NodePreview> preview_policy(const NodeContext& on, const policy::Policy& policy,
                                   const vfio::Inventory* scanned) {
  const NodeContext context = context_for(on, policy);
  auto input = read_input(context, policy, scanned);
  if (!input) return fail(std::move(input).error());
  if (auto possible = check_possible(input->resolved, input->inventory); !possible)
    return fail(std::move(possible).error());
  const auto back = to_give_back(context, *input);
  if (!back) return fail(back.error());

  auto unbound = preview(context, back->gpus, vfio::Direction::back, input->inventory);
  if (!unbound) return fail(std::move(unbound).error());
  if (!back->unfinished.accelerators.empty()) {
    auto more = preview(context, back->unfinished, vfio::Direction::back, input->inventory);
    if (!more) return fail(std::move(more).error());
    append(unbound->plan.rebinds, std::move(more->plan.rebinds));
    append(unbound->plan.refusals, std::move(more->plan.refusals));
    append(unbound->notes, std::move(more->notes));
  }

  auto kept = keep_what_cannot_go(context, *input, &input->inventory);
  if (!kept) return fail(std::move(kept).error());
  auto snapshot =
      look(dividing(context, input->resolved).vgpu_host, {&input->resolved.vgpus, 1}, &input->inventory);
  if (!snapshot) return fail(std::move(snapshot).error());
  vgpu::VgpuPlan vgpus = vgpu::plan_profile(input->resolved.vgpus, *snapshot);
  std::set<vfio::PciAddress> emptied;
  for (vgpu::GpuPlan& gpu : vgpus.gpus) {
    if (contains(back->gpus.accelerators, gpu.gpu)) {
      gpu.refusal.reset();
      gpu.notes = {"its vGPUs are planned once it is back on its own driver"};
    }
    if (gpu.matched && !gpu.refusal) emptied.insert(gpu.gpu);
  }

  const vfio::RebindRequest away = without(to_give_away(context, *input), *kept);
  auto bound = preview(context, once_empty(away, emptied), vfio::Direction::to_vfio, input->inventory);
  if (!bound) return fail(std::move(bound).error());
  append(bound->plan.refusals, std::move(*kept));
  return NodePreview{.unbound = std::move(*unbound), .vgpus = std::move(vgpus), .bound = std::move(*bound)};
}

namespace {

// A driver that was just bound may need some seconds to list its vGPU types.
void await_types(const NodeContext& context, const vgpu::Profile& carried,
                 const vfio::RebindOutcome& unbound) {
  constexpr int kMostAttempts = 10;
  constexpr std::chrono::seconds kPollPeriod{1};
  std::vector<vfio::PciAddress> came;
  for (const vfio::RebindResult& result : unbound.results) {
    if (result.status != vfio::RebindResult::Status::done) continue;
    std::ranges::copy_if(result.devices, std::back_inserter(came), [&](const vfio::PciAddress& gpu) {
      return std::ranges::any_of(carried.items, [&](const vgpu::ProfileItem& item) {
        return item.only == gpu && !item.vgpus.empty();
      });
    });
  }
  const auto is_silent = [&](const mdev::VgpuGpu& gpu) {
    return contains(came, gpu.address()) && !gpu.framework->makes_vgpus() && !gpu.may_get_virtual_functions();
  };
  for (int attempt = 1; attempt < kMostAttempts && !came.empty(); ++attempt) {
    const auto inventory = vfio::scan(context.fs());
    if (!inventory) return;
    const auto vgpus = mdev::scan_vgpus(context.fs(), *inventory, context.rebind_context.rules);
    if (!vgpus || std::ranges::none_of(vgpus->gpus, is_silent)) return;
    context.vgpu_host.pause(kPollPeriod);
  }
}

// Runs the stages after the first. An error that keeps a stage from beginning ends the run. If only the last
// stage has anything to do, the scan before the first one serves for all, unless a GPU for the last stage was
// unplugged since. The last stage plans again from a new scan, behind its fences.
NodeOutcome go_on(const NodeContext& context, const policy::Policy& policy, Result<PolicyInput> input,
                  NodeOutcome outcome) {
  const vfio::Inventory first = input->inventory;
  const bool has_whole_gpus_only = std::ranges::all_of(input->vgpus.gpus, [](const mdev::VgpuGpu& gpu) {
    return gpu.devices.empty() && gpu.function.sriov_numvfs == 0;
  });
  const bool wants_no_vgpus = std::ranges::all_of(
      input->resolved.vgpus.items, [](const vgpu::ProfileItem& item) { return item.vgpus.empty(); });
  const bool is_unchanged = outcome.unbound.results.empty() && has_whole_gpus_only && wants_no_vgpus;
  const vfio::Inventory* scanned = is_unchanged ? &first : nullptr;
  const auto kept = keep_what_cannot_go(context, *input, nullptr);
  if (!kept) {
    outcome.error = kept.error();
    return outcome;
  }
  const vgpu::Profile carried = without_those_still_away(std::move(*input), outcome.unbound);
  await_types(context, carried, outcome.unbound);
  auto vgpus = vgpu::apply_profile(context.vgpu_host, carried, {}, scanned);
  if (!vgpus) {
    outcome.error = std::move(vgpus).error().during("vGPUs");
    return outcome;
  }
  outcome.vgpus = std::move(*vgpus);

  const bool all_idle = std::ranges::all_of(outcome.vgpus.gpus, [](const vgpu::GpuOutcome& gpu) {
    return gpu.kind == vgpu::GpuOutcome::Kind::unmanaged || gpu.kind == vgpu::GpuOutcome::Kind::already_so;
  });
  if (!all_idle || !outcome.vgpus.errors.empty()) scanned = nullptr;
  input = read_input(context, policy, scanned);
  if (!input) {
    outcome.error = std::move(input).error();
    return outcome;
  }
  vfio::RebindRequest away = without(to_give_away(context, *input), *kept);
  if (scanned != nullptr) {
    // GPUs that were unplugged after the scan are left out, as a new scan would leave them out.
    const auto unplugged = std::erase_if(away.accelerators, [&](const vfio::PciAddress& gpu) {
      return !context.fs().exists(vfio::sysfs_path(gpu));
    });
    if (unplugged > 0) scanned = nullptr;
  }
  auto bound = rebind(context, away, vfio::Direction::to_vfio, scanned);
  if (bound) {
    outcome.bound = std::move(*bound);
    for (const vfio::Refusal& refusal : *kept)
      outcome.bound.results.push_back(
          {.status = vfio::RebindResult::Status::refused, .devices = refusal.devices, .refusal = refusal});
  } else {
    outcome.error = std::move(bound).error();
  }
  return outcome;
}

Result<NodeOutcome> apply_stages(const NodeContext& context, const policy::Policy& policy) {
  auto input = read_input(context, policy);
  if (!input) return fail(std::move(input).error());
  if (auto possible = check_possible(input->resolved, input->inventory); !possible)
    return fail(std::move(possible).error());
  const auto back = to_give_back(context, *input);
  if (!back) return fail(back.error());
  const auto before = before_stages(context, input->inventory, input->resolved, back->gpus.accelerators);
  if (!before) return fail(before.error());
  NodeOutcome outcome;
  auto unbound = rebind(context, back->gpus, vfio::Direction::back);
  if (!unbound) return fail(std::move(unbound).error());
  if (!back->unfinished.accelerators.empty())
    add(*unbound, rebind(context, back->unfinished, vfio::Direction::back));
  outcome.unbound = std::move(*unbound);
  const NodeContext on = dividing(context, input->resolved);
  outcome = go_on(on, policy, std::move(input), std::move(outcome));
  if (undo_half_done(on, *before, outcome))
    add(outcome.bound, vfio::start_what_was_stopped(context.rebind_context));
  return outcome;
}

}  // namespace

// The last stage resumes the services that a killed run left stopped. If that stage is not reached, they are
// resumed here.
Result<NodeOutcome> apply_policy(const NodeContext& on, const policy::Policy& policy) {
  const NodeContext context = context_for(on, policy);
  auto outcome = apply_stages(context, policy);
  if (outcome && !outcome->error) return outcome;
  auto started = vfio::start_what_was_stopped(context.rebind_context);
  if (outcome && started) {
    add(outcome->bound, std::move(started));
    return outcome;
  }
  std::string troubles;
  for (const Error& trouble : started ? started->errors : std::vector{started.error()})
    troubles += "; " + trouble.message;
  if (!outcome) {
    outcome.error().message += troubles;
  } else if (auto& error = outcome->error; error) {
    error->message += troubles;
  }
  return outcome;
}

}  // namespace ferry::host
