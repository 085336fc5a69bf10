// SPDX-License-Identifier: Apache-2.0
#include "host/node_keeper.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/plugin_files.h"
#include "host/gpu_conditions.h"
#include "host/status_file.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/locks.h"
#include "vfio/bind/fence.h"
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

DesiredMark mark_of(const DesiredState& desired) {
  return {
      .generation = desired.file.generation, .policy = desired.policy.name, .source = desired.file.source};
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

void log_change(const HostStatus& now, const std::optional<HostStatus>& before) {
  if (!before || before->phase != now.phase) spdlog::info("node: {}", text(now.phase));
  if (now.error && (!before || before->error != now.error)) {
    spdlog::error("{}", now.error->message);
    if (!now.error->hint.empty()) spdlog::error("hint: {}", now.error->hint);
  }
  const std::string& was = before ? before->standby : std::string();
  if (!now.standby.empty() && was != now.standby)
    spdlog::warn("the device plugin is on standby: {}", now.standby);
  if (now.standby.empty() && !was.empty()) spdlog::info("the device plugin serves again");
  for (const AcceleratorStatus& gpu : now.accelerators) {
    if (gpu.state != GpuState::blocked && gpu.state != GpuState::failed) continue;
    const auto same = [&](const AcceleratorStatus& other) {
      return other.address == gpu.address && other.state == gpu.state && other.reason == gpu.reason;
    };
    if (!before || std::ranges::none_of(before->accelerators, same))
      spdlog::warn("{}: {}: {}", gpu.address.text(), text(gpu.state), gpu.reason);
  }
}

/// If another process has the node's lock, the change was not attempted and has not failed, so its phase
/// stays `applying`. Absent for other errors.
std::optional<NodePhase> phase_without(const Error& lock) {
  return lock.code == Errc::failed ? std::optional(NodePhase::applying) : std::nullopt;
}

/// Adds devices that the plugin still lists to the device users that the probes find.
class Guarded {
 public:
  Guarded(const HostFs& host, const NodeProbes& uses, const KeeperSettings& settings,
          const StillAdvertisedProbe::Asked& asked)
      : moves_(host, uses.moves, {settings.advertised_file, settings.plugin_liveness}, asked),
        vgpus_(host, uses.vgpus, {settings.advertised_file, settings.plugin_liveness}, asked),
        open_(uses.open) {}
  NodeProbes probes() { return {.moves = moves_, .vgpus = vgpus_, .open = open_}; }

 private:
  StillAdvertisedProbe moves_;
  StillAdvertisedProbe vgpus_;
  vfio::UseProbe& open_;
};

}  // namespace

NodeKeeper::NodeKeeper(HostFs& host, const NodeProbes& uses, HostFor node_host, KeeperSettings settings)
    : host_(host), uses_(uses), node_host_(std::move(node_host)), settings_(std::move(settings)) {}

NodeKeeper::Round NodeKeeper::round(News news) {
  hand_on_serving();
  auto desired = read_desired(host_, settings_.desired_file, settings_.profiles);
  const std::string summary = !desired   ? "cannot be read: " + desired.error().message
                              : *desired ? (*desired)->text
                                         : std::string();
  if (desired && *desired && (*desired)->settling && summary_ != summary) return settling();
  if (std::exchange(summary_, summary) != summary) {
    if (desired && *desired)
      for (const std::string& warning : (*desired)->warnings) spdlog::warn("{}", warning);
    failures_ = 0;
    back_off_until_.reset();
    asked_at_.reset();
  }
  if (back_off_until_ && settings_.now() < *back_off_until_ && news == News::anything && !a_pod_has_ended())
    return last_;
  back_off_until_.reset();
  last_ = reconcile(std::move(desired));
  if (last_.phase != NodePhase::applying) asked_at_.reset();
  return last_;
}

/// The plugin's order is published at once, even if the round has no other news, because a change of the host
/// may take minutes. If serving.json is unreadable, the last order stands, also one from an earlier hostd.
void NodeKeeper::hand_on_serving() {
  const auto text =
      host_.read_file(settings_.desired_file.parent_path() / kServingFileName, HostFs::Links::refused);
  const auto said = text                    ? read_serving_file(*text)
                    : is_gone(text.error()) ? Result<std::string>(std::string())
                                            : Result<std::string>(fail(Error(text.error())));
  if (said) {
    standby_ = *said;
    serving_fault_.clear();
  } else {
    if (!published_) standby_ = left_by_the_last().standby;
    if (std::exchange(serving_fault_, said.error().message) != said.error().message) {
      spdlog::error("{}; the device plugin keeps its last order", said.error().message);
      if (!said.error().hint.empty()) spdlog::error("hint: {}", said.error().hint);
    }
  }
  if (!published_ || published_->standby == standby_) return;
  HostStatus next = *published_;
  next.standby = standby_;
  if (auto published = publish(std::move(next)); !published) spdlog::error("{}", published.error().message);
}

/// A policy file that is being written may be incomplete, so this round leaves the desired state as it was.
NodeKeeper::Round NodeKeeper::settling() const {
  Round round = last_;
  round.again = settings_.now() + kSettlingPause;
  round.unfinished = true;
  round.file = named_file(host_, settings_.desired_file);
  return round;
}

NodeKeeper::Round NodeKeeper::reconcile(Result<std::optional<DesiredState>> desired) {
  Round round = !desired ? begin_nothing(std::nullopt, desired.error()) : *desired ? keep(**desired) : idle();
  round.file = named_file(host_, settings_.desired_file);
  return round;
}

/// Resumes services and frees locks that a killed run left, whatever the desired state is. Returns the first
/// error.
std::optional<Error> NodeKeeper::roll_back(const NodeHost& host) const {
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
  return Error{.code = Errc::failed,
               .message = "the lock of " + locks->front().text() +
                          " against unbinding was left by an earlier run and stays taken",
               .hint = "see what hostd has logged of it, and /run/ferry/hostd/stuck"};
}

/// Reports an error that keeps a change from beginning, after roll_back().
NodeKeeper::Round NodeKeeper::begin_nothing(const std::optional<DesiredMark>& desired, const Error& error,
                                            Awaited withdrawn) {
  const auto host = node_host_(uses_);
  const auto trouble = host ? roll_back(*host) : std::nullopt;
  if (!trouble) return broken(desired, error, withdrawn);
  Error both = error;
  both.message += "; " + trouble->message;
  return back_off(broken(desired, both, withdrawn));
}

NodeKeeper::Round NodeKeeper::idle() {
  const auto host = node_host_(uses_);
  if (!host) return broken(std::nullopt, host.error(), Awaited::given_back);
  if (const auto trouble = roll_back(*host))
    return back_off(broken(std::nullopt, *trouble, Awaited::given_back));
  const auto node = scan_node(*host);
  if (!node) return broken(std::nullopt, node.error(), Awaited::given_back);
  HostStatus next = state_with(std::nullopt, NodePhase::idle);
  tell(next, *node, {}, {}, host->models);
  if (auto published = publish(std::move(next)); !published)
    return broken(std::nullopt, published.error(), Awaited::given_back);
  failures_ = 0;
  return {.phase = NodePhase::idle, .again = {}, .processes = {}, .file = {}};
}

/// Reports an error that kept the round from beginning. If the host cannot be scanned, the accelerators stay
/// as last published. Withdrawals stay too if no better list is known, so that no new pod gets these devices.
NodeKeeper::Round NodeKeeper::broken(const std::optional<DesiredMark>& desired, const Error& error,
                                     Awaited withdrawn, std::optional<NodePhase> as) {
  const ExitStatus status = exit_status_of(error);
  const auto phase = as.value_or(status == ExitStatus::refused ? NodePhase::blocked : NodePhase::failed);
  HostStatus next = state_with(desired, phase);
  next.error = StatusError{.message = error.message, .hint = error.hint};
  if (published_) {
    next.accelerators = published_->accelerators;
    next.features = published_->features;
  }
  if (const auto host = node_host_(uses_))
    if (const auto node = scan_node(*host)) tell(next, *node, {}, {}, host->models);
  if (withdrawn == Awaited::kept)
    next.withdraw = published_ ? published_->withdraw : left_by_the_last().devices;
  if (auto published = publish(std::move(next)); !published) spdlog::error("{}", published.error().message);
  return {.phase = phase, .status = status, .again = pause(), .processes = {}, .file = {}};
}

NodeKeeper::Round NodeKeeper::keep(const DesiredState& desired) {
  const DesiredMark mark = mark_of(desired);
  auto plain = node_host_(uses_);
  if (!plain) return broken(mark, plain.error());
  const std::optional<NodeHost> host(host_for(std::move(*plain), desired.policy));
  const auto node = scan_node(*host);
  if (!node) return begin_nothing(mark, node.error());
  const auto preview = preview_policy(*host, desired.policy);
  if (!preview) {
    // A policy that asks for the impossible was read completely, so its withdrawals end.
    const bool refused = preview.error().code == Errc::refused;
    return begin_nothing(mark, preview.error(), refused ? Awaited::given_back : Awaited::kept);
  }

  GpuConditions conditions = conditions_of(*preview);
  if (!writes(*preview)) {
    if (owes_anything(host_)) {
      Guarded guarded(host_, uses_, settings_, {});
      return carry_out(desired, conditions, false, guarded.probes());
    }
    return settle(*host, desired, std::move(conditions), std::nullopt, uses_);
  }
  ask_who_holds(*node, uses_.moves, conditions);
  const AdvertisedResources listing = listed_devices();
  std::vector<Withdrawal> withdrawn = going(*preview, *node, listing);
  const std::set<std::string> asked = ids_of(withdrawn);
  merge(withdrawn, awaited(conditions, *node, listing));
  merge(withdrawn, coming(*preview));
  HostStatus next = state_with(mark, NodePhase::applying);
  next.withdraw = std::move(withdrawn);
  tell(next, *node, policy::desired_state(desired.policy, node->vgpus, host->models).modes, conditions,
       host->models);
  // The list is published even without a plugin, since one that starts now reads it before it lists devices.
  if (!asked.empty() && !has_withdrawn(asked))
    if (auto published = publish(next); !published) return back_off(broken(mark, published.error()));
  const bool plugin = plugin_runs(host_, settings_.plugin_liveness);
  const bool answered = !plugin || asked.empty() || has_withdrawn(asked);
  // The deadline counts from the first request, whatever came or went since.
  if (!answered && !asked_at_) asked_at_ = settings_.now();
  if (const auto deadline = asked_at_.value_or(Clock::time_point()) + settings_.plugin_patience;
      !answered && settings_.now() < deadline)
    return {.phase = NodePhase::applying, .unfinished = true, .again = deadline, .processes = {}, .file = {}};

  // The plugin's list also counts while no plugin runs, since one may start before the node's lock is taken.
  Guarded advertised_as(host_, uses_, settings_, {asked, withdrawn_in_});
  const NodeProbes guarded = advertised_as.probes();
  if (plugin && answered) {
    refuse_what_pods_have(*node, asked, guarded.moves, conditions);
    if (!any(conditions, GpuState::pending)) {
      const auto trouble = roll_back(*host);
      Round round = settle(*host, desired, std::move(conditions), trouble, guarded);
      return trouble ? back_off(std::move(round)) : round;
    }
  }
  next.phase = NodePhase::applying;
  if (auto published = publish(std::move(next)); !published) return back_off(broken(mark, published.error()));
  return carry_out(desired, conditions, true, guarded);
}

/// The plugin has read the withdrawals, so a device that it still lists has been allocated to a pod.
void NodeKeeper::refuse_what_pods_have(const ScannedNode& node, const std::set<std::string>& asked,
                                       vfio::UseProbe& guarded, GpuConditions& conditions) const {
  const AdvertisedResources devices = listed_devices();
  const auto listed = [&](const vfio::UseQuestion& question) {
    return asked.contains(question.device) && find_device(host_, devices, question.device) != nullptr;
  };
  for (auto& [gpu, condition] : conditions) {
    if (condition.state != GpuState::pending) continue;
    if (std::ranges::none_of(questions_about(host_, node, gpu), listed)) continue;
    condition = GpuCondition();
    condition.state = GpuState::blocked;
    condition.users = who_holds(node, guarded, gpu);
    for (const vfio::DeviceUser& user : condition.users)
      condition.reasons.push_back(gpu.text() + " is in use: " + user.text());
    condition.hint = kPodsRemedy;
  }
}

/// After a failed attempt, events are ignored until the back-off ends: the attempt itself probably caused
/// them. Only a device that its pod released ends the back-off early.
NodeKeeper::Round NodeKeeper::back_off(Round round) {
  back_off_until_ = round.again;
  allocated_ = allocated_now().value_or(std::set<std::string>());
  return round;
}

NodeKeeper::Round NodeKeeper::carry_out(const DesiredState& desired, const GpuConditions& refused_before,
                                        bool writes, const NodeProbes& uses) {
  const DesiredMark mark = mark_of(desired);
  auto plain = node_host_(uses);
  if (!plain) return back_off(broken(mark, plain.error()));
  const std::optional<NodeHost> host(host_for(std::move(*plain), desired.policy));
  GpuConditions conditions;
  std::optional<Error> error;
  {
    const auto lock = NodeLock::take(host_, settings_.lock_patience);
    if (!lock) {
      asked_at_.reset();  // the plugin has answered
      return back_off(broken(mark, lock.error(), Awaited::kept, phase_without(lock.error())));
    }
    auto outcome = apply_policy(*host, desired.policy);
    if (!outcome) {
      error = std::move(outcome).error();
    } else {
      conditions = conditions_of(*outcome);
      // A GPU that stays blocked keeps its first reasons; later ones name the plugin's list, which is
      // correct.
      for (auto& [gpu, condition] : conditions)
        if (const auto known = refused_before.find(gpu);
            known != refused_before.end() && known->second.state == condition.state)
          condition = known->second;
      error = outcome->error;
      for (const auto* moves : {&outcome->given_back, &outcome->given_away})
        if (!error && !moves->errors.empty()) error = moves->errors.front();
      if (!error && !outcome->vgpus.errors.empty()) error = outcome->vgpus.errors.front();
    }
  }
  // A second plan must find nothing to do, or else every round would repeat the change.
  if (writes && !error && conditions.empty()) {
    const auto after = preview_policy(*host, desired.policy);
    if (after && ferry::host::writes(*after)) {
      error = Error{.code = Errc::failed,
                    .message = "every step succeeded, but the host is not in the desired state",
                    .hint = "`ferry hostd --dry-run` says what is left to do"};
    }
  }
  const bool in_vain =
      error || any(conditions, GpuState::failed) || (writes && beyond(conditions, refused_before));
  Round round = settle(*host, desired, std::move(conditions), error, uses, in_vain);
  return in_vain ? back_off(std::move(round)) : round;
}

/// Publishes the result of a round, with the withdrawals for pods that still have a device.
NodeKeeper::Round NodeKeeper::settle(const NodeHost& host, const DesiredState& desired,
                                     GpuConditions conditions, const std::optional<Error>& error,
                                     const NodeProbes& uses, bool in_vain) {
  const DesiredMark mark = mark_of(desired);
  const auto node = scan_node(host);
  if (!node) return broken(mark, node.error());
  ask_who_holds(*node, uses.moves, conditions);
  for (auto& [gpu, condition] : conditions) {
    const auto silent = [](const vfio::DeviceUser& user) { return user.name == kAnyPod; };
    if (condition.state == GpuState::blocked && std::ranges::any_of(condition.users, silent))
      condition.hint = kPluginsRemedy;
  }
  Round round;
  const bool failed = error || any(conditions, GpuState::failed);
  const bool refused = any(conditions, GpuState::blocked);
  round.phase = failed ? NodePhase::failed : refused ? NodePhase::blocked : NodePhase::ready;
  if (refused) round.status = ExitStatus::refused;
  if (failed) round.status = worse(round.status, error ? exit_status_of(*error) : ExitStatus::failed);
  HostStatus next = state_with(mark, round.phase);
  if (error) next.error = StatusError{.message = error->message, .hint = error->hint};
  tell(next, *node, policy::desired_state(desired.policy, node->vgpus, host.models).modes, conditions,
       host.models);
  if (plugin_runs(host_, settings_.plugin_liveness))
    next.withdraw = awaited(conditions, *node, listed_devices());
  for (const auto& [gpu, condition] : conditions)
    for (const vfio::DeviceUser& user : condition.users)
      if (user.pid) round.processes.insert(*user.pid);
  if (failed || in_vain || (refused && !all_told(conditions, next.withdraw, round.processes))) {
    const auto again = pause();
    // The kubelet forgets a pod without an event, and the agent may have evicted it, so hostd looks soon.
    const bool soon = !failed && !in_vain && only_pods_hold(conditions);
    round.again = soon ? std::min(again, settings_.now() + kFirstPause) : again;
  } else {
    failures_ = 0;
    // A device user may close the device without an exit, and the program that reports it may be gone.
    if (refused) round.again = settings_.now() + kLongestPause;
  }
  if (auto published = publish(std::move(next)); !published) return broken(mark, published.error());
  return round;
}

std::vector<vfio::DeviceUser> NodeKeeper::who_holds(const ScannedNode& node, vfio::UseProbe& uses,
                                                    const vfio::PciAddress& gpu) const {
  std::vector<vfio::DeviceUser> users;
  const auto questions = questions_about(host_, node, gpu);
  const auto report = uses.look(questions);
  if (!report) return users;
  for (const vfio::UseQuestion& question : questions)
    for (const vfio::DeviceUser& user : report->of(question.device))
      if (std::ranges::find(users, user) == users.end()) users.push_back(user);
  return users;
}

/// Finds the users of blocked GPUs that have none listed yet.
void NodeKeeper::ask_who_holds(const ScannedNode& node, vfio::UseProbe& uses,
                               GpuConditions& conditions) const {
  for (auto& [gpu, condition] : conditions)
    if (condition.state == GpuState::blocked && condition.users.empty())
      condition.users = who_holds(node, uses, gpu);
}

/// True if an event follows for each blocked GPU that becomes free: from the plugin for a pod's device, and
/// from the kernel for the end of a process.
bool NodeKeeper::all_told(const GpuConditions& conditions, const std::vector<Withdrawal>& awaited,
                          const std::set<int>& processes) const {
  const auto ids = ids_of(awaited);
  const bool ends_are_told = settings_.watch_ends && settings_.watch_ends(processes);
  return std::ranges::all_of(conditions, [&](const auto& one) {
    const auto& [gpu, condition] = one;
    if (condition.state != GpuState::blocked || ids.contains(gpu.text())) return true;
    return ends_are_told && !condition.users.empty() &&
           std::ranges::all_of(condition.users,
                               [](const vfio::DeviceUser& user) { return user.pid.has_value(); });
  });
}

std::optional<AdvertisedResources> NodeKeeper::advertised() const {
  auto read = read_advertised_resources(host_, settings_.advertised_file);
  return read ? std::move(*read) : std::nullopt;
}

/// The plugin's lists; empty if there are none or they cannot be read.
AdvertisedResources NodeKeeper::listed_devices() const {
  auto read = read_advertised_resources(host_, settings_.advertised_file);
  if (read && *read) return std::move(**read);
  return {};
}

/// Absent: the plugin's file cannot be read.
std::optional<std::set<std::string>> NodeKeeper::allocated_now() const {
  const auto read = read_advertised_resources(host_, settings_.advertised_file);
  if (!read) return std::nullopt;
  std::set<std::string> ids;
  for (const AdvertisedDevice& device : read->value_or(AdvertisedResources()).devices)
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
  const auto listing = advertised();
  return listing && listing->state_generation >= withdrawn_in_;
}

HostStatus NodeKeeper::state_with(const std::optional<DesiredMark>& desired, NodePhase phase) const {
  return {.generation = generation_,
          .pid = ::getpid(),
          .boot_id = boot_id(host_).value_or(""),
          .desired = desired,
          .phase = phase,
          .accelerators = {},
          .withdraw = {},
          .error = {},
          .features = {},
          .standby = standby_};
}

void NodeKeeper::tell(HostStatus& next, const ScannedNode& node, const Modes& desired,
                      const GpuConditions& conditions, const policy::ModelNames& models) {
  next.accelerators = describe(node, desired, conditions, models);
  next.features = features_of(node);
  vgpu_questions_.clear();
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus)
    for (const mdev::VgpuDevice& vgpu : gpu.devices) vgpu_questions_.push_back(mdev::use_question(vgpu));
}

Result<> NodeKeeper::look_at_use() {
  if (!published_) return {};
  std::map<std::string, std::vector<ReportedUser>> seen;
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
      const std::set<vfio::DeviceUser> users(found.begin(), found.end());
      auto& told = seen[question.device];
      for (const vfio::DeviceUser& user : users) told.push_back(reported_user(user));
    }
  }
  vgpu_holders_ = std::move(seen);
  return publish(*published_);
}

/// The withdrawals that an earlier hostd published.
Withdrawals NodeKeeper::left_by_the_last() const {
  const auto text = host_.read_file(settings_.status_file);
  auto read = text ? read_withdrawals(*text) : Result<Withdrawals>(Withdrawals());
  return read ? std::move(*read) : Withdrawals();
}

/// Generations continue after a restart: the plugin's answer to an earlier hostd is no answer to this one.
void NodeKeeper::begin_generations() {
  if (const auto text = host_.read_file(settings_.status_file))
    if (const auto before = read_withdrawals(*text)) generation_ = before->generation;
  if (const auto listing = advertised()) generation_ = std::max(generation_, listing->state_generation);
}

Result<> NodeKeeper::publish(HostStatus next) {
  if (!published_) begin_generations();
  next.generation = generation_;
  for (AcceleratorStatus& gpu : next.accelerators)
    for (VgpuStatus& vgpu : gpu.vgpus) {
      const auto known = vgpu_holders_.find(vgpu.id);
      vgpu.users = known == vgpu_holders_.end() ? std::nullopt : std::optional(known->second);
    }
  if (published_ && *published_ == next && host_.exists(settings_.status_file)) return {};
  next.generation = ++generation_;
  if (auto written = host_.write_file(settings_.status_file, status_file_text(next)); !written)
    return written;
  log_change(next, published_);
  if (!published_ || ids_of(published_->withdraw) != ids_of(next.withdraw)) withdrawn_in_ = generation_;
  published_ = std::move(next);
  return {};
}

Result<> NodeKeeper::end() {
  if (!published_ || published_->withdraw.empty()) return {};
  HostStatus next = *published_;
  next.withdraw.clear();
  // The change was not attempted, so it has not failed; the next hostd continues it.
  if (next.phase == NodePhase::applying) {
    next.error = StatusError{.message = "hostd ended before the node reached its desired state",
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
