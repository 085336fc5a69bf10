// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/kata_install.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/file_status.h"
#include "kata-manager/configuration/kata_users.h"
#include "kata-manager/controller/restart_check.h"
#include "kata-manager/runtimes/runtime_record.h"

namespace ferry::kata {
namespace {

constexpr std::array kModules = {"vhost_vsock", "vhost_net"};

/// Why the files of leaving classes are still needed: the runtime may start them, or a pod that began after
/// the plan uses them. The files then stay until the next run.
Result<std::optional<std::string>> still_needed(const ChangeContext& context, const KataChange& change) {
  const auto& gone = change.setup.gone;
  if (gone.empty()) return std::optional<std::string>();
  const auto answer = context.runtime->state();
  if (!answer && answer.error().code != make_error_code(Errc::not_found))
    return std::optional("the container runtime does not answer: " + answer.error().message);
  const auto state = answer ? std::optional(*answer) : std::nullopt;
  // A restarted runtime may never report its runtimes, so only `unverified` without a restart counts.
  const RuntimeOutcome outcome = change.outcome.value_or(RuntimeOutcome());
  if (state && outcome.unverified && !outcome.acted)
    return std::optional<std::string>("the container runtime has not read its own files yet");
  // A stopped daemon will know the planned runtimes when it starts.
  RuntimeState next = state.value_or(RuntimeState());
  if (!state) {
    auto& runtimes = next.runtimes.emplace();
    for (const auto& [name, entry] : change.plan.after.runtimes()) {
      const std::string path = text_at(change.plan.after.runtimes(), {name, "options", "ConfigPath"});
      if (!path.empty()) runtimes.push_back({.name = name, .type = {}, .shim = {}, .configuration = path});
    }
  }
  const auto known = runtimes_of_classes(next, gone);
  if (!known.empty())
    return std::optional(fmt::format("the container runtime {} {} with them by a file that is not ours",
                                     state ? "knows" : "will know", fmt::join(known, ", ")));
  LeavingClasses leaving{.classes = gone, .handlers = change.plan.leaving, .others = {}};
  for (const RuntimeHandler& handler : change.setup.handlers) leaving.others.push_back(handler.name);
  return who_has(*context.host, *context.runtime, state, leaving);
}

struct LockedFolder {
  std::filesystem::path path;
  UniqueFd lock;
};

/// The folders of artifacts that can be written, for removing artifacts. Two paths may lead to one folder.
Result<std::vector<LockedFolder>> lock_leaving(const HostFs& host, KataChange& change,
                                               const std::vector<std::filesystem::path>& artifacts_dirs) {
  std::vector<LockedFolder> out;
  std::set<std::pair<dev_t, ino_t>> known;
  for (const auto& path : artifacts_dirs) {
    if (change.setup.gone.empty()) break;
    const auto folder = host.open(path.relative_path(), O_PATH | O_DIRECTORY);
    if (!folder && is_gone(folder.error())) {
      change.unreached.push_back(path);
      continue;
    }
    if (!folder) return fail(folder.error());
    const auto status = file_status(folder->get());
    if (!status) return fail(error_from_errno(errno, "stat " + path.string()));
    if (!known.emplace(status->st_dev, status->st_ino).second) continue;
    auto lock = lock_artifacts(host, path.relative_path());
    if (!lock && lock.error().code == std::errc::read_only_file_system) {
      change.unreached.push_back(path);
      change.plan.notes.push_back(
          fmt::format("artifacts of {} stay in {}, which is read-only here: remove them on the host",
                      fmt::join(change.setup.gone, ", "), path.string()));
      continue;
    }
    if (!lock) return fail(std::move(lock).error());
    out.push_back({.path = path, .lock = std::move(*lock)});
  }
  return out;
}

/// Rolls written Kata files back, unless a runtime may still lead to them.
Error put_kata_files_back(HostFs& host, const std::vector<FileChange>& files, Error why) {
  if (host.exists(kRuntimeRecord)) return why;
  std::vector<FileChange> back;
  for (const FileChange& file : files) {
    const auto now = content_of(host, file.path);
    if (file.after != file.before && now && *now == file.after) back.push_back(undone(file));
  }
  if (auto r = write_kata_files(host, back); !r)
    why.message += "; and Kata's own files could not be put back: " + r.error().message;
  return why;
}

}  // namespace

Result<KataChange> plan_kata(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                             const FoundRuntime& runtime, const ArtifactOf& artifact_of) {
  auto setup = set_up(host, file, devices, artifact_of, runtime.version_of);
  if (!setup) return fail(std::move(setup).error());
  auto plan = plan_runtime(host, runtime, setup->handlers);
  if (!plan) return fail(std::move(plan).error());
  return KataChange{.runtime = runtime, .setup = std::move(*setup), .plan = std::move(*plan)};
}

Result<KataChange> plan_no_kata(const HostFs& host, const FoundRuntime& runtime) {
  auto plan = plan_runtime(host, runtime, {});
  if (!plan) return fail(std::move(plan).error());
  KataChange out{.runtime = runtime, .setup = {}, .plan = std::move(*plan)};
  if (auto r = add_removals(host, out.setup); !r) return fail(std::move(r).error());
  return out;
}

bool is_left_undone(const KataChange& change) {
  if (change.left.empty()) return false;
  const auto& outcome = change.outcome;
  return !outcome || !outcome->unverified || outcome->acted;
}

bool has_what_it_can(const KataChange& change) {
  return !change.setup.classes.empty() && !is_left_undone(change);
}

RuntimeChange change_of(const KataChange& change) {
  RuntimeChange out{.files = change.plan.changes,
                    .handlers = change.setup.handlers,
                    .leaving = change.plan.leaving,
                    .gone = change.setup.gone};
  if (change.runtime.place.kind == RuntimeKind::containerd) {
    auto& staying = out.staying.emplace();
    for (const auto& [name, entry] : change.plan.after.runtimes()) staying.push_back(name);
  }
  return out;
}

Result<> check_control(KataRuntime& runtime, const RuntimePlan& plan) {
  if (!runtime.no_control || plan.changes.empty()) return {};
  if (!runtime.asked->state()) return {};
  return fail(*runtime.no_control);
}

Result<> may_apply_kata(const ChangeContext& context, const KataChange& change) {
  ChangeContext asked = context;
  asked.restart_check = [&](bool restarts) { return foresee_restart(context, change, restarts); };
  return may_apply_change(asked, change_of(change));
}

Result<> load_kata_modules(HostWriter& writer, const std::string& hint) {
  for (const char* module : kModules) {
    if (auto r = writer.load_module(module); !r) {
      Error error = std::move(r).error().during(fmt::format("load module {}", module));
      if (error.hint.empty()) error.hint = hint;
      return fail(std::move(error));
    }
  }
  return {};
}

Result<bool> apply_kata(const ChangeContext& context, HostWriter& writer, KataChange& change,
                        const std::vector<std::filesystem::path>& artifacts_dirs, Replaced replaced) {
  // Locks and checks come before any write, because the plan may be old.
  const auto folders = lock_leaving(*context.host, change, artifacts_dirs);
  if (!folders) return fail(folders.error());
  ChangeContext whole = context;
  std::optional<std::string> untried;
  whole.restart_check = [&](bool restarts) -> Result<> {
    auto tried = check_restart(context, writer, change, restarts);
    if (!tried) return fail(std::move(tried).error());
    untried = std::move(*tried);
    return {};
  };
  whole.own_words = [&] { return containerds_own_words(context, writer, change); };
  if (auto r = may_apply_change(whole, change_of(change)); !r) return fail(std::move(r).error());
  // Kata's own files come first: a known handler must work. Files of leaving classes go last.
  std::vector<FileChange> first;
  std::vector<FileChange> last;
  for (const FileChange& file : change.setup.files) (file.after ? first : last).push_back(file);
  if (auto r = write_kata_files(*context.host, first); !r)
    return fail(put_kata_files_back(*context.host, first, std::move(r).error()));
  whole.contradiction = config_dump_check(writer, change.runtime, change.plan, change.setup.handlers);
  // If there is no program to ask, the plan has a note of its own.
  if (!whole.contradiction && change.runtime.program && change.runtime.place.kind != RuntimeKind::k0s &&
      !change.plan.changes.empty()) {
    change.plan.notes.push_back(
        fmt::format("this is proven by Ferry's model alone: {} does not say what it makes of its files",
                    change.runtime.program->string()));
  }
  auto outcome = apply_change(whole, change_of(change));
  if (!outcome) return fail(put_kata_files_back(*context.host, first, std::move(outcome).error()));
  change.outcome = std::move(*outcome);
  if (auto& unverified = change.outcome->unverified; unverified && !change.outcome->acted && untried)
    *unverified += "; not tried: " + *untried;
  const auto needed = still_needed(context, change);
  if (!needed) return fail(needed.error());
  if (const auto& why = *needed) {
    change.left = fmt::format("Kata's files of what leaves stay: {}; say this again when that is over", *why);
    change.plan.notes.push_back(change.left);
    return false;
  }
  // A class counts as present while it has a folder. So the folder goes last, and a killed run is resumed.
  for (const LockedFolder& folder : *folders) {
    for (const std::string& name : change.setup.gone) {
      if (auto r = remove_artifact(*context.host, folder.path, name, replaced); !r)
        return fail(std::move(r).error());
    }
  }
  if (auto r = write_kata_files(*context.host, last); !r) return fail(std::move(r).error());
  return true;
}

}  // namespace ferry::kata
