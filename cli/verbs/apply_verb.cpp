// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/options/selection.h"
#include "cli/output/document.h"
#include "cli/output/rebind_report.h"
#include "cli/output/vgpu_report.h"
#include "cli/output/wait_note.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/process/standard_streams.h"
#include "host/claims/claim_record.h"
#include "host/gpu_conditions.h"
#include "host/gpu_numbers.h"
#include "host/node_observation.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

// A stage without results adds no text.
void add(VerbOutput& all, const char* key, const char* heading, bool anything, VerbOutput stage) {
  all.status = worse(all.status, stage.status);
  if (anything) all.text += fmt::format("{}:\n{}", heading, stage.text);
  all.document[key] = std::move(stage.document);
}

template <typename Rebinds>
bool any(const Rebinds& rebinds) {
  if constexpr (std::is_same_v<Rebinds, vfio::RebindPreview>) {
    return !rebinds.plan.rebinds.empty() || !rebinds.plan.refusals.empty() || !rebinds.notes.empty();
  } else {
    return !rebinds.results.empty() || !rebinds.notes.empty() || !rebinds.errors.empty();
  }
}

bool writes(const vfio::RebindOutcome& rebinds) {
  return std::ranges::any_of(rebinds.results, [](const vfio::RebindResult& result) {
    return result.status == vfio::RebindResult::Status::done;
  });
}
// A failed stage need not count here: its exit status is worse than any other.
bool writes(const host::NodeOutcome& node) {
  return writes(node.unbound) || node.vgpus.wrote() || writes(node.bound);
}

/// A policy on the GPUs that are there before the change.
struct PolicyHere {
  policy::ResolvedPolicy resolved;
  std::vector<std::string> idle;  ///< items that match no GPU
  std::string no_gpus;            ///< the sentence where no GPU counts
};

/// Warns on stderr of items that match no GPU.
Result<PolicyHere> read_policy_here(const Session& session, const policy::Policy& policy) {
  const auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(inventory.error());
  const vfio::AcceleratorRules rules = policy::rules_for(policy, session.rules);
  const auto vgpus = vgpu::scan_known_vgpus(*session.host, *inventory, rules);
  if (!vgpus) return fail(vgpus.error());
  const policy::ModelNames models = model_names(session);
  return PolicyHere{.resolved = policy::resolve(policy, *vgpus, models),
                    .idle = idle_items(policy, *inventory, rules, *vgpus, models),
                    .no_gpus = no_gpus(*inventory, rules)};
}

template <typename Node>
VerbOutput show(const Session& session, const policy::Policy& policy, const Node& node,
                const PolicyHere& here) {
  VerbOutput all;
  all.document = {{"policy", policy.name}, {"dry_run", session.dry_run}, {"warnings", here.idle}};
  add(all, "given_back", "back to the host", any(node.unbound),
      show_rebinds(session, node.unbound, {}, vfio::Direction::back));
  VerbOutput vgpus = show_vgpus(session, node.vgpus, {.policy = &here.resolved});
  const bool shows_vgpus = !vgpus.text.empty();
  add(all, "vgpus", "vGPUs", shows_vgpus, std::move(vgpus));
  add(all, "given_away", "to vfio", any(node.bound),
      show_rebinds(session, node.bound, {}, vfio::Direction::to_vfio));
  if constexpr (std::is_same_v<Node, host::NodeOutcome>) {
    if (node.error) {
      all.status = worse(all.status, complain(*node.error));
      all.document["error"] = ferry::cli::to_json(*node.error);
    }
  }
  if (writes(node)) all.status = once_written(all.status);
  if (all.text.empty()) all.text = fmt::format("nothing to do: {}\n", here.no_gpus);
  return all;
}

void refuse(vgpu::GpuPlan& gpu, Error error) {
  gpu.refusal = std::move(error);
}
void refuse(vgpu::GpuOutcome& gpu, Error error) {
  if (gpu.kind != vgpu::GpuOutcome::Kind::already_so) return;
  gpu.kind = vgpu::GpuOutcome::Kind::refused;
  gpu.error = std::move(error);
}

/// Refuses the GPUs with nothing to do that are in their modes and do not work there, as hostd does.
template <typename Node>
Result<> refuse_unready(const Session& session, const host::NodeContext& context,
                        const policy::Policy& policy, const PolicyHere& here, Node& node) {
  auto scanned = host::scan_node(host::context_for(context, policy));
  if (!scanned) return fail(scanned.error());
  std::map<vfio::PciAddress, policy::Mode> modes = here.resolved.modes;
  std::erase_if(modes, [&](const auto& one) { return context.dra.contains(one.first); });
  std::vector<vfio::PciAddress> driverless;
  for (const auto& [gpu, mode] : modes) {
    const vfio::PciFunction* function = scanned->inventory.find(gpu);
    if (function != nullptr && !function->driver) driverless.push_back(gpu);
  }
  read_overrides_shortly(session, driverless, scanned->inventory);  // for the hint
  const host::GpuConditions known = host::conditions_of(node);
  host::GpuConditions conditions = known;
  host::add_unready(*scanned, modes, conditions);
  host::add_driverless(*scanned, modes, conditions);
  for (auto& gpu : node.vgpus.gpus) {
    const auto found = conditions.find(gpu.gpu);
    if (found == conditions.end() || known.contains(gpu.gpu)) continue;
    refuse(gpu, Error{.code = make_error_code(Errc::refused),
                      .message = found->second.reasons.front(),
                      .hint = found->second.hint});
  }
  return {};
}

/// GPUs with ResourceClaims are left out of the change.
void warn_of_claims(const host::NodeContext& context) {
  for (const vfio::PciAddress& gpu : context.dra)
    print_to_stderr("warning: GPU {} has a ResourceClaim, and stays as it is\n", gpu.text());
}

}  // namespace

ExitStatus apply_preview(const Session& session, const policy::Policy& policy, bool foreign,
                         policy::ResourceNames resources) {
  auto context = node_context(session, node_probes(session));
  if (!context) return complain(context.error());
  context->resources = std::move(resources);
  context->vgpu_host.spares_foreign = !foreign;
  const auto here = read_policy_here(session, policy);
  if (!here) return complain(here.error());
  warn_of_claims(*context);
  auto preview = host::preview_policy(*context, policy);
  if (!preview) return complain(preview.error());
  if (const auto judged = refuse_unready(session, *context, policy, *here, *preview); !judged)
    return complain(judged.error());
  return print(session, show(session, policy, *preview, *here));
}

ExitStatus apply_verb(const Session& session, const ProfileOptions& options) {
  const auto policy = chosen_policy(options);
  if (!policy) return complain(policy.error());
  if (session.dry_run) {
    warn_of_numbers(session, *policy);
    return apply_preview(session, *policy, options.foreign);
  }
  auto context = node_context(session, node_probes(session));
  if (!context) return complain(context.error());
  context->vgpu_host.spares_foreign = !options.foreign;
  const auto change = begin_change(session);
  if (!change) return complain(change.error());
  const bool is_recorded = warn_of_numbers(session, *policy);
  // hostd may have prepared a claim before the lock was free.
  auto claims = host::gpus_with_claims(*session.host);
  if (!claims) return complain(claims.error());
  context->dra = std::move(claims->gpus);
  const auto here = read_policy_here(session, *policy);
  if (!here) return complain(here.error());
  warn_of_claims(*context);
  // hostd counts anew, too, and not only after it has changed the GPUs back.
  if (is_recorded)
    if (auto counted = session.host->remove_file(host::kGpuNumbersFile); !counted)
      return complain(counted.error());
  auto outcome = [&] {
    const WaitNote waits(fmt::format("applying policy {}", policy->name));
    return host::apply_policy(*context, *policy);
  }();
  if (!outcome) return complain(outcome.error());
  if (auto judged = refuse_unready(session, *context, *policy, *here, *outcome); !judged && !outcome->error)
    outcome->error = std::move(judged).error();
  return print(session, show(session, *policy, *outcome, *here));
}

}  // namespace ferry::cli
