// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/kata_keeper.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "hostfs/locks.h"
#include "kata-manager/artifacts/artifact_links.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/known_artifacts.h"
#include "kata-manager/configuration/kata_users.h"
#include "kata-manager/runtimes/runtime_record.h"

namespace ferry::kata {
namespace {

std::string class_of(const std::filesystem::path& configuration) {
  return configuration.parent_path().filename();
}

/// The class that a file below /etc/ferry/kata belongs to.
std::string class_of_file(const std::filesystem::path& path) {
  const auto inside = path.lexically_relative(kKataConfigurations);
  return inside.empty() ? "" : inside.begin()->string();
}

std::string words_of(const Error& error) {
  return error.hint.empty() ? error.message : error.message + " (" + error.hint + ")";
}

/// Writes nothing. `file` is desired_class_file() of `desired`. Errors, if they do not come from one class
/// alone: as plan_kata() and configured_runtimes().
class Planner {
 public:
  /// `state`: the container runtime's answer. If that has no runtimes, the files count.
  Planner(const HostFs& host, const DesiredClasses& desired, const ClassFile& file,
          const KataRuntime& runtime, const RuntimeState& state, const KataDevices& devices)
      : host_(host),
        desired_(desired),
        file_(file),
        runtime_(runtime.found_runtime),
        asked_(*runtime.asked),
        state_(state),
        devices_(devices),
        possible_(file) {
    possible_.classes.clear();
  }

  Result<DesiredPlan> plan() {
    auto configured = configured_runtimes(host_, runtime_);
    if (!configured) return fail(std::move(configured).error());
    configured_ = std::move(*configured);
    for (const KataClass& kata : file_.classes) sort_out(kata);
    auto setup = set_up(
        host_, possible_, devices_,
        [&](const KataClass& kata) { return Result<std::optional<Artifact>>(artifacts_.at(kata.name)); },
        runtime_.version_of);
    if (!setup) return fail(std::move(setup).error());
    out_.change.runtime = runtime_;
    out_.change.setup = std::move(*setup);
    own_ = out_.change.setup.handlers.size();
    sort_out_leaving();
    // set_up() plans to remove the folders of kept classes, because `possible_` lacks them. They stay.
    std::erase_if(out_.change.setup.gone, [&](const std::string& name) { return kept_.contains(name); });
    std::erase_if(out_.change.setup.files, [&](const FileChange& change) {
      return !change.after && kept_.contains(class_of_file(change.path));
    });
    auto plan = plan_runtime(host_, runtime_, out_.change.setup.handlers);
    if (!plan) return fail(std::move(plan).error());
    out_.change.plan = std::move(*plan);
    // The same handlers in another order need no restart.
    const bool is_in_place = std::ranges::all_of(handlers(), [&](const RuntimeHandler& handler) {
      return std::ranges::any_of(configured_, [&](const auto& one) { return matches(one, handler); });
    });
    if (handlers().size() > own_ && configured_.size() == handlers().size() && is_in_place)
      out_.change.plan.changes.clear();
    find_changes();
    for (auto& [name, other] : others_) out_.others.push_back(std::move(other));
    return std::move(out_);
  }

 private:
  const std::vector<RuntimeHandler>& handlers() const { return out_.change.setup.handlers; }

  void set_state(const std::string& name, HandlerState state, std::string why) {
    others_.insert_or_assign(name, OtherHandler{.name = name, .state = state, .why = std::move(why)});
  }
  void set_aside(const KataClass& kata, HandlerState state, const std::string& why) {
    for (const std::string& name : kata.handlers()) set_state(name, state, why);
    kept_.insert(kata.name);
  }

  // Each class is planned alone first, so that its error does not fail the other classes.
  void sort_out(const KataClass& kata) {
    auto artifact = known_artifact(host_, file_, kata);
    if (!artifact) {
      const bool chosen = artifact.error().code == make_error_code(Errc::refused);
      return set_aside(kata, chosen ? HandlerState::blocked : HandlerState::missing_artifact,
                       words_of(artifact.error()));
    }
    ClassFile alone = file_;
    alone.classes = {kata};
    const auto setup = set_up(
        host_, alone, devices_, [&](const KataClass&) { return artifact; }, runtime_.version_of);
    if (!setup) return set_aside(kata, HandlerState::blocked, words_of(setup.error()));
    for (const RefusedClass& refused : setup->refused)
      for (const std::string& name : kata.handlers())
        set_state(name, HandlerState::blocked, words_of(refused.why));
    if (setup->refused.empty() && !*artifact)
      return set_aside(kata, HandlerState::missing_artifact, kata.artifacts.url + " is to be fetched");
    if (const auto& here = *artifact; here && setup->refused.empty()) {
      const auto link = link_to_make(host_, file_.artifacts_dir, *here);
      if (!link) return set_aside(kata, HandlerState::blocked, words_of(link.error()));
      if (const auto& target = *link) out_.links.emplace(kata.name, *target);
    }
    artifacts_.emplace(kata.name, std::move(*artifact));
    possible_.classes.push_back(kata);
  }

  void sort_out_leaving() {
    for (const ConfiguredRuntime& configured : configured_) {
      if (std::ranges::find(handlers(), configured.name, &RuntimeHandler::name) != handlers().end()) continue;
      const auto set_aside = [&](const KataClass& kata) {
        const auto names = kata.handlers();
        return kept_.contains(kata.name) && std::ranges::find(names, configured.name) != names.end();
      };
      if (kept_.contains(class_of(configured.configuration)) ||
          std::ranges::any_of(file_.classes, set_aside)) {
        out_.change.setup.handlers.push_back(configured.handler());
        continue;
      }
      out_.leaving.insert(configured.name);
      if (!desired_.unlabelled.contains(configured.name)) {
        const auto refused = others_.find(configured.name);
        keep(configured, HandlerState::leaving,
             refused == others_.end() ? "no desired class has it" : refused->second.why);
        continue;
      }
      if (const auto why = in_use(class_of(configured.configuration), {configured.name})) {
        keep(configured, HandlerState::blocked, *why);
      } else {
        out_.changed.insert(configured.name);
      }
    }
    // A killed run may leave a class folder that no handler leads to.
    for (const std::string& name : out_.change.setup.gone) {
      const bool has_handler = std::ranges::any_of(configured_, [&](const ConfiguredRuntime& configured) {
        return class_of(configured.configuration) == name;
      });
      if (kept_.contains(name) || has_handler) continue;
      if (const auto why = in_use(name, {})) {
        set_state(name, HandlerState::blocked, *why);
        kept_.insert(name);
      }
    }
  }

  std::optional<std::string> in_use(const std::string& name, std::vector<std::string> handlers) const {
    LeavingClasses leaving{.classes = {name}, .handlers = std::move(handlers), .others = {}};
    for (const RuntimeHandler& handler : this->handlers()) leaving.others.push_back(handler.name);
    for (const ConfiguredRuntime& configured : configured_)
      if (class_of(configured.configuration) != name) leaving.others.push_back(configured.name);
    const auto who = who_has(host_, asked_, state_, leaving);
    if (!who) return "whether it is in use is not known: " + words_of(who.error());
    const auto& users = *who;
    if (!users) return std::nullopt;
    return "it is no longer desired, and is removed once it is unused: " + *users;
  }

  void keep(const ConfiguredRuntime& configured, HandlerState state, std::string why) {
    set_state(configured.name, state, std::move(why));
    out_.change.setup.handlers.push_back(configured.handler());
    kept_.insert(class_of(configured.configuration));
  }

  bool matches(const ConfiguredRuntime& configured, const RuntimeHandler& handler) const {
    return configured.handler() == handler &&
           (configured.type.empty() || handler.may_have_type(configured.type, runtime_.release));
  }

  bool is_known(const RuntimeHandler& handler) const {
    return !state_.reports_handlers() || state_.knows(handler);
  }

  void find_changes() {
    const KataSetup& setup = out_.change.setup;
    bool all_known = true;
    for (std::size_t i = 0; i < own_; ++i) {
      const RuntimeHandler& handler = setup.handlers[i];
      const bool configured =
          std::ranges::any_of(configured_, [&](const auto& p) { return matches(p, handler); });
      const bool same_files = std::ranges::none_of(setup.files, [&](const FileChange& change) {
        return class_of_file(change.path) == class_of(handler.configuration);
      });
      all_known = all_known && is_known(handler);
      const bool same_link = !out_.links.contains(class_of(handler.configuration));
      if (!configured || !same_files || !same_link || !is_known(handler)) out_.changed.insert(handler.name);
    }
    // A killed run may leave a class folder that no handler leads to, so removals count as changes.
    for (const FileChange& change : setup.files) {
      if (change.after) continue;
      out_.changed.insert(class_of_file(change.path));
      out_.leaving.insert(class_of_file(change.path));
    }
    out_.needed = !out_.change.plan.changes.empty() || !setup.files.empty() || !out_.links.empty() ||
                  !all_known || host_.exists(kRuntimeRecord);
    if (!out_.needed || !out_.changed.empty()) return;
    for (std::size_t i = 0; i < own_; ++i) out_.changed.insert(setup.handlers[i].name);
  }

  const HostFs& host_;
  const DesiredClasses& desired_;
  const ClassFile& file_;
  const FoundRuntime& runtime_;
  ContainerRuntime& asked_;  // queried for its pods
  const RuntimeState& state_;
  const KataDevices& devices_;
  ClassFile possible_;  // `file_` without the classes that are set aside
  std::map<std::string, std::optional<Artifact>> artifacts_;
  std::vector<ConfiguredRuntime> configured_;
  std::set<std::string> kept_;  // classes whose folder and artifact stay as they are
  std::map<std::string, OtherHandler> others_;
  std::size_t own_ = 0;  // number of handlers from set_up(); kept handlers follow them
  DesiredPlan out_;
};

/// The desired state as one text, without its generation and permissions.
std::string summary_of(const DesiredClasses& desired) {
  return fmt::format("{}\n{}", fmt::join(desired.classes, ","), desired.config.text);
}

/// Replaces the entry of `name`.
void set_state(HandlersFile& file, const std::string& name, HandlerState state, const std::string& why) {
  std::erase_if(file.others, [&](const OtherHandler& other) { return other.name == name; });
  file.others.push_back({.name = name, .state = state, .why = why});
}

void set_state(HandlersFile& file, const std::set<std::string>& names, HandlerState state,
               const std::string& why) {
  for (const std::string& name : names) set_state(file, name, state, why);
}

}  // namespace

KataKeeper::KataKeeper(Uses uses, Pauses pauses)
    : uses_(std::move(uses)), pauses_(pauses), pause_(pauses.first), look_again_(pauses.first) {}

KataKeeper::Round KataKeeper::round(Clock::time_point now) {
  const auto state = uses_.asked->state();
  HandlersFile file = published_handlers();
  if (state) {
    const auto ready = ready_handlers(*state);
    if (!ready) {
      log_once(state->name + " does not report its runtimes: nodes get no labels for Kata's");
    } else if (const auto names = unstartable_handlers(*state); !names.empty() && !uses_.runtime_for) {
      log_once(
          fmt::format("{} {} finds the shim of {} by its path alone, and its configuration lacks that path: "
                      "no pod starts with "
                      "it until `ferry kata install` has written it anew",
                      state->name, state->version, fmt::join(names, ", ")));
    } else if (!failure_) {
      logged_.clear();
    }
    file.ready = ready.value_or(std::set<std::string>());
  } else {
    log_once(state.error().message);
  }
  Round out{.answered = state.has_value()};
  if (uses_.runtime_for) {
    out.again = follow_desired_classes(state ? &*state : nullptr, now, file);
  } else {
    file = {.ready = std::move(file.ready)};
  }
  // Before the runtime's first answer nothing is published, so no label appears or goes.
  if (!state && !uses_.runtime_for) return out;
  if (auto published = publish(file); !published) {
    log_once(published.error().message);
    out.answered = false;
  }
  // Last, since it may delete many gigabytes.
  if (const auto settled = std::exchange(settled_, std::nullopt))
    remove_old_versions(settled->classes, *settled->runtime.asked);
  return out;
}

HandlersFile KataKeeper::published_handlers() const {
  const auto text = uses_.host->read_file(api::kReadyHandlersFile);
  if (!text) return {};
  return read_handlers_file(*text).value_or(HandlersFile());
}

KataKeeper::NextRound KataKeeper::follow_desired_classes(const RuntimeState* state, Clock::time_point now,
                                                         HandlersFile& file) {
  const HandlersFile before = published_handlers();
  file.others.clear();
  file.error.clear();
  file.applying = uses_.host->exists(kRuntimeRecord);
  const auto desired = read_desired_classes(*uses_.host);
  NextRound again;
  if (!desired) {
    file.error = words_of(desired.error());
  } else if (const auto& there = *desired) {
    file.generation = there->generation;
    again = reconcile(*there, state, now, file);
  } else {
    file = {.ready = std::move(file.ready), .applying = file.applying};
    failure_.reset();
    return again;
  }
  if (!file.error.empty()) {
    // While the desired state has an error, a handler that began to leave does not become ready again.
    file.others = before.others;
    for (const OtherHandler& other : before.others)
      if (!before.ready.contains(other.name)) file.ready.erase(other.name);
  }
  return again;
}

KataKeeper::NextRound KataKeeper::reconcile(const DesiredClasses& desired, const RuntimeState* state,
                                            Clock::time_point now, HandlersFile& file) {
  if (failure_ && failure_->of != summary_of(desired)) {
    failure_.reset();
    pause_ = pauses_.first;
  }
  auto classes = desired_class_file(desired);
  if (!classes) {
    file.error = words_of(classes.error());
    return std::nullopt;
  }
  // The author of the cluster's class file gets no right to run commands on nodes.
  if (classes->restart.how == RuntimeRestart::How::command) {
    file.error =
        "restart: a command counts in `ferry kata install` alone (name a unit, or none, in the cluster's "
        "class file)";
    return std::nullopt;
  }
  // A killed run may be why the container runtime does not answer, so that run is finished first.
  if (state == nullptr && !file.applying) {
    file.error = "the container runtime does not answer";
    return std::nullopt;
  }
  auto runtime = uses_.runtime_for(*classes);
  if (!runtime) {
    file.error = words_of(runtime.error());
    return now + pauses_.first;
  }
  const auto plan = plan_for(desired, *classes, *runtime, state == nullptr ? RuntimeState() : *state);
  if (!plan) {
    file.error = words_of(plan.error());
    return now + pauses_.first;
  }
  file.others = plan->others;
  for (const std::string& name : plan->leaving) file.ready.erase(name);
  if (!plan->needed) {
    failure_.reset();
    pause_ = pauses_.first;
    settled_.emplace(Settled{.classes = std::move(*classes), .runtime = std::move(*runtime)});
    return later(now, file);
  }
  if (const auto again = wait_before_change(*plan, desired.permitted, *runtime, now, file)) return again;
  return change_under_lock(desired, *classes, *runtime, *plan, now, file);
}

KataKeeper::NextRound KataKeeper::wait_before_change(const DesiredPlan& plan, bool permitted,
                                                     KataRuntime& runtime, Clock::time_point now,
                                                     HandlersFile& file) {
  const auto wait = [&](HandlerState state, const std::string& why) {
    set_state(file, plan.changed, state, why);
    return later(now, file);
  };
  const bool awaits_restart = !runtime.control && plan.change.plan.changes.empty() &&
                              plan.change.setup.files.empty() && plan.links.empty() && !file.applying;
  if (awaits_restart)
    return wait(
        HandlerState::blocked,
        "it is written, and takes effect when the container runtime is restarted; Ferry does not restart it "
        "here");
  if (failure_ && now < failure_->until) {
    set_state(file, plan.changed, failure_->state, failure_->why);
    return failure_->until;
  }
  auto may = check_control(runtime, plan.change.plan);
  if (may) may = may_apply_kata(context_of(runtime), plan.change);
  if (!may) return wait(HandlerState::blocked, words_of(may.error()));
  if (!permitted) return wait(HandlerState::pending, failure_ ? failure_->why : "");
  return std::nullopt;
}

KataKeeper::Clock::time_point KataKeeper::change_under_lock(const DesiredClasses& desired,
                                                            const ClassFile& classes, KataRuntime& runtime,
                                                            const DesiredPlan& plan, Clock::time_point now,
                                                            HandlersFile& file) {
  const auto lock = NodeLock::take(*uses_.host, pauses_.lock);
  if (!lock) {
    set_state(file, plan.changed, HandlerState::pending, words_of(lock.error()));
    return now + pauses_.first;
  }
  const auto changed = change(desired, classes, runtime, file);
  if (!changed) {
    const bool refused = changed.error().code == Errc::refused;
    log_once("Kata's runtimes: " + words_of(changed.error()));
    const Failure& failure = fails(desired, refused ? HandlerState::blocked : HandlerState::failed,
                                   words_of(changed.error()), now);
    file.others = plan.others;
    set_state(file, plan.changed, failure.state, failure.why);
    file.applying = uses_.host->exists(kRuntimeRecord);
    return failure.until;
  }
  if (!*changed) return now + pauses_.first;
  // The next round reads the result. If that is not as planned, the failure's back-off delays the retry.
  fails(desired, HandlerState::pending, "it was changed a moment ago, and is not as it was planned", now);
  return now;
}

Result<DesiredPlan> KataKeeper::plan_for(const DesiredClasses& desired, const ClassFile& classes,
                                         KataRuntime& runtime, const RuntimeState& state) const {
  auto devices = uses_.devices();
  if (!devices) return fail(std::move(devices).error());
  if (devices->mode.by_registers.empty()) devices->mode = confidential_mode_of(desired);
  return Planner(*uses_.host, desired, classes, runtime, state, *devices).plan();
}

Result<bool> KataKeeper::change(const DesiredClasses& desired, const ClassFile& classes, KataRuntime& runtime,
                                HandlersFile& file) {
  // The desired state may have changed before the lock was held.
  const auto now_there = read_desired_classes(*uses_.host);
  if (!now_there) return false;
  const auto& still = *now_there;
  if (!still || desired_classes_text(*still) != desired_classes_text(desired)) return false;
  const auto state = runtime.asked->state();
  auto plan = plan_for(desired, classes, runtime, state.value_or(RuntimeState()));
  if (!plan) return fail(std::move(plan).error());
  if (!plan->needed) return false;
  if (auto r = may_apply_kata(context_of(runtime), plan->change); !r) return fail(std::move(r).error());
  for (const std::string& name : plan->changed) {
    const bool leaves = plan->leaving.contains(name);
    set_state(file, name, leaves ? HandlerState::leaving : HandlerState::installing, "");
  }
  file.applying = true;
  if (auto r = publish(file); !r) return fail(std::move(r).error());

  const bool any = !plan->change.setup.handlers.empty();
  if (any && classes.load_modules) {
    auto loaded = load_kata_modules(
        *uses_.writer,
        "Kata's VMs need it: install the kernel's modules, or say loadModules: false in the class file");
    if (!loaded) return fail(std::move(loaded).error());
  }
  // A file without classes installs nothing in its folder: the handlers are of classes that pods still use.
  if (any && !classes.classes.empty())
    if (auto r = remember_artifacts_dir(*uses_.host, classes.artifacts_dir); !r)
      return fail(std::move(r).error());
  // The artifacts of leaving classes are where they were installed, whatever folder this class file names.
  const auto done = apply_kata(context_of(runtime), *uses_.writer, plan->change,
                               artifacts_dirs_with(*uses_.host, classes.artifacts_dir));
  if (!done) return fail(done.error());
  for (const auto& [name, target] : plan->links)
    if (auto r = make_link(*uses_.host, classes.artifacts_dir, name, target); !r)
      return fail(std::move(r).error());

  for (const std::string& note : plan->change.plan.notes) spdlog::info("{}", note);
  if (!*done) return fail(Errc::refused, plan->change.left);
  spdlog::info("Kata's runtimes match generation {}", file.generation.value_or(0));
  if (!any && !plan->change.setup.gone.empty())
    if (auto r = forget_artifacts_dirs(*uses_.host, plan->change.unreached); !r)
      return fail(std::move(r).error());
  return true;
}

void KataKeeper::remove_old_versions(const ClassFile& classes, ContainerRuntime& runtime) {
  for (const KataClass& kata : classes.classes) {
    const auto gone = collect_unused(*uses_.host, runtime, classes, kata);
    // A later round tries again: a fetch may be at work.
    const std::string why = gone ? "" : gone.error().text();
    if (std::exchange(uncollected_[kata.name], why) != why && !why.empty())
      spdlog::warn("{}: old versions of its artifact stay for now: {}", kata.name, why);
    if (!gone) continue;
    for (const auto& folder : *gone)
      spdlog::info("removed {}: no pod runs with {}", folder.string(), kata.name);
  }
}

ChangeContext KataKeeper::context_of(KataRuntime& runtime) const {
  return {.host = uses_.host,
          .runtime = runtime.asked.get(),
          .control = runtime.control.get(),
          .log = [](const std::string& what) { spdlog::info("{}", what); },
          .patience = pauses_.proof};
}

const KataKeeper::Failure& KataKeeper::fails(const DesiredClasses& desired, HandlerState state,
                                             const std::string& why, Clock::time_point now) {
  const auto pause = std::exchange(pause_, std::min(2 * pause_, pauses_.longest));
  return failure_.emplace(
      Failure{.of = summary_of(desired), .state = state, .why = why, .until = now + pause});
}

// No event reports the end of a pod or a repaired unit, so the keeper looks again after a pause.
KataKeeper::Clock::time_point KataKeeper::later(Clock::time_point now, const HandlersFile& file) {
  look_again_ = std::exchange(in_the_way_, file.others) == file.others
                    ? std::min(2 * look_again_, pauses_.longest)
                    : pauses_.first;
  return now + (file.others.empty() ? pauses_.longest : look_again_);
}

Result<> KataKeeper::publish(const HandlersFile& file) {
  HandlersFile sorted = file;
  std::ranges::sort(sorted.others, {}, &OtherHandler::name);
  const std::string text = handlers_file_text(sorted);
  if (uses_.host->read_file(api::kReadyHandlersFile).value_or("") == text) return {};
  const auto before = published_handlers().ready;
  auto written = uses_.host->write_file(api::kReadyHandlersFile, text);
  if (written && before != file.ready)
    spdlog::info("Ferry's Kata handlers that are ready: {}", fmt::join(file.ready, ", "));
  return written;
}

void KataKeeper::log_once(const std::string& news) {
  if (std::exchange(logged_, news) != news) spdlog::warn("{}", news);
}

KataKeeperLoop::KataKeeperLoop(EventLoop& loop, const HostFs& host, KataKeeper& keeper,
                               const std::filesystem::path& socket, bool desired, Pauses pauses)
    : loop_(loop),
      host_(host),
      keeper_(keeper),
      socket_folder_(host.root() / socket.relative_path().parent_path()),
      desired_(desired),
      pauses_(pauses),
      pause_(pauses.first),
      files_(
          loop, [this] { schedule(pauses_.settling); }, pauses.first) {
  schedule(std::chrono::milliseconds(0));
}

KataKeeperLoop::~KataKeeperLoop() {
  loop_.cancel(next_);
}

void KataKeeperLoop::schedule(std::chrono::milliseconds pause) {
  loop_.cancel(next_);
  next_ = loop_.at(EventLoop::Clock::now() + pause, [this] { run_round(); });
}

void KataKeeperLoop::run_round() {
  // Watches first, so that no event is lost before the round. A folder to watch may not exist yet.
  auto watched = files_.add(socket_folder_);
  if (desired_) {
    const auto folder = std::filesystem::path(api::kDesiredClassesFile).parent_path();
    auto desired = files_.add(host_.root() / folder, [this, folder] { return host_.make_directory(folder); });
    if (watched) watched = std::move(desired);
  }

  const auto round = keeper_.round(EventLoop::Clock::now());
  std::chrono::milliseconds pause = pauses_.longest;
  if (round.answered && watched) {
    pause_ = pauses_.first;
  } else {
    pause = pause_;
    pause_ = std::min(2 * pause_, pauses_.longest);
  }
  if (const auto again = round.again) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*again - EventLoop::Clock::now());
    pause = std::clamp(left, std::chrono::milliseconds(0), pause);
  }
  schedule(pause);
}

}  // namespace ferry::kata
