// SPDX-License-Identifier: Apache-2.0
#include "host/node_keeper.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/boot_id.h"
#include "common/node_lock.h"
#include "common/presence.h"
#include "host/offered_use_probe.h"
#include "host/state_file.h"
#include "vfio/stopped_services.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

Result<ScannedNode> scan_node(const NodeHost& host) {
  auto inventory = scan(*host.moves.host);
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = scan_known_vgpus(*host.moves.host, *inventory, host.moves.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  return ScannedNode{.inventory = std::move(*inventory), .vgpus = std::move(*vgpus)};
}

constexpr const char* kPodsRemedy = "delete the pod first";

WantedMark mark_of(const Wanted& wanted) {
  return {
      .generation = wanted.file.generation, .policy = wanted.policy.name, .asked_by = wanted.file.asked_by};
}

bool owes_services(const HostFs& host) {
  const auto notes = notes_on_stopped_services(host);
  return !notes || !notes->empty();
}

std::set<std::string> ids_of(const std::vector<Withdrawal>& withdrawals) {
  std::set<std::string> ids;
  for (const Withdrawal& one : withdrawals) ids.insert(one.id);
  return ids;
}

void merge(std::vector<Withdrawal>& into, const std::vector<Withdrawal>& more) {
  for (const Withdrawal& one : more)
    if (!ids_of(into).contains(one.id)) into.push_back(one);
}

/// Whether something of it was not refused, or not known to be, before anything was done.
bool beyond(const GpuStandings& after, const GpuStandings& before) {
  return std::ranges::any_of(after, [&](const auto& one) {
    const auto known = before.find(one.first);
    return known == before.end() || known->second.state != one.second.state;
  });
}

/// About all that may keep a GPU from being changed.
std::vector<UseQuestion> questions_about(const HostFs& host, const ScannedNode& node, const PciAddress& gpu) {
  auto questions = use_questions(host, node.inventory, concerned(node.inventory, {gpu}));
  if (const VgpuGpu* divided = node.vgpus.find(gpu))
    for (const VgpuDevice& vgpu : divided->devices) questions.push_back(use_question(vgpu));
  return questions;
}

void log_change(const NodeState& now, const std::optional<NodeState>& before) {
  if (!before || before->phase != now.phase) spdlog::info("node: {}", text(now.phase));
  if (now.error && (!before || before->error != now.error)) {
    spdlog::error("{}", now.error->message);
    if (!now.error->hint.empty()) spdlog::error("hint: {}", now.error->hint);
  }
  for (const AcceleratorState& gpu : now.accelerators) {
    if (gpu.state != Standing::refused && gpu.state != Standing::failed) continue;
    const auto same = [&](const AcceleratorState& other) {
      return other.address == gpu.address && other.state == gpu.state && other.reason == gpu.reason;
    };
    if (!before || std::ranges::none_of(before->accelerators, same))
      spdlog::warn("{}: {}: {}", gpu.address.text(), text(gpu.state), gpu.reason);
  }
}

}  // namespace

NodeKeeper::NodeKeeper(HostFs& host, UseProbe& uses, HostFor node_host, KeeperSettings settings)
    : host_(host), uses_(uses), node_host_(std::move(node_host)), settings_(std::move(settings)) {}

NodeKeeper::Round NodeKeeper::round(Clock::time_point now, News news) {
  auto wanted = read_wanted(host_, settings_.wanted_file);
  const std::string wish = !wanted   ? "cannot be read: " + wanted.error().message
                           : *wanted ? (*wanted)->text
                                     : std::string();
  if (std::exchange(wish_, wish) != wish) {
    failures_ = 0;
    deaf_until_.reset();
  }
  if (deaf_until_ && now < *deaf_until_ && news == News::anything) return last_;
  deaf_until_.reset();
  last_ = reconcile(now, std::move(wanted));
  return last_;
}

NodeKeeper::Round NodeKeeper::reconcile(Clock::time_point now, Result<std::optional<Wanted>> wanted) {
  Round round = !wanted   ? broken(now, std::nullopt, wanted.error())
                : *wanted ? keep(now, **wanted)
                          : nothing_wanted(now);
  round.file = named_file(host_, settings_.wanted_file);
  return round;
}

NodeKeeper::Round NodeKeeper::nothing_wanted(Clock::time_point now) {
  const auto host = node_host_(uses_);
  if (!host) return broken(now, std::nullopt, host.error());
  const auto node = scan_node(*host);
  if (!node) return broken(now, std::nullopt, node.error());
  NodeState next = state_with(std::nullopt, NodePhase::nothing_wanted);
  next.accelerators = describe(*node, {}, {}, host->models);
  if (auto published = publish(now, std::move(next)); !published)
    return broken(now, std::nullopt, published.error());
  failures_ = 0;
  return {.phase = NodePhase::nothing_wanted, .again = {}, .processes = {}, .file = {}};
}

/// Nothing could be begun. The accelerators are told as they were, where they cannot be read now.
NodeKeeper::Round NodeKeeper::broken(Clock::time_point now, const std::optional<WantedMark>& wanted,
                                     const Error& error) {
  const ExitStatus status = exit_status_of(error);
  const auto phase = status == ExitStatus::refused ? NodePhase::refused : NodePhase::failed;
  NodeState next = state_with(wanted, phase);
  next.error = StateError{.message = error.message, .hint = error.hint};
  if (const auto host = node_host_(uses_)) {
    if (const auto node = scan_node(*host)) next.accelerators = describe(*node, {}, {}, host->models);
  }
  if (auto published = publish(now, std::move(next)); !published)
    spdlog::error("{}", published.error().message);
  return {.phase = phase, .status = status, .again = pause(now), .processes = {}, .file = {}};
}

NodeKeeper::Round NodeKeeper::keep(Clock::time_point now, const Wanted& wanted) {
  const WantedMark mark = mark_of(wanted);
  const auto host = node_host_(uses_);
  if (!host) return broken(now, mark, host.error());
  const auto node = scan_node(*host);
  if (!node) return broken(now, mark, node.error());
  const auto preview = preview_policy(*host, wanted.policy);
  if (!preview) return broken(now, mark, preview.error());

  GpuStandings standings = standings_of(*preview);
  if (!writes(*preview)) {
    if (owes_services(host_)) return carry_out(now, wanted, standings, false, uses_);
    return settle(now, *host, wanted, std::move(standings), std::nullopt, uses_);
  }
  ask_who_holds(*node, uses_, standings);
  std::vector<Withdrawal> withdrawn = going(*preview, *node);
  const std::set<std::string> asked = ids_of(withdrawn);
  merge(withdrawn, awaited(standings, *node, offered().value_or(OfferedDevices())));
  NodeState next = state_with(mark, NodePhase::withdrawing);
  next.withdraw = std::move(withdrawn);
  next.accelerators =
      describe(*node, wanted_state(wanted.policy, node->vgpus, host->models).modes, standings, host->models);
  // Published whether or not a plugin is there: one that starts meanwhile reads it before it offers anything.
  if (!asked.empty() && !has_withdrawn(asked)) {
    if (auto published = publish(now, next); !published) return deaf(broken(now, mark, published.error()));
  }
  const bool plugin = plugin_runs();
  const bool answered = !plugin || asked.empty() || has_withdrawn(asked);
  if (const auto deadline = withdrawn_at_ + settings_.plugin_patience; !answered && now < deadline)
    return {.phase = NodePhase::withdrawing, .again = deadline, .processes = {}, .file = {}};

  StillOfferedProbe guard(host_, uses_, settings_.offered_file, answered ? std::set<std::string>() : asked);
  UseProbe& guarded = plugin ? static_cast<UseProbe&>(guard) : uses_;
  if (plugin && answered) {
    refuse_what_pods_have(*node, asked, guarded, standings);
    if (!any(standings, Standing::waiting))
      return settle(now, *host, wanted, std::move(standings), std::nullopt, guarded);
  }
  next.phase = NodePhase::changing;
  if (auto published = publish(now, std::move(next)); !published)
    return deaf(broken(now, mark, published.error()));
  return carry_out(now, wanted, standings, true, guarded);
}

/// The plugin has read that they are withdrawn: what it lists all the same a pod has.
void NodeKeeper::refuse_what_pods_have(const ScannedNode& node, const std::set<std::string>& asked,
                                       UseProbe& guarded, GpuStandings& standings) const {
  const OfferedDevices listing = offered().value_or(OfferedDevices());
  const auto listed = [&](const UseQuestion& question) {
    return asked.contains(question.device) && find_device(host_, listing, question.device) != nullptr;
  };
  for (auto& [gpu, standing] : standings) {
    if (standing.state != Standing::waiting) continue;
    if (std::ranges::none_of(questions_about(host_, node, gpu), listed)) continue;
    standing = GpuStanding();
    standing.state = Standing::refused;
    standing.holders = who_holds(node, guarded, gpu);
    for (const Holder& holder : standing.holders)
      standing.reasons.push_back(gpu.text() + " is in use: " + holder.text());
    standing.hint = kPodsRemedy;
  }
}

/// What the host and the plugin tell from now on may be an echo of what was tried.
NodeKeeper::Round NodeKeeper::deaf(Round round) {
  deaf_until_ = round.again;
  return round;
}

NodeKeeper::Round NodeKeeper::carry_out(Clock::time_point now, const Wanted& wanted,
                                        const GpuStandings& refused_before, bool writes, UseProbe& uses) {
  const WantedMark mark = mark_of(wanted);
  const auto host = node_host_(uses);
  if (!host) return deaf(broken(now, mark, host.error()));
  GpuStandings standings;
  std::optional<Error> error;
  {
    const auto lock = NodeLock::take(host_, settings_.lock_patience);
    if (!lock) return deaf(broken(now, mark, lock.error()));
    auto outcome = apply_policy(*host, wanted.policy);
    if (!outcome) {
      error = std::move(outcome).error();
    } else {
      standings = standings_of(*outcome);
      // That it is still offered besides is as it should be, and no reason.
      for (auto& [gpu, standing] : standings)
        if (const auto known = refused_before.find(gpu);
            known != refused_before.end() && known->second.state == standing.state)
          standing = known->second;
      error = outcome->error;
      for (const auto* moves : {&outcome->given_back, &outcome->given_away})
        if (!error && !moves->errors.empty()) error = moves->errors.front();
    }
  }
  // What is there now is what a plan finds nothing to do about: else the next round would do it all again.
  if (writes && !error && standings.empty()) {
    const auto after = preview_policy(*host, wanted.policy);
    if (after && ferry::writes(*after)) {
      error = Error{.code = make_error_code(Errc::failed),
                    .message = "all was done, and the host is not as wanted",
                    .hint = "`ferry hostd --dry-run` says what is left to do"};
    }
  }
  Round round = settle(now, *host, wanted, standings, error, uses);
  if (error || any(standings, Standing::failed) || (writes && beyond(standings, refused_before))) {
    if (!round.again) round.again = pause(now);
    return deaf(std::move(round));
  }
  return round;
}

/// What came of it is told, and with it who is waited for.
NodeKeeper::Round NodeKeeper::settle(Clock::time_point now, const NodeHost& host, const Wanted& wanted,
                                     GpuStandings standings, const std::optional<Error>& error,
                                     UseProbe& uses) {
  const WantedMark mark = mark_of(wanted);
  const auto node = scan_node(host);
  if (!node) return broken(now, mark, node.error());
  ask_who_holds(*node, uses, standings);
  Round round;
  const bool failed = error || any(standings, Standing::failed);
  const bool refused = any(standings, Standing::refused);
  round.phase = failed ? NodePhase::failed : refused ? NodePhase::refused : NodePhase::as_wanted;
  if (refused) round.status = ExitStatus::refused;
  if (failed) round.status = worse(round.status, error ? exit_status_of(*error) : ExitStatus::failed);
  NodeState next = state_with(mark, round.phase);
  if (error) next.error = StateError{.message = error->message, .hint = error->hint};
  next.accelerators =
      describe(*node, wanted_state(wanted.policy, node->vgpus, host.models).modes, standings, host.models);
  if (plugin_runs()) next.withdraw = awaited(standings, *node, offered().value_or(OfferedDevices()));
  for (const auto& [gpu, standing] : standings)
    for (const Holder& holder : standing.holders)
      if (holder.pid) round.processes.insert(*holder.pid);
  if (failed || (refused && !all_told(standings, next.withdraw))) {
    round.again = pause(now);
  } else {
    failures_ = 0;
  }
  if (auto published = publish(now, std::move(next)); !published) return broken(now, mark, published.error());
  return round;
}

std::vector<Holder> NodeKeeper::who_holds(const ScannedNode& node, UseProbe& uses,
                                          const PciAddress& gpu) const {
  std::vector<Holder> holders;
  const auto questions = questions_about(host_, node, gpu);
  const auto report = uses.look(questions);
  if (!report) return holders;
  for (const UseQuestion& question : questions)
    for (const Holder& holder : report->of(question.device))
      if (std::ranges::find(holders, holder) == holders.end()) holders.push_back(holder);
  return holders;
}

/// Of what is refused, where that is not known yet.
void NodeKeeper::ask_who_holds(const ScannedNode& node, UseProbe& uses, GpuStandings& standings) const {
  for (auto& [gpu, standing] : standings)
    if (standing.state == Standing::refused && standing.holders.empty())
      standing.holders = who_holds(node, uses, gpu);
}

/// Whether somebody tells when each of those that are refused comes free: the plugin of what a pod has, and
/// the kernel of processes that end.
bool NodeKeeper::all_told(const GpuStandings& standings, const std::vector<Withdrawal>& awaited) const {
  const auto ids = ids_of(awaited);
  return std::ranges::all_of(standings, [&](const auto& one) {
    const auto& [gpu, standing] = one;
    if (standing.state != Standing::refused || ids.contains(gpu.text())) return true;
    return settings_.ends_are_told && !standing.holders.empty() &&
           std::ranges::all_of(standing.holders, [](const Holder& holder) { return holder.pid.has_value(); });
  });
}

bool NodeKeeper::plugin_runs() const {
  // Where that cannot be told it is waited for, and what it may have offered is not touched.
  return is_present(host_, settings_.plugin_presence).value_or(true);
}

std::optional<OfferedDevices> NodeKeeper::offered() const {
  auto read = read_offered_devices(host_, settings_.offered_file);
  return read ? std::move(*read) : std::nullopt;
}

/// Whether the plugin has read that these are withdrawn.
bool NodeKeeper::has_withdrawn(const std::set<std::string>& asked) const {
  if (!published_ || !std::ranges::includes(ids_of(published_->withdraw), asked)) return false;
  const auto listing = offered();
  return listing && listing->state_generation >= withdrawn_in_;
}

NodeState NodeKeeper::state_with(const std::optional<WantedMark>& wanted, NodePhase phase) const {
  return {.generation = generation_,
          .pid = ::getpid(),
          .boot_id = boot_id(host_).value_or(""),
          .wanted = wanted,
          .phase = phase,
          .accelerators = {},
          .withdraw = {},
          .error = {}};
}

/// A restart goes on where the last process was: an answer to one of its files answers none of ours.
void NodeKeeper::begin_generations() {
  if (const auto text = host_.read_file(settings_.state_file)) {
    if (const auto before = read_withdrawals(*text)) generation_ = before->generation;
  }
  if (const auto listing = offered()) generation_ = std::max(generation_, listing->state_generation);
}

Result<> NodeKeeper::publish(Clock::time_point now, NodeState next) {
  if (!published_) begin_generations();
  next.generation = generation_;
  if (published_ && *published_ == next) return {};
  next.generation = ++generation_;
  if (auto written = host_.write_file(settings_.state_file, state_file_text(next)); !written) return written;
  log_change(next, published_);
  if (!published_ || ids_of(published_->withdraw) != ids_of(next.withdraw)) {
    withdrawn_in_ = generation_;
    withdrawn_at_ = now;
  }
  published_ = std::move(next);
  return {};
}

Result<> NodeKeeper::end() {
  if (!published_ || published_->withdraw.empty()) return {};
  NodeState next = *published_;
  next.withdraw.clear();
  if (next.phase == NodePhase::withdrawing) {
    next.phase = NodePhase::failed;
    next.error = StateError{.message = "hostd has ended before the node was as wanted",
                            .hint = "start `ferry hostd` again"};
  }
  return publish(withdrawn_at_, std::move(next));
}

NodeKeeper::Clock::time_point NodeKeeper::pause(Clock::time_point now) {
  constexpr unsigned kMost = 5;  // 10 s doubled five times is past the longest
  const auto length = std::min(kLongestPause, kFirstPause * (1U << std::min(failures_, kMost)));
  ++failures_;
  return now + length;
}

}  // namespace ferry
