// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_functions.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/text/text.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/pci/inventory.h"

namespace ferry::host {

using vfio::PciAddress;

tl::unexpected<Error> no_such_gpu(const PciAddress& gpu) {
  return fail(
      Errc::not_found, fmt::format("there is no GPU {} on this node", gpu.text()),
      "`ferry status` shows the GPUs; `ferry dra` publishes this node's devices again after a change");
}

Result<> check_outcome(const vgpu::GpuOutcome& outcome) {
  for (const std::string& note : outcome.notes) spdlog::info("{}", note);
  if (outcome.kind != vgpu::GpuOutcome::Kind::refused && outcome.kind != vgpu::GpuOutcome::Kind::failed)
    return {};
  Error error = outcome.error.value_or(
      Error{.code = make_error_code(Errc::failed), .message = outcome.gpu.text() + ": it was not changed"});
  for (const Error& undo : outcome.undo_errors) error.message += "; " + undo.message;
  return fail(std::move(error));
}

Result<> check_outcome(const vgpu::VgpuOutcome& outcome, const PciAddress& gpu) {
  const auto found = std::ranges::find(outcome.gpus, gpu, &vgpu::GpuOutcome::gpu);
  return found == outcome.gpus.end() ? no_such_gpu(gpu) : check_outcome(*found);
}

std::string restore_functions(const NodeContext& context, const ClaimedGpu& gpu) {
  const auto outcome = vgpu::enable_functions_again(
      context.vgpu_host,
      {.gpu = gpu.address, .number = gpu.functions, .why = "it had them before it went to a VM whole"});
  if (!outcome) return outcome.error().text();
  for (const Error& error : outcome->errors) spdlog::warn("{}", error.text());
  const auto done = check_outcome(*outcome, gpu.address);
  return done ? std::string() : done.error().text();
}

void note_missing(const NodeContext& context, const ClaimedGpu& gpu, std::string reason,
                  ClaimRecord& record) {
  const auto now = vfio::read_function(context.fs(), gpu.address);
  if (!now || vfio::on_vfio_driver(*now)) return;
  // An earlier claim may have cost the GPU functions.
  const MissingFunctions* const before = record.missing_of(gpu.address);
  const std::uint32_t functions = std::max(gpu.functions, before != nullptr ? before->functions : 0U);
  if (before != nullptr && reason.empty()) reason = before->reason;
  record.remove_missing(gpu.address);
  if (now->sriov_numvfs >= functions) return;
  spdlog::warn("{}: it has {} of the {} that it had before the claim{}{}", gpu.address.text(),
               now->sriov_numvfs, counted(functions, "virtual function"), reason.empty() ? "" : ": ", reason);
  record.put(MissingFunctions{.gpu = gpu.address, .functions = functions, .reason = std::move(reason)});
}

std::vector<FunctionsChange> functions_to_change(const ScannedNode& node,
                                                 const policy::ResolvedPolicy& resolved,
                                                 const std::set<PciAddress>& dra,
                                                 const GpusWithClaims& claims) {
  std::vector<FunctionsChange> out;
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus) {
    const PciAddress& address = gpu.address();
    const vfio::PciFunction& function = gpu.function;
    const bool on_its_driver = !function.problem && function.driver && !vfio::on_vfio_driver(function);
    if (!on_its_driver || claims.gpus.contains(address) || !gpu.devices.empty()) continue;
    const auto allow = resolved.for_dra.find(address);
    if (dra.contains(address)) {
      if (allow == resolved.for_dra.end() || function.sriov_numvfs > 0) continue;
      const auto missing = std::ranges::find(claims.missing_functions, address, &MissingFunctions::gpu);
      if (missing != claims.missing_functions.end())
        out.push_back({.gpu = address,
                       .number = missing->functions,
                       .restores = true,
                       .why = "it had them before a claim"});
      else if (!allow->second.types.empty() && gpu.may_get_virtual_functions())
        out.push_back(
            {.gpu = address, .number = function.sriov_totalvfs, .why = "claims may ask for its vGPUs"});
    } else if (std::ranges::find(claims.made_functions, address.text()) != claims.made_functions.end()) {
      // Without functions only the record changes: those that come later are another's.
      const auto mode = resolved.modes.find(address);
      if (mode == resolved.modes.end() || mode->second == policy::Mode::host)
        out.push_back({.gpu = address, .number = 0, .why = "it has left DRA"});
    }
  }
  return out;
}

Result<> change_functions(const NodeContext& context, const FunctionsChange& change,
                          const std::set<std::string>& release) {
  auto record = load_claim_record(context.fs());
  if (!record) return fail(std::move(record).error());
  if (record->gpus().contains(change.gpu)) return {};
  std::vector<std::string>& made = record->made_functions;
  vgpu::VgpuHost vgpus = context.vgpu_host;
  vgpus.release = release;
  vgpus.spares_foreign = true;
  if (change.number > 0) {
    if (!change.restores && std::ranges::find(made, change.gpu.text()) == made.end()) {
      made.push_back(change.gpu.text());
      if (auto stored = store_claim_record(context.fs(), *record); !stored) return stored;
    }
    const auto outcome =
        vgpu::enable_functions_again(vgpus, {.gpu = change.gpu, .number = change.number, .why = change.why});
    return outcome ? check_outcome(*outcome, change.gpu) : Result<>(fail(outcome.error()));
  }
  vgpu::Profile none{.name = change.why, .items = {}, .place = change.why};
  vgpu::ProfileItem& item = none.items.emplace_back();
  item.only = change.gpu;
  item.whole = true;
  item.place = change.why;
  const auto outcome = vgpu::apply_profile(vgpus, none);
  if (!outcome) return fail(outcome.error());
  if (auto done = check_outcome(*outcome, change.gpu); !done) return done;
  std::erase(made, change.gpu.text());
  return store_claim_record(context.fs(), *record);
}

}  // namespace ferry::host
