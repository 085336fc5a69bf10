// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/runtime_change.h"

#include <algorithm>
#include <ranges>
#include <thread>

#include <fmt/format.h>

#include "kata-manager/configuration/kata_users.h"
#include "kata-manager/runtimes/runtime_record.h"

namespace ferry::kata {
namespace {

using Clock = std::chrono::steady_clock;

// A starting daemon does not announce its CRI, so it is polled.
constexpr std::chrono::milliseconds kBetweenQuestions{100};

class Changing {
 public:
  Changing(const ChangeContext& context, const RuntimeChange& change)
      : context_(context), change_(change), leaving_(change.leaving) {}

  Result<RuntimeOutcome> apply_change() {
    const auto needed = is_needed();
    if (!needed) return fail(needed.error());
    if (!*needed) {
      // If the daemon reports its runtimes, it has read the earlier changes, too.
      if (running_ && state_.reports_handlers())
        if (auto r = forget_runtime_record(*context_.host); !r) return fail(std::move(r).error());
      return outcome_;
    }
    // Changes that the daemon has read and works with are no longer rolled back.
    if (running_ && !interrupted_) {
      const auto read = has_been_read(*context_.host, state_);
      if (!read) return fail(read.error());
      if (*read) undo_.clear();
    }
    if (auto r = write(); !r) return put_back(std::move(r).error(), false);
    if (auto r = ask_its_program(); !r) return put_back(std::move(r).error(), false);
    // A killed run may be why the daemon does not run.
    const bool taken_up = interrupted_ && context_.control != nullptr;
    if (!running_ && !taken_up) {
      outcome_.unverified = "it does not run: it reads them when it starts";
      return finish();
    }
    if (context_.control == nullptr) {
      outcome_.unverified = "it runs on with what it has read before, until its next start";
      return finish();
    }
    say(context_.control->text());
    outcome_.acted = true;
    auto proof = context_.control->act();
    if (proof) proof = wait_for_proof();
    if (!proof) {
      Error why = put_back(std::move(proof).error(), true).value();
      // The question takes time, and the node needs its runtime first.
      const auto words = context_.own_words ? context_.own_words() : std::nullopt;
      if (words) why.message += "; with the files as they were planned it says itself: " + *words;
      return fail(std::move(why));
    }
    if (!reports_handlers_) outcome_.unverified = "it answers, but does not say which runtimes it knows";
    return finish();
  }

  Result<> may_apply_change() {
    const auto needed = is_needed();
    if (!needed) return fail(needed.error());
    // A killed run may be why the daemon is down, and its roll back may be the cure.
    if (!*needed || !context_.restart_check || (!running_ && interrupted_)) return {};
    return context_.restart_check(running_ && context_.control != nullptr);
  }

 private:
  void say(const std::string& what) const {
    if (context_.log) context_.log(what);
  }

  /// False: all is as planned. Errors: those of apply_change() without a write.
  Result<bool> is_needed() {
    auto unverified = read_runtime_record(*context_.host);
    if (!unverified) return fail(std::move(unverified).error());
    undo_ = std::move(*unverified);
    interrupted_ = context_.host->exists(kRuntimeRecord);
    if (auto r = look_before(); !r) return fail(std::move(r).error());
    if (auto r = check_unused(); !r) return fail(std::move(r).error());
    if (change_.files.empty() && !interrupted_ && matches_plan()) return false;
    if (auto r = may_change(); !r) return fail(std::move(r).error());
    return true;
  }

  // A daemon that does not run knows no runtimes, and its pods are not checked.
  Result<> look_before() {
    auto state = context_.runtime->state();
    running_ = state.has_value();
    if (running_) {
      state_ = std::move(*state);
      const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
        return std::ranges::find(names, name) != names.end();
      };
      if (const auto& staying = change_.staying) {
        for (const std::string& name : runtimes_of_classes(state_, change_.gone))
          if (!is_in(leaving_, name) && !is_in(*staying, name)) leaving_.push_back(name);
      }
      return {};
    }
    if (state.error().code == make_error_code(Errc::not_found)) return {};
    // A killed run may be why the daemon gives an error.
    if (interrupted_) return {};
    return fail(std::move(state).error().during("the container runtime"));
  }

  Result<> check_unused() const {
    // A killed run may be why the daemon is down, and that repair comes first. The class's files stay.
    if (!running_ && interrupted_) return {};
    const auto state = running_ ? std::optional(state_) : std::nullopt;
    LeavingClasses leaving{.classes = change_.gone, .handlers = leaving_, .others = {}};
    for (const RuntimeHandler& handler : change_.handlers) leaving.others.push_back(handler.name);
    auto who = who_has(*context_.host, *context_.runtime, state, leaving);
    if (!who) return fail(std::move(who).error());
    const auto& names = *who;
    if (!names) return {};
    return fail(Errc::refused, "what would leave may be in use: " + *names,
                "end them first; `ferry kata uninstall` waits for pods with --wait");
  }

  bool matches_plan() {
    if (!running_) {
      outcome_.unverified = "it does not run: it reads them when it starts";
      return true;
    }
    return knows_all(state_);
  }

  bool knows_all(const RuntimeState& state) const {
    if (!state.reports_handlers()) return true;
    return std::ranges::all_of(change_.handlers, [&](const auto& handler) { return state.knows(handler); }) &&
           std::ranges::none_of(leaving_, [&](const auto& name) { return state.has(name); });
  }

  // Whatever the model predicts: runtimes of other programs must stay known, unless their files dropped
  // them.
  std::optional<std::string> lost_of_others(const RuntimeState& now) const {
    const auto& staying = change_.staying;
    const auto& before = state_.runtimes;
    if (!running_ || !before || !now.runtimes || !staying) return std::nullopt;
    for (const KnownRuntime& known : *before) {
      const bool stays = std::ranges::find(*staying, known.name) != staying->end();
      const bool ours =
          std::ranges::find(leaving_, known.name) != leaving_.end() ||
          std::ranges::find(change_.handlers, known.name, &RuntimeHandler::name) != change_.handlers.end();
      if (stays && !ours && !now.has(known.name)) return known.name;
    }
    return std::nullopt;
  }

  Result<> may_change() {
    for (const FileChange& file : change_.files)
      if (auto r = check_is_no_link(*context_.host, file.path); !r) return r;
    if (context_.control == nullptr || (!running_ && !interrupted_)) return {};
    const auto harm = context_.control->harm();
    if (!harm) return {};
    if (!running_) {
      return fail(Errc::refused,
                  fmt::format("to {} may end pods that run, and it cannot be asked for them: {}",
                              context_.control->text(), *harm),
                  "mend the unit and say `systemctl daemon-reload`, or start it yourself");
    }
    auto all = context_.runtime->pods();
    if (!all) return fail(std::move(all).error().during("which pods run is not known"));
    if (all->empty()) return {};
    return fail(
        Errc::refused, fmt::format("to {} would end the pods that run: {}", context_.control->text(), *harm),
        "mend the unit and say `systemctl daemon-reload`, or write the files alone with --no-restart");
  }

  Result<> write() {
    // Unread earlier changes are at stake, too, once the daemon reads the files.
    const bool acts = context_.control != nullptr && running_;
    if (change_.files.empty() && (undo_.empty() || !acts)) return {};
    std::vector<FileChange> recorded = undo_;
    recorded.insert(recorded.end(), change_.files.begin(), change_.files.end());
    if (auto r = write_runtime_record(*context_.host, recorded); !r) return r;
    for (const FileChange& file : change_.files) {
      say(fmt::format("{} {}", file.after ? "write" : "remove", file.path.string()));
      auto made = make(*context_.host, file);
      // A write may report an error after it took effect.
      const auto now =
          made ? Result<std::optional<std::string>>(file.after) : content_of(*context_.host, file.path);
      if (!now || *now == file.after) {
        outcome_.written = true;
        written_.push_back(file);
        const auto known = std::ranges::find(undo_, file.path, &FileChange::path);
        if (known == undo_.end()) {
          undo_.push_back(file);
        } else {
          known->after = file.after;
        }
      }
      if (!made) return made;
    }
    return {};
  }

  Result<> ask_its_program() const {
    if (!context_.contradiction) return {};
    auto found = context_.contradiction();
    if (!found) return fail(std::move(found).error().during("ask the runtime's own program"));
    const auto& what = *found;
    if (!what) return {};
    return fail(Errc::failed, "its own program reads the files otherwise than predicted: " + *what,
                "please report this with the configuration files of the host");
  }

  /// Waits until the runtime has answered without a fault for `steady`. Errc::failed: the last fault.
  Result<> wait_until(const std::function<std::optional<std::string>(const RuntimeState&)>& fault_of) const {
    const auto steady = std::min(context_.steady, context_.patience);
    const auto end = Clock::now() + context_.patience;
    std::optional<Clock::time_point> right_since;
    std::optional<Clock::time_point> without_cri_since;
    while (true) {
      const auto state = context_.runtime->state();
      const auto now = Clock::now();
      const auto is = [&](Errc code) { return !state && state.error().code == make_error_code(code); };
      const auto has_lasted = [&](std::optional<Clock::time_point>& since, bool holds) {
        if (!holds) since.reset();
        if (holds && !since) since = now;
        return holds && now - *since >= steady;
      };
      const auto fault = state ? fault_of(*state) : std::optional(state.error().message);
      if (is(Errc::not_found) && right_since)
        return fail(Errc::failed, "it answered, and ended a moment later: " + *fault);
      if (has_lasted(right_since, !fault)) return {};
      if (has_lasted(without_cri_since, is(Errc::unsupported))) return fail(Errc::failed, *fault);
      if (fault && now >= end) {
        const auto waited = std::chrono::duration_cast<std::chrono::seconds>(context_.patience);
        return fail(Errc::failed, fmt::format("{} s after its restart: {}", waited.count(), *fault));
      }
      std::this_thread::sleep_for(kBetweenQuestions);
    }
  }

  Result<> wait_for_proof() {
    return wait_until([&](const RuntimeState& state) -> std::optional<std::string> {
      reports_handlers_ = state.reports_handlers();
      if (const auto lost = lost_of_others(state))
        return fmt::format("it answers, but has lost {}, which is not ours", *lost);
      if (!knows_all(state)) return "it answers, but does not have the runtimes as they are written";
      return std::nullopt;
    });
  }

  tl::unexpected<Error> put_back(Error why, bool acted) {
    bool all_back = true;
    // Unread earlier changes are not at fault if the daemon was not made to read anything.
    const bool whole = acted || interrupted_;
    for (const FileChange& file : std::ranges::reverse_view(whole ? undo_ : written_)) {
      say(fmt::format("put {} back", file.path.string()));
      if (auto r = make(*context_.host, undone(file)); !r) {
        all_back = false;
        why.message +=
            fmt::format("; and {} could not be put back: {}", file.path.string(), r.error().message);
      }
    }
    if (context_.control != nullptr && (acted || interrupted_)) {
      say(context_.control->text() + " with what was there before");
      auto back = context_.control->act();
      if (back) back = wait_until([](const RuntimeState&) { return std::optional<std::string>(); });
      why.message +=
          undo_.empty() ? "; none of its files is other than before" : "; the files from before are back";
      why.message += back ? ", and it runs with them" : ", but it does not run: " + back.error().message;
      if (!back) return fail(std::move(why));
    } else if (outcome_.written) {
      why.message += "; what was written is put back";
    }
    if (!all_back) return fail(std::move(why));
    if (auto r = whole ? forget_runtime_record(*context_.host) : forget_this_run(*context_.host); !r)
      why.message += "; and the record of it could not be removed: " + r.error().message;
    return fail(std::move(why));
  }

  Result<RuntimeOutcome> finish() {
    const bool unread = outcome_.unverified && !outcome_.acted;
    // The journal of a killed run stays until its changes are verified.
    if (unread && (interrupted_ || !outcome_.written)) return outcome_;
    auto kept = unread ? leave_unread(*context_.host, undo_, change_.handlers, leaving_)
                       : forget_runtime_record(*context_.host);
    if (!kept) return fail(std::move(kept).error());
    return outcome_;
  }

  const ChangeContext& context_;
  const RuntimeChange& change_;
  std::vector<std::string> leaving_;
  std::vector<FileChange> undo_;     // unverified changes, one for each file
  std::vector<FileChange> written_;  // this run's part of them
  bool interrupted_ = false;         // an earlier run was killed
  bool running_ = false;
  bool reports_handlers_ = true;
  RuntimeState state_;
  RuntimeOutcome outcome_;
};

}  // namespace

Result<> may_apply_change(const ChangeContext& context, const RuntimeChange& change) {
  return Changing(context, change).may_apply_change();
}

Result<RuntimeOutcome> apply_change(const ChangeContext& context, const RuntimeChange& change) {
  return Changing(context, change).apply_change();
}

}  // namespace ferry::kata
