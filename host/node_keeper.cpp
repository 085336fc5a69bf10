// SPDX-License-Identifier: Apache-2.0
#include "host/node_keeper.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "host/claims/claim_devices.h"
#include "host/claims/claim_functions.h"
#include "host/gpu_numbers.h"
#include "host/node_observation.h"
#include "host/register_look.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/locks.h"
#include "hostfs/stuck_writes.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_inventory.h"
#include "policy/policy.h"
#include "vfio/bind/fence.h"
#include "vfio/bind/rebind_apply.h"

namespace ferry::host {
namespace {

// Loading the driver's library takes seconds per GPU.
constexpr std::chrono::minutes kBetweenQuestions{5};
// A driver may list the vGPU types seconds after it has a GPU, or never. Each pause is as long as the wait so
// far.
constexpr NodeKeeper::Clock::duration kFirstLookForTypes = std::chrono::seconds(10);
constexpr NodeKeeper::Clock::duration kLastLookForTypes = std::chrono::minutes(5);

api::DesiredMark mark_of(const DesiredState& desired) {
  return {
      .generation = desired.file.generation, .policy = desired.policy.name, .source = desired.file.source};
}

StillAdvertisedProbe::Files files_of(const KeeperSettings& settings) {
  return {.advertised = settings.advertised_file, .liveness = settings.plugin_liveness};
}

void set_node(const NodeContext& context, const DesiredState& desired, ScannedNode node,
              RoundSnapshot& snapshot) {
  snapshot.modes = policy::resolve(desired.policy, node.vgpus, context.models).modes;
  snapshot.models = context.models;
  snapshot.node = std::move(node);
}

/// Takes the facts for the next stage.
void carry(const ReconcileResult& result, RoundSnapshot& snapshot) {
  snapshot.conditions = result.conditions;
  snapshot.error = result.error;
  snapshot.in_vain = result.in_vain;
}

}  // namespace

NodeKeeper::NodeKeeper(HostFs& host, const NodeProbes& uses, MakeContext make_context,
                       KeeperSettings settings)
    : host_(host),
      uses_(uses),
      make_context_(std::move(make_context)),
      settings_(std::move(settings)),
      validations_(host_),
      status_(host_, settings_.status_file, settings_.advertised_file, memory_),
      claimable_(host_, settings_.claimable_file) {}

Round NodeKeeper::round(News news) {
  status_.pass_on_serving(settings_.serving_file());
  const auto cleared = clear_ended_records(host_);
  const std::string fault = cleared ? std::string() : cleared.error().message;
  if (std::exchange(memory_.fault_of_records, fault) != fault && !fault.empty()) spdlog::warn("{}", fault);
  auto desired = read_desired(host_, settings_.desired_file, settings_.profiles);
  BeginSnapshot snapshot;
  snapshot.summary = !desired   ? "cannot be read: " + desired.error().message
                     : *desired ? (*desired)->text
                                : std::string();
  snapshot.may_be_incomplete = desired && *desired && (*desired)->may_be_incomplete;
  snapshot.process_ended = news == News::process_ended;
  if (memory_.attempt.back_off_until) snapshot.allocated = allocated_now();
  snapshot.memory = memory_.attempt;
  snapshot.now = settings_.now();
  BeginResult begin = begin_round(snapshot);
  if (begin.is_news && desired && *desired)
    for (const std::string& warning : (*desired)->warnings) spdlog::warn("{}", warning);
  memory_.attempt = std::move(begin.memory);
  if (begin.kind == BeginResult::Kind::backs_off) {
    if (desired && *desired && !claimable_.published().empty()) look_at_claims(**desired);
    schedule_questions(begin.round);
    return std::move(begin.round);
  }
  Round round = begin.kind == BeginResult::Kind::rereads ? std::move(begin.round)
                : !desired ? roll_back_and_report(std::nullopt, {.error = desired.error()})
                : *desired ? keep_desired_state(std::move(**desired))
                           : keep_without_desired_state();
  look_at_registers();
  schedule_questions(round);
  round.file = named_file(host_, settings_.desired_file);
  if (begin.kind == BeginResult::Kind::rereads) return round;
  if (round.phase != api::NodePhase::applying) memory_.attempt.asked_at.reset();
  memory_.attempt.last = round;
  return round;
}

ReconcileResult NodeKeeper::reconcile_at(Stage stage, RoundSnapshot& snapshot) const {
  snapshot.stage = stage;
  snapshot.plugin_patience = settings_.plugin_patience;
  snapshot.memory = memory_;
  snapshot.now = settings_.now();
  return reconcile(snapshot);
}

ReconcileResult NodeKeeper::reconcile_and_remember(Stage stage, RoundSnapshot& snapshot) {
  ReconcileResult result = reconcile_at(stage, snapshot);
  memory_.attempt = result.memory;
  return result;
}

Result<> NodeKeeper::publish(ReconcileResult& result) {
  if (!result.status) return {};
  // A reader of the state `ready` finds the files.
  if (settings_.validations) validations_.keep(*result.status, policy_ ? &*policy_ : nullptr);
  return status_.publish(std::move(*result.status));
}

void NodeKeeper::remember_vgpus(const ScannedNode& node) {
  auto& questions = memory_.vgpu_use.questions;
  questions.clear();
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus)
    for (const mdev::VgpuDevice& vgpu : gpu.devices) questions.push_back(mdev::use_question(vgpu));
}

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
  const bool answered = published && (!plugin_runs(host_, settings_.plugin_liveness) ||
                                      (listing && listing->state_generation >= status.unavailable_since));
  if (!asked_at) asked_at = settings_.now();
  facts.plugin_is_asked =
      !answered && (!published || settings_.now() < *asked_at + settings_.plugin_patience);
  if (answered) asked_at.reset();
  // An unavailable device that the plugin has read and still lists is a pod's. While it may still answer,
  // only other users count.
  GuardedProbes guarded(host_, uses_, files_of(settings_), {asked, status.unavailable_since});
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

Round NodeKeeper::keep_without_desired_state() {
  policy_.reset();
  const auto report = [this](const Error& error) {
    return report_obstacle(std::nullopt, {.error = error, .ends_unavailability = true});
  };
  const auto context = make_context_(uses_);
  if (!context) return report(context.error());
  if (const auto trouble = roll_back(*context)) return back_off(report(*trouble));
  auto node = scan_node(*context, &watch_);
  if (!node) return report(node.error());
  if (auto forgotten = record_numbers(host_, NumberedPolicy()); !forgotten) return report(forgotten.error());
  if (auto done = allocate_gpus(*node, {}, *context); !done) return report(done.error());
  RoundSnapshot snapshot;
  snapshot.models = context->models;
  snapshot.allocations = memory_.allocation.last;
  snapshot.node = std::move(*node);
  remember_vgpus(snapshot.node);
  ReconcileResult result = reconcile_at(Stage::idle, snapshot);
  if (auto published = publish(result); !published) return report(published.error());
  memory_.attempt = std::move(result.memory);  // a status that is not published ends no row of failures
  return std::move(result.round);
}

void NodeKeeper::heed_plugin() {
  const auto listed = advertised();
  if (!listed || listed->generation == heeded_) return;
  heeded_ = listed->generation;
  // The plugin passes them on over restarts of both.
  for (const auto& errors : listed->fatal_errors) watch_.errors.remember(errors);
  std::set<std::string> sick;
  for (const api::AdvertisedDevice& device : listed->devices)
    if (!device.healthy && !device.awaits_release) sick.insert(device.id);
  if (!std::ranges::includes(sick_, sick)) watch_.bus.doubt();
  sick_ = std::move(sick);
}

Round NodeKeeper::keep_desired_state(DesiredState desired) {
  heed_plugin();
  policy_ = desired.policy;
  RoundSnapshot snapshot;
  snapshot.desired = mark_of(desired);
  auto plain = make_context_(uses_);
  if (!plain) return report_obstacle(snapshot.desired, {.error = plain.error()});
  std::optional<NodeContext> context(context_for(std::move(*plain), desired.policy));
  auto node = scan_node(*context, &watch_, &desired.policy);
  if (!node) return roll_back_and_report(snapshot.desired, {.error = node.error()});
  // The record comes before any change that follows from the numbers.
  auto numbered = resolve_numbers(host_, std::move(desired.policy), node->vgpus);
  const auto recorded = numbered ? record_numbers(host_, *numbered) : Result<>(fail(numbered.error()));
  if (!recorded) return roll_back_and_report(snapshot.desired, {.error = recorded.error()});
  desired.policy = std::move(numbered->policy);
  snapshot.gone_gpus = std::move(numbered->gone);
  const policy::ResolvedPolicy resolved = policy::resolve(desired.policy, node->vgpus, context->models);
  // preview_policy() refuses a policy that fails this check; no GPU changes its allocation for it.
  if (policy::check_allocations(resolved, node->inventory, node->vgpus, context->resources, context->dra)) {
    if (auto done = allocate_gpus(*node, resolved, *context); !done)
      return roll_back_and_report(snapshot.desired, {.error = done.error()});
  } else {
    keep_allocations(*node);
  }
  snapshot.allocations = memory_.allocation.last;
  context->dra = snapshot.allocations.dra;
  auto preview = preview_policy(*context, desired.policy, &node->inventory);
  if (!preview) {
    // A policy that asks for the impossible was read completely, so its devices become available again.
    const bool refused = preview.error().code == Errc::refused;
    return roll_back_and_report(snapshot.desired, {.error = preview.error(), .ends_unavailability = refused});
  }
  snapshot.conditions = conditions_of(*preview);
  snapshot.plan = std::move(*preview);
  set_node(*context, desired, std::move(*node), snapshot);
  if (writes(snapshot.plan)) return prepare_change(*context, desired, std::move(snapshot));
  snapshot.leftovers = has_leftovers(*context, snapshot.node);
  if (reconcile_and_remember(Stage::planned, snapshot).action == Action::scan_result)
    return report_result(*context, desired, std::move(snapshot), uses_);
  GuardedProbes guarded(host_, uses_, files_of(settings_), {});
  return apply(desired, std::move(snapshot), guarded.probes());
}

Round NodeKeeper::prepare_change(const NodeContext& context, const DesiredState& desired,
                                 RoundSnapshot snapshot) {
  // The facts are read in this order, between the writes of status.json: a plugin that starts meanwhile must
  // read the unavailable devices before it lists devices.
  add_users(host_, snapshot.node, uses_.for_rebinds, snapshot.conditions);
  auto listing = advertised();
  if (listing) {
    snapshot.plugin.state_generation = listing->state_generation;
    snapshot.plugin.listed = std::move(*listing);
  }
  remember_vgpus(snapshot.node);
  ReconcileResult next = reconcile_and_remember(Stage::planned, snapshot);
  if (auto published = publish(next); !published)
    return back_off(report_obstacle(snapshot.desired, {.error = published.error()}));

  snapshot.plugin.runs = plugin_runs(host_, settings_.plugin_liveness);
  listing = advertised();
  snapshot.plugin.state_generation = listing ? std::optional(listing->state_generation) : std::nullopt;
  next = reconcile_and_remember(Stage::published, snapshot);
  if (next.action == Action::end) return std::move(next.round);  // it waits for the plugin

  // The plugin's list also counts while no plugin runs, since one may start before the node's lock is taken.
  GuardedProbes advertised_as(host_, uses_, files_of(settings_),
                              {next.asked, memory_.status.unavailable_since});
  const NodeProbes guarded = advertised_as.probes();
  if (next.action == Action::find_pods) {
    snapshot.pods = users_of_listed(host_, snapshot.node, guarded.for_rebinds, snapshot.conditions,
                                    next.asked, advertised().value_or(api::AdvertisedResources()));
    next = reconcile_and_remember(Stage::checked, snapshot);
    if (next.action == Action::roll_back) {
      carry(next, snapshot);
      snapshot.error = roll_back(context);
      const bool failed = snapshot.error.has_value();
      Round round = report_result(context, desired, std::move(snapshot), guarded);
      return failed ? back_off(std::move(round)) : round;
    }
  }
  if (auto published = publish(next); !published)
    return back_off(report_obstacle(snapshot.desired, {.error = published.error()}));
  carry(next, snapshot);
  return apply(desired, std::move(snapshot), guarded);
}

Round NodeKeeper::apply(const DesiredState& desired, RoundSnapshot snapshot, const NodeProbes& uses) {
  auto plain = make_context_(uses);
  if (!plain) return back_off(report_obstacle(snapshot.desired, {.error = plain.error()}));
  std::optional<NodeContext> context(context_for(std::move(*plain), desired.policy));
  context->dra = snapshot.allocations.dra;
  {
    const auto lock = NodeLock::take(host_, settings_.lock_patience);
    if (!lock)
      return back_off(report_obstacle(snapshot.desired, {.error = lock.error(), .of_the_lock = true}));
    auto outcome = apply_policy(*context, desired.policy);
    if (outcome)
      snapshot.outcome = std::move(*outcome);
    else
      snapshot.error = std::move(outcome).error();
  }
  ReconcileResult next = reconcile_and_remember(Stage::attempted, snapshot);
  std::optional<ScannedNode> scanned;
  if (next.action == Action::plan_again) {
    if (auto node = scan_node(*context, &watch_, &desired.policy)) scanned = std::move(*node);
    const auto after = preview_policy(*context, desired.policy, scanned ? &scanned->inventory : nullptr);
    snapshot.still_writes = after && writes(*after);
    next = reconcile_and_remember(Stage::attempted, snapshot);
  }
  carry(next, snapshot);
  Round round = report_result(*context, desired, std::move(snapshot), uses, std::move(scanned));
  return next.in_vain ? back_off(std::move(round)) : round;
}

Round NodeKeeper::report_result(const NodeContext& context, const DesiredState& desired,
                                RoundSnapshot snapshot, const NodeProbes& uses,
                                std::optional<ScannedNode> scanned) {
  if (!scanned) {
    auto node = scan_node(context, &watch_, &desired.policy);
    if (!node) return report_obstacle(snapshot.desired, {.error = node.error()});
    scanned = std::move(*node);
  }
  snapshot.is_outdated = is_outdated(snapshot.plan, snapshot.node, *scanned);
  add_users(host_, *scanned, uses.for_rebinds, snapshot.conditions);
  set_node(context, desired, std::move(*scanned), snapshot);
  remember_vgpus(snapshot.node);
  snapshot.plugin.runs = plugin_runs(host_, settings_.plugin_liveness);
  if (snapshot.plugin.runs) snapshot.plugin.listed = advertised().value_or(api::AdvertisedResources());
  ReconcileResult next = reconcile_and_remember(Stage::finished, snapshot);
  if (next.action == Action::watch_ends) {
    snapshot.ends_are_reported = settings_.watch_ends && settings_.watch_ends(next.round.processes);
    next = reconcile_and_remember(Stage::finished, snapshot);
  }
  if (auto published = publish(next); !published)
    return report_obstacle(snapshot.desired, {.error = published.error()});
  return std::move(next.round);
}

Round NodeKeeper::roll_back_and_report(const std::optional<api::DesiredMark>& desired, Obstacle obstacle) {
  const auto context = make_context_(uses_);
  const auto trouble = context ? roll_back(*context) : std::nullopt;
  if (!trouble) return report_obstacle(desired, std::move(obstacle));
  obstacle.error.message += "; " + trouble->message;
  return back_off(report_obstacle(desired, std::move(obstacle)));
}

Round NodeKeeper::report_obstacle(const std::optional<api::DesiredMark>& desired, Obstacle obstacle) {
  RoundSnapshot snapshot;
  snapshot.desired = desired;
  snapshot.is_scanned = false;
  if (const auto context = make_context_(uses_)) {
    if (auto node = scan_node(*context, &watch_)) {
      snapshot.is_scanned = true;
      snapshot.models = context->models;
      snapshot.node = std::move(*node);
      remember_vgpus(snapshot.node);
      keep_allocations(snapshot.node);
    }
  }
  snapshot.allocations = memory_.allocation.last;
  // Among the earlier unavailable devices are then those for DRA, which the plugin must not advertise.
  if (!knows_allocations()) obstacle.ends_unavailability = false;
  if (!obstacle.ends_unavailability) snapshot.unavailable = status_.unavailable();
  snapshot.obstacle = std::move(obstacle);
  ReconcileResult result = reconcile_and_remember(Stage::failed, snapshot);
  if (auto published = publish(result); !published) spdlog::error("{}", published.error().message);
  return std::move(result.round);
}

Round NodeKeeper::back_off(Round round) {
  memory_.attempt.back_off_until = round.again;
  memory_.attempt.allocated = allocated_now().value_or(std::set<std::string>());
  return round;
}

std::optional<Error> NodeKeeper::roll_back(const NodeContext& context) const {
  if (!has_leftovers(context)) return std::nullopt;
  const auto lock = NodeLock::take(host_, settings_.lock_patience);
  if (!lock) return lock.error();
  auto done = vfio::start_what_was_stopped(context.rebind_context);
  if (!done) return std::move(done).error();
  for (const std::string& note : done->notes) spdlog::info("{}", note);
  if (!done->errors.empty()) return std::move(done->errors.front());
  const auto locks = vfio::recorded_locks(host_);
  if (!locks) return locks.error();
  if (locks->empty() || context.rebind_context.driver_lock == nullptr) return std::nullopt;
  return Error{.code = Errc::failed,
               .message = "the lock of " + locks->front().text() +
                          " against unbinding was left by an earlier run and stays taken",
               .hint = "see what hostd has logged of it, and /run/ferry/stuck-writes"};
}

std::optional<api::AdvertisedResources> NodeKeeper::advertised() const {
  auto read = read_advertised_resources(host_, settings_.advertised_file);
  if (!read) return std::nullopt;
  // Generations may begin again at 1, so a later one answers none of this hostd's.
  if (*read && memory_.status.published && (*read)->state_generation > memory_.status.generation)
    (*read)->state_generation = 0;
  return std::move(*read);
}

std::optional<std::set<std::string>> NodeKeeper::allocated_now() const {
  const auto read = read_advertised_resources(host_, settings_.advertised_file);
  if (!read) return std::nullopt;
  std::set<std::string> ids;
  for (const api::AdvertisedDevice& device : read->value_or(api::AdvertisedResources()).devices)
    if (device.allocated) ids.insert(device.id);
  return ids;
}

Result<> NodeKeeper::look_at_use() {
  const auto& published = memory_.status.published;
  if (!published) return {};
  const auto& questions = memory_.vgpu_use.questions;
  std::map<std::string, std::vector<api::ReportedUser>> seen;
  if (!questions.empty()) {
    auto report = uses_.open_nodes.look(questions);
    if (!report) {
      memory_.vgpu_use.users.clear();  // these users may be outdated
      (void)status_.publish_again(*published);
      return fail(std::move(report).error());
    }
    for (const vfio::UseQuestion& question : questions) {
      const auto found = report->of(question.device);
      // An empty list of users proves nothing if users may have been missed.
      const bool unseen = !report->blind_to(question.device).empty() || !report->unknown.empty();
      if (found.empty() && unseen) continue;
      // The users are sorted, so that a change of order alone does not write the file.
      const std::set<vfio::DeviceUser> users(found.begin(), found.end());
      auto& reported = seen[question.device];
      for (const vfio::DeviceUser& user : users) reported.push_back(reported_user(user));
    }
  }
  memory_.vgpu_use.users = std::move(seen);
  return status_.publish_again(*published);
}

Result<> NodeKeeper::end() {
  const auto& published = memory_.status.published;
  if (!published || published->unavailable.empty()) return {};
  api::HostStatus next = *published;
  if (knows_allocations()) next.unavailable = memory_.allocation.last.unavailable;
  // The change was not attempted, so it has not failed; the next hostd continues it.
  if (next.phase == api::NodePhase::applying) {
    next.error = api::StatusError{.message = "hostd ended before the node reached its desired state",
                                  .hint = "start `ferry hostd` again"};
  }
  return status_.publish_again(std::move(next));
}

}  // namespace ferry::host
