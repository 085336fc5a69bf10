// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "host/node_apply.h"
#include "hostfs/stuck_writes.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/bind/driver_choice.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

using Status = vfio::RebindResult::Status;

/// The reason why a stage has not brought a GPU to its mode.
struct Trouble {
  Error error;
  std::vector<std::string> reasons;            ///< the single reasons of a refusal
  bool refused = false;                        ///< the stage has written nothing
  std::vector<vfio::PciAddress> members = {};  ///< of the unit that the stage has written to
};

/// The reason why a result is refused or failed.
Trouble trouble_of(const vfio::RebindResult& result) {
  return {.error = result.check().error(),
          .reasons = result.refusal.reasons,
          .refused = result.status == Status::refused,
          .members = result.rebind.rebinding()};
}

bool is_about(const vfio::RebindResult& result, const vfio::PciAddress& gpu) {
  return std::ranges::find(result.devices, gpu) != result.devices.end();
}

std::optional<Trouble> trouble_of_bind(const NodeOutcome& outcome, const vfio::PciAddress& gpu) {
  if (const vfio::RebindResult* const result = outcome.bound.find(gpu))
    return result->check() ? std::nullopt : std::optional(trouble_of(*result));
  if (!outcome.error) return std::nullopt;  // it was unplugged, or was not in the request
  return Trouble{.error = *outcome.error, .reasons = {}};
}

std::optional<Trouble> trouble_divided(const NodeOutcome& outcome, const vfio::PciAddress& gpu,
                                       policy::Mode mode) {
  const auto found = std::ranges::find(outcome.vgpus.gpus, gpu, &vgpu::GpuOutcome::gpu);
  if (found == outcome.vgpus.gpus.end()) {
    // A GPU in mode host is complete without the vGPU stage.
    if (!outcome.error || mode != policy::Mode::vgpu) return std::nullopt;
    return Trouble{.error = *outcome.error, .reasons = {}};
  }
  const bool refused = found->kind == vgpu::GpuOutcome::Kind::refused;
  if (!refused && found->kind != vgpu::GpuOutcome::Kind::failed) return std::nullopt;
  const Error error = found->error.value_or(Error{.code = {}, .message = "not done"});
  return Trouble{.error = error, .reasons = vgpu::reasons_of(error, found->reasons), .refused = refused};
}

// A write may also have got stuck during the rollback of an earlier failure, and on another function than the
// GPU.
bool hangs(const NodeContext& context, const Trouble& trouble) {
  if (trouble.error.code == Errc::stuck) return true;
  const auto stuck = stuck_writes(context.fs());
  return !stuck || std::ranges::any_of(*stuck, [&](const StuckWrite& write) {
    return !is_read(write) && std::ranges::any_of(trouble.members, [&](const vfio::PciAddress& member) {
      return concerns(write, member.text());
    });
  });
}

void undo_vgpus(const NodeContext& context, const BeforeStages& before, vgpu::GpuOutcome& gpu,
                const Trouble& why) {
  if (hangs(context, why))
    gpu.undo_errors = {
        {.code = Errc::stuck, .message = gpu.gpu.text() + ": left as it is, since a write has not returned"}};
  else
    gpu.undo_errors = vgpu::put_back(context.vgpu_host, before.resolved.vgpus, gpu);
  const bool refused = why.refused && gpu.undo_errors.empty();
  gpu.kind = refused ? vgpu::GpuOutcome::Kind::refused : vgpu::GpuOutcome::Kind::failed;
  gpu.error = why.error;
  gpu.reasons = why.reasons;
  gpu.before.reset();
}

Trouble prefixed(Trouble trouble, const std::string& what) {
  trouble.error.message = what + ": " + trouble.error.message;
  return trouble;
}

/// A unit of the first stage that is to return to vfio.
struct Returning {
  vfio::RebindResult* result;
  Trouble why;
};

// The trouble of one GPU counts for its whole unit.
std::optional<Trouble> trouble_of_unit(const BeforeStages& before, const NodeOutcome& outcome,
                                       const vfio::RebindResult& result) {
  for (const vfio::PciAddress& gpu : result.devices) {
    const auto mode = before.resolved.modes.find(gpu);
    if (mode == before.resolved.modes.end() || mode->second == policy::Mode::passthrough) continue;
    // A unit in mode host stays, since each of its functions that came back is in the right place.
    if (result.status == Status::failed && mode->second == policy::Mode::vgpu) return trouble_of(result);
    if (result.status != Status::done) continue;
    if (auto trouble = trouble_divided(outcome, gpu, mode->second))
      return prefixed(std::move(*trouble), gpu.text() + " could not be given its vGPUs");
  }
  return std::nullopt;
}

std::vector<Returning> returning(const BeforeStages& before, NodeOutcome& outcome) {
  std::vector<Returning> out;
  for (vfio::RebindResult& result : outcome.unbound.results) {
    const auto was_away = [&](const vfio::Member& member) {
      const vfio::PciFunction* had = before.inventory.find(member.address);
      return had != nullptr && vfio::on_vfio_driver(*had);
    };
    if (std::ranges::none_of(result.rebind.members, was_away)) continue;  // an override alone was left of it
    auto why = trouble_of_unit(before, outcome, result);
    if (why && why->error.code != Errc::stuck) out.push_back({.result = &result, .why = std::move(*why)});
  }
  return out;
}

Result<vfio::RebindRequest> to_vfio_again(const NodeContext& context, const BeforeStages& before,
                                          const std::vector<Returning>& units) {
  const auto inventory = vfio::scan(context.fs());
  if (!inventory) return fail(inventory.error());
  const auto vgpus = vgpu::scan_known_vgpus(context.fs(), *inventory, context.rebind_context.rules);
  if (!vgpus) return fail(vgpus.error());
  vfio::RebindRequest request;
  request.untouchable = mdev::carriers_of_vgpus(
      *vgpus, [&](const mdev::VgpuDevice& device) { return vgpu::is_ours(context.vgpu_host.node, device); });
  request.release = before.resolved.release;
  for (const Returning& unit : units) {
    std::ranges::copy(unit.result->devices, std::back_inserter(request.accelerators));
    for (const vfio::Member& member : unit.result->rebind.members) {
      if (member.role == vfio::MemberRole::taken_along) request.with.insert(member.address);
      const vfio::PciFunction* had = before.inventory.find(member.address);
      if (had == nullptr || !vfio::on_vfio_driver(*had) || had->override_unread) continue;
      request.as_before.emplace(member.address, vfio::OnVfio{.driver = had->driver.value_or(""),
                                                             .driver_override = had->driver_override});
    }
  }
  return request;
}

// The error says why a unit is not on vfio again.
Result<> back_on_vfio(const NodeContext& context, const BeforeStages& before,
                      const Result<vfio::RebindOutcome>& rebound, const vfio::RebindResult& unit) {
  if (!rebound) return fail(rebound.error());
  const vfio::RebindResult* const result = rebound->find(unit.devices.front());
  if (result == nullptr) return fail(Errc::failed, "nothing came of it");
  if (auto done = result->check(); !done) return done;

  // Functions that were on vfio without Ferry are deleted from the undo journal again.
  std::vector<vfio::PciAddress> others;
  for (const vfio::PciAddress& member : unit.rebind.rebinding())
    if (!before.journal.members.contains(member)) others.push_back(member);
  return vfio::erase_from_undo_journal(context.fs(), others);
}

void add_failure(const Returning& unit, const Result<>& on_vfio, NodeOutcome& outcome) {
  vfio::RebindResult& result = *unit.result;
  Error error = unit.why.error;
  if (!on_vfio) {
    error.message += "; taking it to vfio again failed too: " + on_vfio.error().message;
    for (vgpu::GpuOutcome& gpu : outcome.vgpus.gpus) {
      const bool failed =
          gpu.kind == vgpu::GpuOutcome::Kind::failed || gpu.kind == vgpu::GpuOutcome::Kind::refused;
      if (!failed || !is_about(result, gpu.gpu)) continue;
      gpu.kind = vgpu::GpuOutcome::Kind::failed;
      gpu.undo_errors.push_back(Error(on_vfio.error()).during("taking it to vfio again"));
    }
  } else if (unit.why.refused) {
    result.refusal = {.devices = result.devices,
                      .groups = std::move(result.rebind.groups),
                      .reasons = unit.why.reasons,
                      .hint = error.hint};
    result.rebind = {};
    result.status = Status::refused;
    return;
  } else {
    error.message += "; all of it is on vfio as before";
  }
  result.status = Status::failed;
  result.error = std::move(error);
}

// A GPU that came back from vfio for vGPUs and got none is of no use on the host, so it returns to vfio.
bool undo_unbind(const NodeContext& context, const BeforeStages& before, NodeOutcome& outcome) {
  const std::vector<Returning> units = returning(before, outcome);
  if (units.empty()) return false;
  for (const Returning& unit : units) {
    for (vgpu::GpuOutcome& gpu : outcome.vgpus.gpus)
      if (gpu.before && is_about(*unit.result, gpu.gpu)) undo_vgpus(context, before, gpu, unit.why);
  }
  const auto request = to_vfio_again(context, before, units);
  auto rebound = request ? vfio::apply_rebinds(context.rebind_context, *request, vfio::Direction::to_vfio)
                         : Result<vfio::RebindOutcome>(fail(request.error()));
  for (const Returning& unit : units)
    add_failure(unit, back_on_vfio(context, before, rebound, *unit.result), outcome);
  if (!rebound) return true;
  std::ranges::move(rebound->notes, std::back_inserter(outcome.unbound.notes));
  std::ranges::move(rebound->errors, std::back_inserter(outcome.unbound.errors));
  return true;
}

}  // namespace

Result<BeforeStages> before_stages(const NodeContext& context, const vfio::Inventory& inventory,
                                   const policy::ResolvedPolicy& resolved,
                                   const std::vector<vfio::PciAddress>& going_back) {
  BeforeStages before{.inventory = inventory, .journal = {}, .resolved = resolved};
  if (going_back.empty()) return before;
  auto journal = vfio::read_undo_journal(context.fs());
  if (!journal) return fail(std::move(journal).error());
  before.journal = std::move(*journal);
  vfio::read_overrides(context.fs(), *context.rebind_context.writer, vfio::concerned(inventory, going_back),
                       before.inventory);
  return before;
}

bool undo_half_done(const NodeContext& context, const BeforeStages& before, NodeOutcome& outcome) {
  bool any = false;
  for (vgpu::GpuOutcome& gpu : outcome.vgpus.gpus) {
    const auto mode = before.resolved.modes.find(gpu.gpu);
    const bool away = mode != before.resolved.modes.end() && mode->second == policy::Mode::passthrough;
    if (!away || !gpu.before) continue;
    const auto trouble = trouble_of_bind(outcome, gpu.gpu);
    if (!trouble) continue;
    // A GPU that was emptied and then could not go to vfio has lost its vGPUs in vain.
    undo_vgpus(context, before, gpu, prefixed(*trouble, "it could not be bound for passthrough"));
    any = true;
  }
  return undo_unbind(context, before, outcome) || any;
}

}  // namespace ferry::host
