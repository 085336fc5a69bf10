// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/kata_keeper.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "hostfs/node_lock.h"
#include "kata-manager/artifacts/known_artifacts.h"
#include "kata-manager/runtime/runtime_record.h"

namespace ferry::kata {
namespace {

std::string words_of(const Error& error) {
  return error.hint.empty() ? error.message : error.message + " (" + error.hint + ")";
}

bool is(const Error& error, Errc code) {
  return error.code == make_error_code(code);
}

/// The desired state as one text, without its generation and permissions.
std::string wish_of(const WantedClasses& wanted) {
  return fmt::format("{}\n{}", fmt::join(wanted.classes, ","), wanted.config.text);
}

/// Replaces the entry of `name`.
void say(HandlersFile& file, const std::string& name, HandlerState state, const std::string& why) {
  std::erase_if(file.others, [&](const OtherHandler& other) { return other.name == name; });
  file.others.push_back({.name = name, .state = state, .why = why});
}

void say(HandlersFile& file, const std::set<std::string>& names, HandlerState state, const std::string& why) {
  for (const std::string& name : names) say(file, name, state, why);
}

}  // namespace

KataKeeper::KataKeeper(Uses uses, Pauses pauses)
    : uses_(std::move(uses)), pauses_(pauses), pause_(pauses.first), look_again_(pauses.first) {}

KataKeeper::Round KataKeeper::round(Clock::time_point now) {
  const auto state = uses_.asked->state();
  HandlersFile file = as_said_before();
  if (state) {
    const auto ready = ready_handlers(*state);
    if (!ready) {
      tell(state->name + " does not tell what its runtimes are: nodes get no labels for Kata's");
    } else if (const auto names = unstartable_handlers(*state); !names.empty() && !uses_.runtime_for) {
      tell(
          fmt::format("{} {} finds the shim of {} by its path alone, and is not told it: no pod starts with "
                      "it until `ferry kata install` has written it anew",
                      state->name, state->version, fmt::join(names, ", ")));
    } else if (!failure_) {
      told_.clear();
    }
    file.ready = ready.value_or(std::set<std::string>());
  } else {
    tell(state.error().message);
  }
  Round out{.answered = state.has_value()};
  if (uses_.runtime_for) {
    out.again = obey(state ? &*state : nullptr, now, file);
  } else {
    file = {.ready = std::move(file.ready)};
  }
  // Before the runtime's first answer nothing is published, so no label appears or goes.
  if (!state && !uses_.runtime_for) return out;
  if (auto published = publish(file); !published) {
    tell(published.error().message);
    out.answered = false;
  }
  return out;
}

HandlersFile KataKeeper::as_said_before() const {
  const auto text = uses_.host->read_file(kReadyHandlersFile);
  if (!text) return {};
  return read_handlers_file(*text).value_or(HandlersFile());
}

std::optional<KataKeeper::Clock::time_point> KataKeeper::obey(const RuntimeState* state,
                                                              Clock::time_point now, HandlersFile& file) {
  const HandlersFile before = as_said_before();
  file.others.clear();
  file.error.clear();
  file.changing = uses_.host->exists(kRuntimeRecord);
  const auto wanted = read_wanted_classes(*uses_.host);
  std::optional<Clock::time_point> again;
  if (!wanted) {
    file.error = words_of(wanted.error());
  } else if (const auto& there = *wanted) {
    file.generation = there->generation;
    again = keep(*there, state, now, file);
  } else {
    file = {.ready = std::move(file.ready), .changing = file.changing};
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

std::optional<KataKeeper::Clock::time_point> KataKeeper::keep(const WantedClasses& wanted,
                                                              const RuntimeState* state,
                                                              Clock::time_point now, HandlersFile& file) {
  const std::string wish = wish_of(wanted);
  if (failure_ && failure_->of != wish) {
    failure_.reset();
    pause_ = pauses_.first;
  }
  const auto classes = wanted_class_file(wanted);
  if (!classes) {
    file.error = words_of(classes.error());
    return std::nullopt;
  }
  // The author of the cluster's class file gets no right to run commands on nodes.
  if (classes->restart.how == RuntimeRestart::How::command) {
    file.error =
        "restart: a command counts in `ferry kata install` alone (name a unit, or none, in the cluster's "
        "class "
        "file)";
    return std::nullopt;
  }
  // A killed run may be why the container runtime does not answer, so that run is finished first.
  if (state == nullptr && !file.changing) {
    file.error = "the container runtime does not answer";
    return std::nullopt;
  }
  auto runtime = uses_.runtime_for(*classes);
  if (!runtime) {
    file.error = words_of(runtime.error());
    return now + pauses_.first;
  }
  const auto plan = look(wanted, *classes, *runtime, state == nullptr ? RuntimeState() : *state);
  if (!plan) {
    file.error = words_of(plan.error());
    return now + pauses_.first;
  }
  file.others = plan->others;
  for (const std::string& name : plan->leaving) file.ready.erase(name);
  if (!plan->needed) {
    failure_.reset();
    pause_ = pauses_.first;
    return later(now, file);
  }
  const bool nobody_reads = !runtime->control && plan->change.plan.changes.empty() &&
                            plan->change.setup.files.empty() && !file.changing;
  if (nobody_reads) {
    say(file, plan->changed, HandlerState::refused,
        "it is written, and known when the container runtime is started anew, which is left to somebody "
        "else");
    return later(now, file);
  }
  if (failure_ && now < failure_->until) {
    say(file, plan->changed, failure_->state, failure_->why);
    return failure_->until;
  }
  auto may = check_control(*runtime, plan->change.plan);
  if (may) may = may_carry_out_kata(context_of(*runtime), *uses_.writer, plan->change);
  if (!may) {
    say(file, plan->changed, HandlerState::refused, words_of(may.error()));
    return later(now, file);
  }
  if (!wanted.permitted) {
    say(file, plan->changed, HandlerState::waiting, failure_ ? failure_->why : "");
    return later(now, file);
  }
  const auto lock = NodeLock::take(*uses_.host, pauses_.lock);
  if (!lock) {
    say(file, plan->changed, HandlerState::waiting, words_of(lock.error()));
    return now + pauses_.first;
  }
  const auto changed = change(wanted, *classes, *runtime, file);
  if (!changed) {
    const bool refused = is(changed.error(), Errc::refused);
    tell("Kata's runtimes: " + words_of(changed.error()));
    const Failure& failure =
        fails(wish, refused ? HandlerState::refused : HandlerState::failed, words_of(changed.error()), now);
    file.others = plan->others;
    say(file, plan->changed, failure.state, failure.why);
    file.changing = uses_.host->exists(kRuntimeRecord);
    return failure.until;
  }
  if (*changed == Changed::nothing_yet) return now + pauses_.first;
  // The next round reads the result. If that is not as planned, the failure's back-off delays the retry.
  fails(wish, HandlerState::waiting, "it was changed a moment ago, and is not as it was planned", now);
  return now;
}

Result<WantedPlan> KataKeeper::look(const WantedClasses& wanted, const ClassFile& classes,
                                    KataRuntime& runtime, const RuntimeState& state) const {
  auto devices = uses_.devices();
  if (!devices) return fail(std::move(devices).error());
  devices->mode = confidential_mode_of(wanted);
  return plan_wanted(*uses_.host, wanted, classes,
                     {.runtime = &runtime.at_hand,
                      .asked = runtime.asked.get(),
                      .state = state,
                      .devices = std::move(*devices)});
}

Result<KataKeeper::Changed> KataKeeper::change(const WantedClasses& wanted, const ClassFile& classes,
                                               KataRuntime& runtime, HandlersFile& file) {
  // The desired state may have changed before the lock was held.
  const auto now_there = read_wanted_classes(*uses_.host);
  if (!now_there) return Changed::nothing_yet;
  const auto& still = *now_there;
  if (!still || wanted_classes_text(*still) != wanted_classes_text(wanted)) return Changed::nothing_yet;
  const auto state = runtime.asked->state();
  auto plan = look(wanted, classes, runtime, state.value_or(RuntimeState()));
  if (!plan) return fail(std::move(plan).error());
  if (!plan->needed) return Changed::nothing_yet;
  if (auto r = may_carry_out_kata(context_of(runtime), *uses_.writer, plan->change); !r)
    return fail(std::move(r).error());
  for (const std::string& name : plan->changed) {
    const bool leaves = plan->leaving.contains(name);
    say(file, name, leaves ? HandlerState::leaving : HandlerState::installing, "");
  }
  file.changing = true;
  if (auto r = publish(file); !r) return fail(std::move(r).error());
  if (auto r = carry_out(classes, runtime, *plan, file); !r) return fail(std::move(r).error());
  return Changed::all;
}

Result<> KataKeeper::carry_out(const ClassFile& classes, KataRuntime& runtime, WantedPlan& plan,
                               HandlersFile& file) {
  const bool any = !plan.change.setup.handlers.empty();
  if (any && classes.load_modules) {
    if (auto r = load_kata_modules(*uses_.writer,
                                   "Kata's VMs need it: install the kernel's modules, or say loadModules: "
                                   "false in the class file");
        !r)
      return r;
  }
  if (any) {
    if (auto r = remember_artifacts_dir(*uses_.host, classes.artifacts_dir); !r) return r;
  }
  const auto done = carry_out_kata(context_of(runtime), *uses_.writer, plan.change, classes.artifacts_dir);
  if (!done) return fail(Error(done.error()));
  for (const std::string& note : plan.change.plan.notes) spdlog::info("{}", note);
  if (!*done) return fail(Errc::refused, plan.change.left);
  spdlog::info("Kata's runtimes are as generation {} wants them", file.generation.value_or(0));
  if (any) return {};
  return forget_artifacts_dir(*uses_.host);
}

ChangeContext KataKeeper::context_of(KataRuntime& runtime) const {
  return {.host = uses_.host,
          .runtime = runtime.asked.get(),
          .control = runtime.control.get(),
          .told = [](const std::string& what) { spdlog::info("{}", what); },
          .patience = pauses_.proof};
}

const KataKeeper::Failure& KataKeeper::fails(const std::string& of, HandlerState state,
                                             const std::string& why, Clock::time_point now) {
  const auto pause = std::exchange(pause_, std::min(2 * pause_, pauses_.longest));
  return failure_.emplace(Failure{.of = of, .state = state, .why = why, .until = now + pause});
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
  if (uses_.host->read_file(kReadyHandlersFile).value_or("") == text) return {};
  const auto before = as_said_before().ready;
  auto written = uses_.host->write_file(kReadyHandlersFile, text);
  if (written && before != file.ready)
    spdlog::info("these Kata handlers of ours are ready: {}", fmt::join(file.ready, ", "));
  return written;
}

void KataKeeper::tell(const std::string& news) {
  if (std::exchange(told_, news) != news) spdlog::warn("{}", news);
}

}  // namespace ferry::kata
