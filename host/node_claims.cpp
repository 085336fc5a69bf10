// SPDX-License-Identifier: Apache-2.0
// The part of NodeKeeper's rounds that concerns claims.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "host/claims/claim_functions.h"
#include "host/claims/claim_state.h"
#include "host/gpu_numbers.h"
#include "host/node_keeper.h"
#include "host/node_observation.h"
#include "host/register_look.h"
#include "hostfs/locks.h"
#include "mdev/gpu_management.h"
#include "policy/policy.h"

namespace ferry::host {
namespace {

// Loading the driver's library takes seconds per GPU.
constexpr std::chrono::minutes kBetweenQuestions{5};
// A driver may list the vGPU types seconds after it has a GPU, or never. Each pause is as long as the wait so
// far.
constexpr NodeKeeper::Clock::duration kFirstLookForTypes = std::chrono::seconds(10);
constexpr NodeKeeper::Clock::duration kLastLookForTypes = std::chrono::minutes(5);

}  // namespace

void NodeKeeper::read_allocation_facts(const ScannedNode& node, const policy::ResolvedPolicy& resolved,
                                       AllocationFacts& facts) {
  std::set<vfio::PciAddress> looked_at = kept_by_claims(node, facts);
  std::erase_if(looked_at, [&](const vfio::PciAddress& gpu) { return node.vgpus.find(gpu) == nullptr; });
  const std::set<vfio::PciAddress> going = on_the_way_to_dra(node, facts);
  auto& asked_at = memory_.allocation.asked_at;
  facts.plugin_is_asked = false;
  facts.use.clear();
  for (const vfio::PciAddress& gpu : looked_at)
    facts.use.emplace(gpu, use_of(host_, node, uses_.for_rebinds, gpu, resolved.release));
  if (going.empty()) {
    asked_at.reset();
    return;
  }
  const std::set<std::string> asked = ids_of(unavailable_for_dra(node, going));
  const StatusMemory& status = memory_.status;
  const bool published =
      status.published && std::ranges::includes(ids_of(status.published->unavailable), asked);
  const auto listing = advertised();
  const bool answered = published && (!plugin_runs(host_) ||
                                      (listing && listing->state_generation >= status.unavailable_since));
  if (!asked_at) asked_at = settings_.now();
  facts.plugin_is_asked =
      !answered && (!published || settings_.now() < *asked_at + settings_.plugin_patience);
  if (answered) asked_at.reset();
  // An unavailable device that the plugin has read and still lists is a pod's. While it may still answer,
  // only other users count.
  GuardedProbes guarded(host_, uses_, {asked, status.unavailable_since});
  const NodeProbes probes = facts.plugin_is_asked ? uses_ : guarded.probes();
  for (const vfio::PciAddress& gpu : going)
    facts.use.emplace(gpu, use_of(host_, node, probes.for_rebinds, gpu, resolved.release));
}

void NodeKeeper::ask_for_placements(const NodeContext& context, ClaimableFacts& facts) {
  auto& answers = memory_.allocation.placements_of;
  std::set<vfio::PciAddress> unknown = gpus_without_placements(facts);
  const std::set<vfio::PciAddress> with_instances = gpus_with_instances(facts);
  unknown.insert(with_instances.begin(), with_instances.end());
  std::erase_if(answers, [&](const auto& entry) { return !unknown.contains(entry.first); });
  const auto why_none = [&](const vfio::PciAddress& gpu, const Result<mdev::ManagedGpu>& said) {
    if (!with_instances.contains(gpu)) return why_no_mixed_sizes(said);
    return said ? std::string() : "NVML does not report its GPU instances (MIG): " + said.error().message;
  };
  for (const vfio::PciAddress& gpu : unknown) {
    const auto known = answers.find(gpu);
    if (known == answers.end() || settings_.now() >= known->second.again) {
      auto said = context.vgpu_host.management != nullptr
                      ? context.vgpu_host.management->read(gpu)
                      : Result<mdev::ManagedGpu>(fail(Errc::unsupported, "this hostd has no library to ask"));
      const std::string why = why_none(gpu, said);
      const bool is_news = known == answers.end() || why != why_none(gpu, known->second.said);
      if (is_news && !why.empty()) spdlog::warn("GPU {}: claims get no vGPUs of it: {}", gpu.text(), why);
      answers.insert_or_assign(
          gpu, LibraryAnswer{.said = std::move(said), .again = settings_.now() + kBetweenQuestions});
    }
    facts.managed.emplace(gpu, answers.at(gpu).said);
  }
}

void NodeKeeper::change_functions_for_claims(const std::vector<FunctionsChange>& changes,
                                             const std::set<std::string>& release,
                                             const NodeContext& context) {
  constexpr unsigned kMostFailures = 3;
  auto& tries = memory_.allocation.functions;
  for (const FunctionsChange& change : changes) {
    const auto known = tries.find(change.gpu);
    if (known != tries.end() && settings_.now() < known->second.again) continue;
    const auto lock = NodeLock::take(host_, settings_.lock_patience);
    const auto done = lock ? change_functions(context, change, release) : Result<>(fail(lock.error()));
    const Moment now = settings_.now();
    const Moment first = known == tries.end() ? now : known->second.first;
    std::string reason = done ? std::string() : done.error().text();
    const bool failed = !done && done.error().code != Errc::refused;
    const unsigned failures = (known == tries.end() ? 0 : known->second.failures) + (failed ? 1U : 0U);
    const bool ends = failures >= kMostFailures;
    if (ends)
      reason +=
          "; this has failed three times, and is tried again once the GPU is bound again or hostd restarts";
    if (!reason.empty() && (known == tries.end() || known->second.reason != reason))
      spdlog::warn("{}: its virtual functions stay as they are: {}", change.gpu.text(), reason);
    const Moment again =
        ends ? Moment::max() : now + std::clamp(now - first, kFirstLookForTypes, kLastLookForTypes);
    tries.insert_or_assign(
        change.gpu, FunctionsTry{.first = first, .again = again, .reason = reason, .failures = failures});
    return;  // claims wait for the round, so the next GPU comes in the next one
  }
}

void NodeKeeper::remember_gpus_without_types(const ClaimableFacts& facts) {
  auto& since = memory_.allocation.without_types_since;
  const std::set<vfio::PciAddress> waiting = gpus_without_types(facts);
  std::erase_if(since, [&](const auto& entry) { return !waiting.contains(entry.first); });
  for (const vfio::PciAddress& gpu : waiting) since.try_emplace(gpu, settings_.now());
}

std::map<vfio::PciAddress, std::vector<std::string>> NodeKeeper::find_lost_claims(
    const GpusWithClaims& claims, const ScannedNode& node, const NodeContext& context) {
  if (lost_claims(claims.prepared, node).empty()) return {};
  // The scan may be older than the record, and a claim may be undone meanwhile: a device is lost if it is not
  // there between two readings of the record that agree.
  const auto now = scan_node(context);
  const auto later = settings_.gpus_with_claims();
  if (!now || !later || later->fault) {
    std::map<vfio::PciAddress, std::vector<std::string>> known;
    for (const api::ClaimableGpu& gpu : claimable_.published())
      if (!gpu.lost_claims.empty()) known.emplace(gpu.address, gpu.lost_claims);
    return known;
  }
  std::vector<Claim> still;
  std::ranges::copy_if(claims.prepared, std::back_inserter(still), [&](const Claim& claim) {
    return std::ranges::find(later->prepared, claim) != later->prepared.end();
  });
  auto lost = lost_claims(still, *now);
  for (const auto& [gpu, uids] : lost) {
    const auto before = std::ranges::find(claimable_.published(), gpu, &api::ClaimableGpu::address);
    for (const std::string& uid : uids) {
      const bool is_known = before != claimable_.published().end() &&
                            std::ranges::find(before->lost_claims, uid) != before->lost_claims.end();
      const auto claim = std::ranges::find(still, uid, &Claim::uid);
      if (!is_known && claim != still.end())
        spdlog::warn("{}: its device of GPU {} is gone: another program has taken it away", claim->label(),
                     gpu.text());
    }
  }
  return lost;
}

void NodeKeeper::schedule_questions(Round& round) const {
  const Moment now = settings_.now();
  const auto come_at = [&](Moment again) {
    if (now < again && again != Moment::max() && (!round.again || again < *round.again)) round.again = again;
  };
  for (const auto& [gpu, answer] : memory_.allocation.placements_of) come_at(answer.again);
  for (const auto& [gpu, one] : memory_.allocation.functions) come_at(one.again);
  for (const auto& [gpu, entry] : memory_.registers.entries) come_at(entry.read + kBetweenReadings);
  if (const auto& undo = memory_.registers.undo_again) come_at(*undo);
  // The status is published after this moment is set, so it may have passed.
  if (memory_.sanitize.again) come_at(std::max(*memory_.sanitize.again, now + std::chrono::milliseconds(1)));
  for (const auto& [gpu, since] : memory_.allocation.without_types_since)
    come_at(now + std::clamp(now - since, kFirstLookForTypes, kLastLookForTypes));
}

Result<> NodeKeeper::allocate_gpus(const ScannedNode& node, const policy::ResolvedPolicy& resolved,
                                   const NodeContext& context) {
  auto claims = settings_.gpus_with_claims();
  if (!claims) return fail(std::move(claims).error());
  std::set<vfio::PciAddress> published;
  for (const api::ClaimableGpu& gpu : claimable_.published()) published.insert(gpu.address);
  auto& tries = memory_.allocation.functions;
  const auto due = functions_to_change(node, resolved, published, *claims);
  std::erase_if(tries, [&](const auto& entry) {
    return std::ranges::find(due, entry.first, &FunctionsChange::gpu) == due.end();
  });
  AllocationFacts facts{
      .for_dra = resolved.for_dra,
      .published = std::move(published),
      .claimed = std::move(claims->gpus),
      .without_functions = gpus_without_functions(claims->missing_functions, node.inventory)};
  for (const auto& [gpu, one] : tries)
    if (resolved.for_dra.contains(gpu) && !one.reason.empty())
      facts.without_functions.emplace(
          gpu, "it has no virtual functions, which vGPUs for claims need: " + one.reason);
  read_allocation_facts(node, resolved, facts);
  const auto write = [&](const Allocations& next) {
    ClaimableFacts claimable{.node = node,
                             .models = context.models,
                             .rules = context.rebind_context.rules,
                             .for_dra = resolved.for_dra,
                             .dra = next.dra,
                             .without_functions = facts.without_functions,
                             .lost_claims = find_lost_claims(*claims, node, context),
                             .unplugged = unplugged_gpus(claims->prepared, node.inventory),
                             .before = claimable_.published()};
    if (auto read = read_claimable_facts(host_, claimable); !read) return read;
    ask_for_placements(context, claimable);
    remember_gpus_without_types(claimable);
    return claimable_.publish(claimable_gpus(claimable));
  };
  Allocations next = allocate(node, facts);
  if (auto written = write(next); !written) return written;
  // A claim may have got a GPU before the file was written; none gets one after it.
  claims = settings_.gpus_with_claims();
  if (!claims) return fail(std::move(claims).error());
  if (claims->gpus != facts.claimed) {
    facts.claimed = std::move(claims->gpus);
    read_allocation_facts(node, resolved, facts);
    next = allocate(node, facts);
    if (auto written = write(next); !written) return written;
  }
  next.fault = claims->fault;
  claims->gpus = std::move(facts.claimed);
  if (!claims->fault && policy_)
    change_functions_for_claims(functions_to_change(node, resolved, next.dra, *claims), resolved.release,
                                context);
  memory_.allocation.last = std::move(next);
  memory_.allocation.is_known = true;
  return {};
}

void NodeKeeper::look_at_claims(const DesiredState& desired) {
  auto plain = make_context_(uses_);
  if (!plain) return;
  const NodeContext context = context_for(std::move(*plain), desired.policy);
  const auto node = scan_node(context, &watch_, &desired.policy);
  if (!node) return;
  const auto numbered = resolve_numbers(host_, desired.policy, node->vgpus);
  if (!numbered) return;
  const policy::ResolvedPolicy resolved = policy::resolve(numbered->policy, node->vgpus, context.models);
  if (policy::check_allocations(resolved, node->inventory, node->vgpus, context.resources, context.dra))
    (void)allocate_gpus(*node, resolved, context);
}

void NodeKeeper::keep_allocations(const ScannedNode& node) {
  if (memory_.allocation.is_known) return;
  auto claims = settings_.gpus_with_claims();
  if (!claims) return;
  AllocationFacts facts{.for_dra = {}, .published = {}, .claimed = std::move(claims->gpus)};
  facts.without_functions = gpus_without_functions(claims->missing_functions, node.inventory);
  for (const api::ClaimableGpu& gpu : claimable_.published()) {
    facts.published.insert(gpu.address);
    facts.for_dra.emplace(gpu.address, policy::AllowedDevices());
  }
  memory_.allocation.last = allocate(node, facts);
  memory_.allocation.last.fault = std::move(claims->fault);
  memory_.allocation.is_known = true;
}

bool NodeKeeper::knows_allocations() {
  if (memory_.allocation.is_known) return true;
  const auto claims = settings_.gpus_with_claims();
  return claims && claims->gpus.empty() && claimable_.published().empty();
}

}  // namespace ferry::host
