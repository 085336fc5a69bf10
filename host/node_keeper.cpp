// SPDX-License-Identifier: Apache-2.0
#include "host/node_keeper.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "host/gpu_numbers.h"
#include "host/node_observation.h"
#include "host/register_look.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/locks.h"
#include "hostfs/stuck_writes.h"
#include "mdev/vgpu_inventory.h"
#include "policy/policy.h"
#include "vfio/bind/fence.h"
#include "vfio/bind/rebind_apply.h"

namespace ferry::host {
namespace {

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
      status_(host_, settings_.status_file, memory_),
      claimable_(host_) {}

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
  if (begin.is_news && desired && *desired) {
    for (const std::string& warning : (*desired)->warnings) spdlog::warn("{}", warning);
    if ((*desired)->file.cc_mode && !settings_.sets_cc_mode)
      spdlog::warn("/{} asks for a confidential mode, which hostd sets with --set-cc-mode alone",
                   settings_.desired_file.string());
  }
  memory_.attempt = std::move(begin.memory);
  if (begin.kind == BeginResult::Kind::backs_off) {
    if (desired && *desired && !claimable_.published().empty()) look_at_claims(**desired);
    look_at_sanitizing();
    schedule_questions(begin.round);
    return std::move(begin.round);
  }
  Round round = begin.kind == BeginResult::Kind::rereads ? std::move(begin.round)
                : !desired ? roll_back_and_report(std::nullopt, {.error = desired.error()})
                : *desired ? keep_desired_state(std::move(**desired))
                           : keep_without_desired_state();
  look_at_registers();
  look_at_sanitizing();
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

Round NodeKeeper::keep_without_desired_state() {
  policy_.reset();
  memory_.sanitize.policy = policy::Sanitize::off;
  memory_.sanitize.mode.reset();
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
  remember_desired(desired);
  RoundSnapshot snapshot;
  snapshot.desired = api::DesiredMark{
      .generation = desired.file.generation, .policy = desired.policy.name, .source = desired.file.source};
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
  GuardedProbes guarded(host_, uses_, {});
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

  snapshot.plugin.runs = plugin_runs(host_);
  listing = advertised();
  snapshot.plugin.state_generation = listing ? std::optional(listing->state_generation) : std::nullopt;
  next = reconcile_and_remember(Stage::published, snapshot);
  if (next.action == Action::end) return std::move(next.round);  // it waits for the plugin

  // The plugin's list also counts while no plugin runs, since one may start before the node's lock is taken.
  GuardedProbes advertised_as(host_, uses_, {next.asked, memory_.status.unavailable_since});
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
  snapshot.plugin.runs = plugin_runs(host_);
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
  auto read = read_advertised_resources(host_);
  if (!read) return std::nullopt;
  // Generations may begin again at 1, so a later one answers none of this hostd's.
  if (*read && memory_.status.published && (*read)->state_generation > memory_.status.generation)
    (*read)->state_generation = 0;
  return std::move(*read);
}

std::optional<std::set<std::string>> NodeKeeper::allocated_now() const {
  const auto read = read_advertised_resources(host_);
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
