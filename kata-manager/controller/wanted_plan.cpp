// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/wanted_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/artifacts/known_artifacts.h"
#include "kata-manager/kata/kata_users.h"
#include "kata-manager/runtime/runtime_record.h"

namespace ferry::kata {
namespace {

std::string class_of(const std::filesystem::path& configuration) {
  return configuration.parent_path().filename();
}

/// The class that a file below /etc/ferry/kata belongs to.
std::string class_of_file(const std::filesystem::path& path) {
  const auto inside = path.lexically_relative(kata_configuration_folder("x").parent_path());
  return inside.empty() ? "" : inside.begin()->string();
}

std::string words_of(const Error& error) {
  return error.hint.empty() ? error.message : error.message + " (" + error.hint + ")";
}

/// Like known_artifact(), but a folder of the host counts only once its link exists.
Result<std::optional<Artifact>> artifact_here(const HostFs& host, const ClassFile& file,
                                              const KataClass& kata) {
  if (const auto folder = kata.artifacts.folder()) {
    const auto place = file.artifacts_dir / kata.name;
    const auto link = host.link_target(place.relative_path());
    if (place != *folder && (!link || *link != *folder)) return std::optional<Artifact>();
  }
  return known_artifact(host, file, kata);
}

bool is_placed_so(const PlacedRuntime& placed, const RuntimeHandler& handler,
                  const ContainerdRelease& release) {
  return handler_of(placed) == handler &&
         (placed.type.empty() || handler.may_have_type(placed.type, release));
}

class Planner {
 public:
  Planner(const HostFs& host, const WantedClasses& wanted, const ClassFile& file, const WantedSight& sight)
      : host_(host), wanted_(wanted), file_(file), sight_(sight), possible_(file) {
    possible_.classes.clear();
  }

  Result<WantedPlan> plan() {
    auto placed = placed_runtimes(host_, *sight_.runtime);
    if (!placed) return fail(std::move(placed).error());
    placed_ = std::move(*placed);
    for (const KataClass& kata : file_.classes) sort_out(kata);
    auto setup = set_up(
        host_, possible_, sight_.devices,
        [&](const KataClass& kata) { return Result<std::optional<Artifact>>(artifacts_.at(kata.name)); },
        sight_.runtime->version_of);
    if (!setup) return fail(std::move(setup).error());
    out_.change.runtime = *sight_.runtime;
    out_.change.setup = std::move(*setup);
    own_ = out_.change.setup.handlers.size();
    look_at_what_leaves();
    leave_alone();
    auto plan = plan_runtime(host_, *sight_.runtime, out_.change.setup.handlers);
    if (!plan) return fail(std::move(plan).error());
    out_.change.plan = std::move(*plan);
    // The same handlers in another order need no restart.
    if (handlers().size() > own_ && is_placed_already()) out_.change.plan.changes.clear();
    find_what_changes();
    for (auto& [name, other] : others_) out_.others.push_back(std::move(other));
    return std::move(out_);
  }

 private:
  const std::vector<RuntimeHandler>& handlers() const { return out_.change.setup.handlers; }

  void say(const std::string& name, HandlerState state, std::string why) {
    others_.insert_or_assign(name, OtherHandler{.name = name, .state = state, .why = std::move(why)});
  }
  void set_aside(const KataClass& kata, HandlerState state, const std::string& why) {
    for (const std::string& name : kata.handlers()) say(name, state, why);
    kept_.insert(kata.name);
  }

  // Each class is planned alone first, so that its error does not fail the other classes.
  void sort_out(const KataClass& kata) {
    auto artifact = artifact_here(host_, file_, kata);
    if (!artifact) {
      const bool chosen = artifact.error().code == make_error_code(Errc::refused);
      return set_aside(kata, chosen ? HandlerState::refused : HandlerState::missing_artifact,
                       words_of(artifact.error()));
    }
    ClassFile alone = file_;
    alone.classes = {kata};
    const auto setup = set_up(
        host_, alone, sight_.devices, [&](const KataClass&) { return artifact; }, sight_.runtime->version_of);
    if (!setup) return set_aside(kata, HandlerState::refused, words_of(setup.error()));
    for (const RefusedClass& refused : setup->refused) {
      for (const std::string& name : kata.handlers()) say(name, HandlerState::refused, words_of(refused.why));
    }
    if (setup->refused.empty() && !*artifact)
      return set_aside(kata, HandlerState::missing_artifact, kata.artifacts.url + " is to be fetched");
    artifacts_.emplace(kata.name, std::move(*artifact));
    possible_.classes.push_back(kata);
  }

  void look_at_what_leaves() {
    for (const PlacedRuntime& placed : placed_) {
      if (std::ranges::find(handlers(), placed.name, &RuntimeHandler::name) != handlers().end()) continue;
      const auto set_aside = [&](const KataClass& kata) {
        const auto names = kata.handlers();
        return kept_.contains(kata.name) && std::ranges::find(names, placed.name) != names.end();
      };
      if (kept_.contains(class_of(placed.configuration)) || std::ranges::any_of(file_.classes, set_aside)) {
        out_.change.setup.handlers.push_back(handler_of(placed));
        continue;
      }
      out_.leaving.insert(placed.name);
      if (!wanted_.unlabelled.contains(placed.name)) {
        const auto refused = others_.find(placed.name);
        keep(placed, HandlerState::leaving,
             refused == others_.end() ? "no class that is wanted has it" : refused->second.why);
        continue;
      }
      if (const auto why = in_use(class_of(placed.configuration), {placed.name})) {
        keep(placed, HandlerState::refused, *why);
      } else {
        out_.changed.insert(placed.name);
      }
    }
    // A killed run may leave a class folder that no handler leads to.
    for (const std::string& name : out_.change.setup.gone) {
      if (kept_.contains(name) || std::ranges::find(placed_, name, class_of_placed) != placed_.end())
        continue;
      if (const auto why = in_use(name, {})) {
        say(name, HandlerState::refused, *why);
        kept_.insert(name);
      }
    }
  }

  static std::string class_of_placed(const PlacedRuntime& placed) { return class_of(placed.configuration); }

  std::optional<std::string> in_use(const std::string& name, std::vector<std::string> handlers) const {
    LeavingClasses leaving{.classes = {name}, .handlers = std::move(handlers), .others = {}};
    for (const RuntimeHandler& handler : this->handlers()) leaving.others.push_back(handler.name);
    for (const PlacedRuntime& placed : placed_)
      if (class_of(placed.configuration) != name) leaving.others.push_back(placed.name);
    const auto who = who_has(host_, *sight_.asked, sight_.state, leaving);
    if (!who) return "whether it is in use is not known: " + words_of(who.error());
    const auto& users = *who;
    if (!users) return std::nullopt;
    return "it is not wanted any more, and goes when nobody has it: " + *users;
  }

  void keep(const PlacedRuntime& placed, HandlerState state, std::string why) {
    say(placed.name, state, std::move(why));
    out_.change.setup.handlers.push_back(handler_of(placed));
    kept_.insert(class_of(placed.configuration));
  }

  // set_up() plans to remove the folders of kept classes, because `possible_` lacks them. They stay.
  void leave_alone() {
    KataSetup& setup = out_.change.setup;
    std::erase_if(setup.gone, [&](const std::string& name) { return kept_.contains(name); });
    std::erase_if(setup.files, [&](const FileChange& change) {
      return !change.after && kept_.contains(class_of_file(change.path));
    });
  }

  bool is_so(const PlacedRuntime& placed, const RuntimeHandler& handler) const {
    return is_placed_so(placed, handler, sight_.runtime->release);
  }
  bool is_placed_already() const {
    return placed_.size() == handlers().size() && std::ranges::all_of(handlers(), [&](const auto& handler) {
             return std::ranges::any_of(placed_, [&](const auto& placed) { return is_so(placed, handler); });
           });
  }

  bool is_known(const RuntimeHandler& handler) const {
    return !sight_.state.tells() || sight_.state.knows(handler);
  }

  void find_what_changes() {
    const KataSetup& setup = out_.change.setup;
    bool all_known = true;
    for (std::size_t i = 0; i < own_; ++i) {
      const RuntimeHandler& handler = setup.handlers[i];
      const bool placed = std::ranges::any_of(placed_, [&](const auto& p) { return is_so(p, handler); });
      const bool same_files = std::ranges::none_of(setup.files, [&](const FileChange& change) {
        return class_of_file(change.path) == class_of(handler.configuration);
      });
      all_known = all_known && is_known(handler);
      if (!placed || !same_files || !is_known(handler)) out_.changed.insert(handler.name);
    }
    // A killed run may leave a class folder that no handler leads to, so removals count as changes.
    for (const FileChange& change : setup.files) {
      if (change.after) continue;
      out_.changed.insert(class_of_file(change.path));
      out_.leaving.insert(class_of_file(change.path));
    }
    out_.needed = !out_.change.plan.changes.empty() || !setup.files.empty() || !all_known ||
                  host_.exists(kRuntimeRecord);
    if (!out_.needed || !out_.changed.empty()) return;
    for (std::size_t i = 0; i < own_; ++i) out_.changed.insert(setup.handlers[i].name);
  }

  const HostFs& host_;
  const WantedClasses& wanted_;
  const ClassFile& file_;
  const WantedSight& sight_;
  ClassFile possible_;  // `file_` without the classes that are set aside
  std::map<std::string, std::optional<Artifact>> artifacts_;
  std::vector<PlacedRuntime> placed_;
  std::set<std::string> kept_;  // classes whose folder and artifact stay as they are
  std::map<std::string, OtherHandler> others_;
  std::size_t own_ = 0;  // number of handlers from set_up(); kept handlers follow them
  WantedPlan out_;
};

}  // namespace

Result<WantedPlan> plan_wanted(const HostFs& host, const WantedClasses& wanted, const ClassFile& file,
                               const WantedSight& sight) {
  return Planner(host, wanted, file, sight).plan();
}

}  // namespace ferry::kata
