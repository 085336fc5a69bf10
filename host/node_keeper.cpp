// SPDX-License-Identifier: Apache-2.0
#include "host/node_keeper.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/serving_file.h"
#include "host/node_features.h"
#include "host/state_file.h"
#include "host/usage/offered_use_probe.h"
#include "hostfs/boot_id.h"
#include "hostfs/node_lock.h"
#include "vfio/bind/lock_record.h"
#include "vfio/quiesce/stopped_services.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

Result<ScannedNode> scan_node(const NodeHost& host) {
  auto inventory = vfio::scan(*host.moves.host);
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = vgpu::scan_known_vgpus(*host.moves.host, *inventory, host.moves.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  return ScannedNode{.inventory = std::move(*inventory),
                     .vgpus = std::move(*vgpus),
                     .machine = machine_name(*host.moves.host)};
}

constexpr const char* kPodsRemedy = "delete the pod first";
constexpr const char* kPluginsRemedy =
    "see by its log whether `ferry plugin` answers, and restart it where it does not";

WantedMark mark_of(const Wanted& wanted) {
  return {
      .generation = wanted.file.generation, .policy = wanted.policy.name, .asked_by = wanted.file.asked_by};
}

/// True if a killed run left stopped services or driver locks, which any later run restores.
bool owes_anything(const HostFs& host) {
  const auto notes = vfio::notes_on_stopped_services(host);
  const auto locks = vfio::recorded_locks(host);
  return !notes || !notes->empty() || !locks || !locks->empty();
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

/// True if a standing is new, or differs from that before the attempt.
bool beyond(const GpuStandings& after, const GpuStandings& before) {
  return std::ranges::any_of(after, [&](const auto& one) {
    const auto known = before.find(one.first);
    return known == before.end() || known->second.state != one.second.state;
  });
}

/// True if pods and processes are the only users of the refused GPUs.
bool only_pods_hold(const GpuStandings& standings) {
  return std::ranges::all_of(standings, [](const auto& one) {
    const GpuStanding& standing = one.second;
    return standing.state != Standing::refused ||
           (standing.only_in_use() && std::ranges::all_of(standing.holders, [](const vfio::Holder& holder) {
              return holder.pid || holder.kind == vfio::Holder::Kind::pod;
            }));
  });
}

/// Questions about everything that may keep a GPU from a change.
std::vector<vfio::UseQuestion> questions_about(const HostFs& host, const ScannedNode& node,
                                               const vfio::PciAddress& gpu) {
  if (node.inventory.find(gpu) == nullptr) return {};  // unplugged since
  auto questions = vfio::use_questions(host, node.inventory, vfio::concerned(node.inventory, {gpu}));
  const mdev::VgpuGpu* divided = node.vgpus.find(gpu);
  if (divided == nullptr) return questions;
  for (const mdev::VgpuDevice& vgpu : divided->devices) questions.push_back(mdev::use_question(vgpu));
  for (vfio::UseQuestion& question : vfio::use_questions(host, node.inventory, divided->functions))
    questions.push_back(std::move(question));
  return questions;
}

void log_change(const NodeState& now, const std::optional<NodeState>& before) {
  if (!before || before->phase != now.phase) spdlog::info("node: {}", text(now.phase));
  if (now.error && (!before || before->error != now.error)) {
    spdlog::error("{}", now.error->message);
    if (!now.error->hint.empty()) spdlog::error("hint: {}", now.error->hint);
  }
  const std::string& was = before ? before->stand_back : std::string();
  if (!now.stand_back.empty() && was != now.stand_back)
    spdlog::warn("the device plugin is told to offer nothing: {}", now.stand_back);
  if (now.stand_back.empty() && !was.empty()) spdlog::info("the device plugin is told to serve again");
  for (const AcceleratorState& gpu : now.accelerators) {
    if (gpu.state != Standing::refused && gpu.state != Standing::failed) continue;
    const auto same = [&](const AcceleratorState& other) {
      return other.address == gpu.address && other.state == gpu.state && other.reason == gpu.reason;
    };
    if (!before || std::ranges::none_of(before->accelerators, same))
      spdlog::warn("{}: {}: {}", gpu.address.text(), text(gpu.state), gpu.reason);
  }
}

/// If another process has the node's lock, the change was not attempted and has not failed, so its phase
/// stays `withdrawing`. Absent for other errors.
std::optional<NodePhase> phase_without(const Error& lock) {
  return lock.code == Errc::failed ? std::optional(NodePhase::withdrawing) : std::nullopt;
}

/// Adds devices that the plugin still lists to the device users that the probes find.
class Guarded {
 public:
  Guarded(const HostFs& host, const NodeProbes& uses, const KeeperSettings& settings,
          const StillOfferedProbe::Asked& asked)
      : moves_(host, uses.moves, {settings.offered_file, settings.plugin_presence}, asked),
        vgpus_(host, uses.vgpus, {settings.offered_file, settings.plugin_presence}, asked),
        open_(uses.open) {}
  NodeProbes probes() { return {.moves = moves_, .vgpus = vgpus_, .open = open_}; }

 private:
  StillOfferedProbe moves_;
  StillOfferedProbe vgpus_;
  vfio::UseProbe& open_;
};

}  // namespace

NodeKeeper::NodeKeeper(HostFs& host, const NodeProbes& uses, HostFor node_host, KeeperSettings settings)
    : host_(host), uses_(uses), node_host_(std::move(node_host)), settings_(std::move(settings)) {}

NodeKeeper::Round NodeKeeper::round(News news) {
  hand_on_serving();
  auto wanted = read_wanted(host_, settings_.wanted_file, settings_.profiles);
  const std::string wish = !wanted   ? "cannot be read: " + wanted.error().message
                           : *wanted ? (*wanted)->text
                                     : std::string();
  if (wanted && *wanted && (*wanted)->settling && wish_ != wish) return settling();
  if (std::exchange(wish_, wish) != wish) {
    if (wanted && *wanted)
      for (const std::string& warning : (*wanted)->warnings) spdlog::warn("{}", warning);
    failures_ = 0;
    deaf_until_.reset();
    asked_at_.reset();
  }
  if (deaf_until_ && settings_.now() < *deaf_until_ && news == News::anything && !a_pod_has_ended())
    return last_;
  deaf_until_.reset();
  last_ = reconcile(std::move(wanted));
  if (last_.phase != NodePhase::withdrawing) asked_at_.reset();
  return last_;
}

/// The plugin's order is published at once, even if the round has no other news, because a change of the host
/// may take minutes. If serving.json is unreadable, the last order stands, also one from an earlier hostd.
void NodeKeeper::hand_on_serving() {
  const auto text =
      host_.read_file(settings_.wanted_file.parent_path() / kServingFileName, HostFs::Links::refused);
  const auto said = text                    ? read_serving_file(*text)
                    : is_gone(text.error()) ? Result<std::string>(std::string())
                                            : Result<std::string>(fail(Error(text.error())));
  if (said) {
    stand_back_ = *said;
    serving_fault_.clear();
  } else {
    if (!published_) stand_back_ = left_by_the_last().stand_back;
    if (std::exchange(serving_fault_, said.error().message) != said.error().message) {
      spdlog::error("{}; the device plugin is told what it was told last", said.error().message);
      if (!said.error().hint.empty()) spdlog::error("hint: {}", said.error().hint);
    }
  }
  if (!published_ || published_->stand_back == stand_back_) return;
  NodeState next = *published_;
  next.stand_back = stand_back_;
  if (auto published = publish(std::move(next)); !published) spdlog::error("{}", published.error().message);
}

/// A policy file that is being written may be incomplete, so this round leaves the desired state as it was.
NodeKeeper::Round NodeKeeper::settling() const {
  Round round = last_;
  round.again = settings_.now() + kSettlingPause;
  round.unfinished = true;
  round.file = named_file(host_, settings_.wanted_file);
  return round;
}

NodeKeeper::Round NodeKeeper::reconcile(Result<std::optional<Wanted>> wanted) {
  Round round = !wanted   ? begin_nothing(std::nullopt, wanted.error())
                : *wanted ? keep(**wanted)
                          : nothing_wanted();
  round.file = named_file(host_, settings_.wanted_file);
  return round;
}

/// Resumes services and frees locks that a killed run left, whatever the desired state is. Returns the first
/// error.
std::optional<Error> NodeKeeper::make_good(const NodeHost& host) const {
  if (!owes_anything(host_)) return std::nullopt;
  const auto lock = NodeLock::take(host_, settings_.lock_patience);
  if (!lock) return lock.error();
  auto done = vfio::start_what_was_stopped(host.moves);
  if (!done) return std::move(done).error();
  for (const std::string& note : done->notes) spdlog::info("{}", note);
  if (!done->errors.empty()) return std::move(done->errors.front());
  const auto locks = vfio::recorded_locks(host_);
  if (!locks) return locks.error();
  if (locks->empty() || host.moves.driver_lock == nullptr) return std::nullopt;
  return Error{.code = make_error_code(Errc::failed),
               .message = "the lock of " + locks->front().text() +
                          " against unbinding was left by an earlier run and stays taken",
               .hint = "see what hostd has logged of it, and /run/ferry/hostd/stuck"};
}

/// Reports an error that keeps a change from beginning, after make_good().
NodeKeeper::Round NodeKeeper::begin_nothing(const std::optional<WantedMark>& wanted, const Error& error,
                                            Awaited withdrawn) {
  const auto host = node_host_(uses_);
  const auto trouble = host ? make_good(*host) : std::nullopt;
  if (!trouble) return broken(wanted, error, withdrawn);
  Error both = error;
  both.message += "; " + trouble->message;
  return deaf(broken(wanted, both, withdrawn));
}

NodeKeeper::Round NodeKeeper::nothing_wanted() {
  const auto host = node_host_(uses_);
  if (!host) return broken(std::nullopt, host.error(), Awaited::given_back);
  if (const auto trouble = make_good(*host)) return deaf(broken(std::nullopt, *trouble, Awaited::given_back));
  const auto node = scan_node(*host);
  if (!node) return broken(std::nullopt, node.error(), Awaited::given_back);
  NodeState next = state_with(std::nullopt, NodePhase::nothing_wanted);
  tell(next, *node, {}, {}, host->models);
  if (auto published = publish(std::move(next)); !published)
    return broken(std::nullopt, published.error(), Awaited::given_back);
  failures_ = 0;
  return {.phase = NodePhase::nothing_wanted, .again = {}, .processes = {}, .file = {}};
}

/// Reports an error that kept the round from beginning. If the host cannot be scanned, the accelerators stay
/// as last published. Withdrawals stay too if no better list is known, so that no new pod gets these devices.
NodeKeeper::Round NodeKeeper::broken(const std::optional<WantedMark>& wanted, const Error& error,
                                     Awaited withdrawn, std::optional<NodePhase> as) {
  const ExitStatus status = exit_status_of(error);
  const auto phase = as.value_or(status == ExitStatus::refused ? NodePhase::refused : NodePhase::failed);
  NodeState next = state_with(wanted, phase);
  next.error = StateError{.message = error.message, .hint = error.hint};
  if (published_) {
    next.accelerators = published_->accelerators;
    next.features = published_->features;
  }
  if (const auto host = node_host_(uses_)) {
    if (const auto node = scan_node(*host)) tell(next, *node, {}, {}, host->models);
  }
  if (withdrawn == Awaited::kept)
    next.withdraw = published_ ? published_->withdraw : left_by_the_last().devices;
  if (auto published = publish(std::move(next)); !published) spdlog::error("{}", published.error().message);
  return {.phase = phase, .status = status, .again = pause(), .processes = {}, .file = {}};
}

NodeKeeper::Round NodeKeeper::keep(const Wanted& wanted) {
  const WantedMark mark = mark_of(wanted);
  auto plain = node_host_(uses_);
  if (!plain) return broken(mark, plain.error());
  const std::optional<NodeHost> host(host_for(std::move(*plain), wanted.policy));
  const auto node = scan_node(*host);
  if (!node) return begin_nothing(mark, node.error());
  const auto preview = preview_policy(*host, wanted.policy);
  if (!preview) {
    // A policy that asks for the impossible was read completely, so its withdrawals end.
    const bool refused = preview.error().code == Errc::refused;
    return begin_nothing(mark, preview.error(), refused ? Awaited::given_back : Awaited::kept);
  }

  GpuStandings standings = standings_of(*preview);
  if (!writes(*preview)) {
    if (owes_anything(host_)) {
      Guarded guarded(host_, uses_, settings_, {});
      return carry_out(wanted, standings, false, guarded.probes());
    }
    return settle(*host, wanted, std::move(standings), std::nullopt, uses_);
  }
  ask_who_holds(*node, uses_.moves, standings);
  const OfferedDevices listing = listed_devices();
  std::vector<Withdrawal> withdrawn = going(*preview, *node, listing);
  const std::set<std::string> asked = ids_of(withdrawn);
  merge(withdrawn, awaited(standings, *node, listing));
  merge(withdrawn, coming(*preview));
  NodeState next = state_with(mark, NodePhase::withdrawing);
  next.withdraw = std::move(withdrawn);
  tell(next, *node, policy::wanted_state(wanted.policy, node->vgpus, host->models).modes, standings,
       host->models);
  // The list is published even without a plugin, since one that starts now reads it before it lists devices.
  if (!asked.empty() && !has_withdrawn(asked)) {
    if (auto published = publish(next); !published) return deaf(broken(mark, published.error()));
  }
  const bool plugin = plugin_runs(host_, settings_.plugin_presence);
  const bool answered = !plugin || asked.empty() || has_withdrawn(asked);
  // The deadline counts from the first request, whatever came or went since.
  if (!answered && !asked_at_) asked_at_ = settings_.now();
  if (const auto deadline = asked_at_.value_or(Clock::time_point()) + settings_.plugin_patience;
      !answered && settings_.now() < deadline)
    return {
        .phase = NodePhase::withdrawing, .unfinished = true, .again = deadline, .processes = {}, .file = {}};

  // The plugin's list also counts while no plugin runs, since one may start before the node's lock is taken.
  Guarded offers(host_, uses_, settings_, {asked, withdrawn_in_});
  const NodeProbes guarded = offers.probes();
  if (plugin && answered) {
    refuse_what_pods_have(*node, asked, guarded.moves, standings);
    if (!any(standings, Standing::waiting)) {
      const auto trouble = make_good(*host);
      Round round = settle(*host, wanted, std::move(standings), trouble, guarded);
      return trouble ? deaf(std::move(round)) : round;
    }
  }
  next.phase = NodePhase::changing;
  if (auto published = publish(std::move(next)); !published) return deaf(broken(mark, published.error()));
  return carry_out(wanted, standings, true, guarded);
}

/// The plugin has read the withdrawals, so a device that it still lists has been allocated to a pod.
void NodeKeeper::refuse_what_pods_have(const ScannedNode& node, const std::set<std::string>& asked,
                                       vfio::UseProbe& guarded, GpuStandings& standings) const {
  const OfferedDevices devices = listed_devices();
  const auto listed = [&](const vfio::UseQuestion& question) {
    return asked.contains(question.device) && find_device(host_, devices, question.device) != nullptr;
  };
  for (auto& [gpu, standing] : standings) {
    if (standing.state != Standing::waiting) continue;
    if (std::ranges::none_of(questions_about(host_, node, gpu), listed)) continue;
    standing = GpuStanding();
    standing.state = Standing::refused;
    standing.holders = who_holds(node, guarded, gpu);
    for (const vfio::Holder& holder : standing.holders)
      standing.reasons.push_back(gpu.text() + " is in use: " + holder.text());
    standing.hint = kPodsRemedy;
  }
}

/// After a failed attempt, events are ignored until the back-off ends: the attempt itself probably caused
/// them. Only a device that its pod released ends the back-off early.
NodeKeeper::Round NodeKeeper::deaf(Round round) {
  deaf_until_ = round.again;
  allocated_ = allocated_now().value_or(std::set<std::string>());
  return round;
}

NodeKeeper::Round NodeKeeper::carry_out(const Wanted& wanted, const GpuStandings& refused_before, bool writes,
                                        const NodeProbes& uses) {
  const WantedMark mark = mark_of(wanted);
  auto plain = node_host_(uses);
  if (!plain) return deaf(broken(mark, plain.error()));
  const std::optional<NodeHost> host(host_for(std::move(*plain), wanted.policy));
  GpuStandings standings;
  std::optional<Error> error;
  {
    const auto lock = NodeLock::take(host_, settings_.lock_patience);
    if (!lock) {
      asked_at_.reset();  // the plugin has answered
      return deaf(broken(mark, lock.error(), Awaited::kept, phase_without(lock.error())));
    }
    auto outcome = apply_policy(*host, wanted.policy);
    if (!outcome) {
      error = std::move(outcome).error();
    } else {
      standings = standings_of(*outcome);
      // A GPU that stays refused keeps its first reasons; later ones name the plugin's list, which is
      // correct.
      for (auto& [gpu, standing] : standings)
        if (const auto known = refused_before.find(gpu);
            known != refused_before.end() && known->second.state == standing.state)
          standing = known->second;
      error = outcome->error;
      for (const auto* moves : {&outcome->given_back, &outcome->given_away})
        if (!error && !moves->errors.empty()) error = moves->errors.front();
      if (!error && !outcome->vgpus.errors.empty()) error = outcome->vgpus.errors.front();
    }
  }
  // A second plan must find nothing to do, or else every round would repeat the change.
  if (writes && !error && standings.empty()) {
    const auto after = preview_policy(*host, wanted.policy);
    if (after && ferry::host::writes(*after)) {
      error = Error{.code = make_error_code(Errc::failed),
                    .message = "all was done, and the host is not as wanted",
                    .hint = "`ferry hostd --dry-run` says what is left to do"};
    }
  }
  const bool in_vain =
      error || any(standings, Standing::failed) || (writes && beyond(standings, refused_before));
  Round round = settle(*host, wanted, std::move(standings), error, uses, in_vain);
  return in_vain ? deaf(std::move(round)) : round;
}

/// Publishes the result of a round, with the withdrawals for pods that still have a device.
NodeKeeper::Round NodeKeeper::settle(const NodeHost& host, const Wanted& wanted, GpuStandings standings,
                                     const std::optional<Error>& error, const NodeProbes& uses,
                                     bool in_vain) {
  const WantedMark mark = mark_of(wanted);
  const auto node = scan_node(host);
  if (!node) return broken(mark, node.error());
  ask_who_holds(*node, uses.moves, standings);
  for (auto& [gpu, standing] : standings) {
    const auto silent = [](const vfio::Holder& holder) { return holder.name == kAnyPod; };
    if (standing.state == Standing::refused && std::ranges::any_of(standing.holders, silent))
      standing.hint = kPluginsRemedy;
  }
  Round round;
  const bool failed = error || any(standings, Standing::failed);
  const bool refused = any(standings, Standing::refused);
  round.phase = failed ? NodePhase::failed : refused ? NodePhase::refused : NodePhase::as_wanted;
  if (refused) round.status = ExitStatus::refused;
  if (failed) round.status = worse(round.status, error ? exit_status_of(*error) : ExitStatus::failed);
  NodeState next = state_with(mark, round.phase);
  if (error) next.error = StateError{.message = error->message, .hint = error->hint};
  tell(next, *node, policy::wanted_state(wanted.policy, node->vgpus, host.models).modes, standings,
       host.models);
  if (plugin_runs(host_, settings_.plugin_presence))
    next.withdraw = awaited(standings, *node, listed_devices());
  for (const auto& [gpu, standing] : standings)
    for (const vfio::Holder& holder : standing.holders)
      if (holder.pid) round.processes.insert(*holder.pid);
  if (failed || in_vain || (refused && !all_told(standings, next.withdraw, round.processes))) {
    const auto again = pause();
    // The kubelet forgets a pod without an event, and the agent may have evicted it, so hostd looks soon.
    const bool soon = !failed && !in_vain && only_pods_hold(standings);
    round.again = soon ? std::min(again, settings_.now() + kFirstPause) : again;
  } else {
    failures_ = 0;
    // A device user may close the device without an exit, and the program that reports it may be gone.
    if (refused) round.again = settings_.now() + kLongestPause;
  }
  if (auto published = publish(std::move(next)); !published) return broken(mark, published.error());
  return round;
}

std::vector<vfio::Holder> NodeKeeper::who_holds(const ScannedNode& node, vfio::UseProbe& uses,
                                                const vfio::PciAddress& gpu) const {
  std::vector<vfio::Holder> holders;
  const auto questions = questions_about(host_, node, gpu);
  const auto report = uses.look(questions);
  if (!report) return holders;
  for (const vfio::UseQuestion& question : questions)
    for (const vfio::Holder& holder : report->of(question.device))
      if (std::ranges::find(holders, holder) == holders.end()) holders.push_back(holder);
  return holders;
}

/// Finds the users of refused GPUs that have none listed yet.
void NodeKeeper::ask_who_holds(const ScannedNode& node, vfio::UseProbe& uses, GpuStandings& standings) const {
  for (auto& [gpu, standing] : standings)
    if (standing.state == Standing::refused && standing.holders.empty())
      standing.holders = who_holds(node, uses, gpu);
}

/// True if an event follows for each refused GPU that becomes free: from the plugin for a pod's device, and
/// from the kernel for the end of a process.
bool NodeKeeper::all_told(const GpuStandings& standings, const std::vector<Withdrawal>& awaited,
                          const std::set<int>& processes) const {
  const auto ids = ids_of(awaited);
  const bool ends_are_told = settings_.watch_ends && settings_.watch_ends(processes);
  return std::ranges::all_of(standings, [&](const auto& one) {
    const auto& [gpu, standing] = one;
    if (standing.state != Standing::refused || ids.contains(gpu.text())) return true;
    return ends_are_told && !standing.holders.empty() &&
           std::ranges::all_of(standing.holders,
                               [](const vfio::Holder& holder) { return holder.pid.has_value(); });
  });
}

std::optional<OfferedDevices> NodeKeeper::offered() const {
  auto read = read_offered_devices(host_, settings_.offered_file);
  return read ? std::move(*read) : std::nullopt;
}

/// The plugin's lists; empty if there are none or they cannot be read.
OfferedDevices NodeKeeper::listed_devices() const {
  auto read = read_offered_devices(host_, settings_.offered_file);
  if (read && *read) return std::move(**read);
  return {};
}

/// Absent: the plugin's file cannot be read.
std::optional<std::set<std::string>> NodeKeeper::allocated_now() const {
  const auto read = read_offered_devices(host_, settings_.offered_file);
  if (!read) return std::nullopt;
  std::set<std::string> ids;
  for (const OfferedToKubelet& device : read->value_or(OfferedDevices()).devices)
    if (device.allocated) ids.insert(device.id);
  return ids;
}

/// True if a device that was allocated at the failure, or since then, is no longer allocated.
bool NodeKeeper::a_pod_has_ended() {
  auto now = allocated_now();
  if (!now) return false;
  if (!std::ranges::includes(*now, allocated_)) return true;
  allocated_ = std::move(*now);  // a pod may come and go within one pause
  return false;
}

/// True if the plugin has read that these devices are withdrawn.
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
          .error = {},
          .features = {},
          .stand_back = stand_back_};
}

void NodeKeeper::tell(NodeState& next, const ScannedNode& node, const Modes& wanted,
                      const GpuStandings& standings, const policy::ModelNames& models) {
  next.accelerators = describe(node, wanted, standings, models);
  next.features = features_of(node);
  vgpu_questions_.clear();
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus)
    for (const mdev::VgpuDevice& vgpu : gpu.devices) vgpu_questions_.push_back(mdev::use_question(vgpu));
}

Result<> NodeKeeper::look_at_use() {
  if (!published_) return {};
  std::map<std::string, std::vector<StateHolder>> seen;
  if (!vgpu_questions_.empty()) {
    auto report = uses_.open.look(vgpu_questions_);
    if (!report) {
      vgpu_holders_.clear();  // these users may be outdated
      (void)publish(*published_);
      return fail(std::move(report).error());
    }
    for (const vfio::UseQuestion& question : vgpu_questions_) {
      const auto found = report->of(question.device);
      // An empty list of users proves nothing if users may have been missed.
      const bool unseen = !report->blind_to(question.device).empty() || !report->unknown.empty();
      if (found.empty() && unseen) continue;
      // The users are sorted, so that a change of order alone does not write the file.
      const std::set<vfio::Holder> holders(found.begin(), found.end());
      auto& told = seen[question.device];
      for (const vfio::Holder& holder : holders) told.push_back(state_holder(holder));
    }
  }
  vgpu_holders_ = std::move(seen);
  return publish(*published_);
}

/// The withdrawals that an earlier hostd published.
Withdrawals NodeKeeper::left_by_the_last() const {
  const auto text = host_.read_file(settings_.state_file);
  auto read = text ? read_withdrawals(*text) : Result<Withdrawals>(Withdrawals());
  return read ? std::move(*read) : Withdrawals();
}

/// Generations continue after a restart: the plugin's answer to an earlier hostd is no answer to this one.
void NodeKeeper::begin_generations() {
  if (const auto text = host_.read_file(settings_.state_file)) {
    if (const auto before = read_withdrawals(*text)) generation_ = before->generation;
  }
  if (const auto listing = offered()) generation_ = std::max(generation_, listing->state_generation);
}

Result<> NodeKeeper::publish(NodeState next) {
  if (!published_) begin_generations();
  next.generation = generation_;
  for (AcceleratorState& gpu : next.accelerators)
    for (StateVgpu& vgpu : gpu.vgpus) {
      const auto known = vgpu_holders_.find(vgpu.id);
      vgpu.holders = known == vgpu_holders_.end() ? std::nullopt : std::optional(known->second);
    }
  if (published_ && *published_ == next && host_.exists(settings_.state_file)) return {};
  next.generation = ++generation_;
  if (auto written = host_.write_file(settings_.state_file, state_file_text(next)); !written) return written;
  log_change(next, published_);
  if (!published_ || ids_of(published_->withdraw) != ids_of(next.withdraw)) withdrawn_in_ = generation_;
  published_ = std::move(next);
  return {};
}

Result<> NodeKeeper::end() {
  if (!published_ || published_->withdraw.empty()) return {};
  NodeState next = *published_;
  next.withdraw.clear();
  // The change was not attempted, so it has not failed; the next hostd continues it.
  if (next.phase == NodePhase::withdrawing) {
    next.error = StateError{.message = "hostd has ended before the node was as wanted",
                            .hint = "start `ferry hostd` again"};
  }
  return publish(std::move(next));
}

NodeKeeper::Clock::time_point NodeKeeper::pause() {
  constexpr unsigned kMost = 5;  // 10 s doubled five times exceeds kLongestPause
  const auto length = std::min(kLongestPause, kFirstPause * (1U << std::min(failures_, kMost)));
  ++failures_;
  return settings_.now() + length;
}

}  // namespace ferry::host
