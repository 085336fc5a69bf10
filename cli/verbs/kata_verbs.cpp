// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/kata_report.h"
#include "cli/verbs/kata_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/process/standard_streams.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/fetch_request.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/artifacts/known_artifacts.h"
#include "kata-manager/classes/runtime_class.h"
#include "kata-manager/configuration/kata_users.h"
#include "kata-manager/controller/kata_install.h"

namespace ferry::cli {
namespace {

// No event that Ferry receives announces the end of a pod, so it is polled while a verb waits.
constexpr std::chrono::seconds kPollPeriod{1};

kata::ChangeContext change_context(const Session& session, const KataOptions& options,
                                   const kata::KataRuntime& runtime) {
  return {.host = session.host.get(),
          .runtime = runtime.asked.get(),
          .control = runtime.control.get(),
          .accept_edited_files = options.accept_edited_files,
          .log = [](const std::string& what) { print_to_stderr("{}\n", what); }};
}

Result<> load_modules(const Session& session, const KataOptions& options, const kata::ClassFile& file) {
  if (options.no_modules || !file.load_modules) return {};
  return kata::load_kata_modules(
      *session.writer,
      "Kata's VMs need it: install the kernel's modules; or --no-modules, if this root is no "
      "running host's");
}

/// Waits up to `wait_seconds` for the users of the leaving classes. A later step reports errors that matter.
void wait_for_users(const Session& session, const KataOptions& options, kata::ContainerRuntime& runtime,
                    const kata::LeavingClasses& leaving) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.wait_seconds);
  bool printed = false;
  while (std::chrono::steady_clock::now() < end) {
    const auto state = runtime.state();
    const auto who =
        kata::who_has(*session.host, runtime, state ? std::optional(*state) : std::nullopt, leaving);
    if (!who || !*who) return;
    if (!std::exchange(printed, true)) print_to_stderr("waiting for {} to end\n", **who);
    std::this_thread::sleep_for(kPollPeriod);
  }
}

// A file that was truncated to nothing would remove every runtime.
Result<kata::ClassFile> read_some_classes(const KataOptions& options) {
  auto file = read_classes_for(options);
  if (file && file->classes.empty()) {
    return fail(Errc::invalid_config, options.file.string() + ": no runtime classes in it",
                "`ferry kata uninstall` removes all of them");
  }
  return file;
}

/// Fails if a planned file is a link, which the real run refuses.
Result<> check_no_links(const Session& session, const kata::KataChange& report) {
  for (const kata::FileChange& change : report.plan.changes)
    if (auto r = kata::check_is_no_link(*session.host, change.path); !r) return r;
  return {};
}

/// A dry run ends as the real run would be refused. A check that cannot be made, as without root rights, is
/// no refusal.
void foresee_refusal(const Session& session, const KataOptions& options, const kata::KataRuntime& runtime,
                     kata::KataChange& report) {
  auto may = kata::may_apply_kata(change_context(session, options, runtime), report);
  if (!may && may.error().code == make_error_code(Errc::refused)) report.refusal = std::move(may).error();
}

kata::PullCredentials credentials(const KataOptions& options) {
  return {.secrets = options.pull_secrets, .docker_config = options.docker_config};
}

bool is_refused(const kata::KataChange& report, const kata::KataClass& kata) {
  const auto& refused = report.setup.refused;
  return std::ranges::find(refused, kata.name, &kata::RefusedClass::name) != refused.end();
}

/// Fails if no registry takes a reference, or if its credentials are not there.
Result<> check_fetches(const Session& session, const KataOptions& options, const kata::ClassFile& file,
                       const kata::KataChange& planned) {
  for (const kata::KataClass& kata : file.classes) {
    if (is_refused(planned, kata)) continue;
    if (!kata.artifacts.folder()) {
      const auto reference = kata::ImageReference::parse(kata.artifacts.url);
      if (!reference) return fail(Error(reference.error()).during(kata.place + ": " + kata.name));
    }
    if (auto r = kata::credentials_of(*session.host, credentials(options), file, kata); !r)
      return fail(std::move(r).error());
  }
  return {};
}

/// Frees space before a fetch. Files that cannot be removed now are removed by a later run.
void collect(const Session& session, const kata::ClassFile& file, kata::KataRuntime& runtime) {
  for (const kata::KataClass& kata : file.classes) {
    const auto gone = kata::collect_unused(*session.host, *runtime.asked, file, kata);
    if (!gone) print_to_stderr("note: {}: {}\n", kata.name, gone.error().message);
    if (!gone) continue;
    for (const auto& folder : *gone)
      print_to_stderr("removed {}: no pod runs with {}\n", folder.string(), kata.name);
  }
}

using FetchedArtifacts = std::map<std::string, kata::Artifact>;

/// Fetches the classes' files, or finds them on this host: the artifacts by the names of their classes. A
/// fetch may take long, so stderr says that it begins.
Result<FetchedArtifacts> fetch_all(const Session& session, const KataOptions& options,
                                   const kata::ClassFile& file, const kata::KataChange& planned) {
  FetchedArtifacts out;
  for (const kata::KataClass& kata : file.classes) {
    if (is_refused(planned, kata)) continue;
    auto request = kata::fetch_request(*session.host, credentials(options), file, kata);
    if (!request) return fail(std::move(request).error());
    // Without a registry the files here are enough: a change that began with them can end, or be reported
    // again.
    request->or_what_is_here = true;
    if (!kata.artifacts.folder()) print_to_stderr("{}: pulling {}\n", kata.name, kata.artifacts.url);
    auto artifact = kata::fetch(*session.host, *request);
    if (!artifact) return fail(kata::explained(std::move(artifact).error(), kata, *request));
    for (const std::string& note : artifact->notes) print_to_stderr("note: {}: {}\n", kata.name, note);
    out.insert_or_assign(kata.name, std::move(*artifact));
  }
  return out;
}

Result<kata::KataChange> install(const Session& session, const KataOptions& options) {
  if (auto r = require_root(session); !r) return fail(std::move(r).error());
  const auto file = read_some_classes(options);
  if (!file) return fail(file.error());
  auto runtime = kata_runtime(session, options, &*file);
  if (!runtime) return fail(std::move(runtime).error());
  const auto devices = kata_devices(session, options);
  if (!devices) return fail(devices.error());
  const auto known = [&](const kata::KataClass& kata) {
    return kata::known_artifact(*session.host, *file, kata);
  };
  FetchedArtifacts fetched;
  if (!session.dry_run) {
    // Refusals come before any fetch, and fetches come before the lock of the host, since a registry may take
    // its time. The present version of an artifact is not checked here: the fetched one may fix a fault of
    // it.
    const auto of_host = [&](const kata::KataClass& kata) {
      return kata.artifacts.folder() ? known(kata) : Result<std::optional<kata::Artifact>>(std::nullopt);
    };
    auto planned = kata::plan_kata(*session.host, *file, *devices, runtime->found_runtime, of_host);
    if (!planned) return fail(std::move(planned).error());
    if (auto r = check_fetches(session, options, *file, *planned); !r) return fail(std::move(r).error());
    if (auto r = kata::check_control(*runtime, planned->plan); !r) return fail(std::move(r).error());
    if (auto r = kata::may_apply_kata(change_context(session, options, *runtime), *planned); !r)
      return fail(std::move(r).error());
    if (auto r = kata::remember_artifacts_dir(*session.host, file->artifacts_dir); !r)
      return fail(std::move(r).error());
    collect(session, *file, *runtime);
    auto all = fetch_all(session, options, *file, *planned);
    if (!all) return fail(std::move(all).error());
    fetched = std::move(*all);
  }
  const auto change = begin_change(session);
  if (!change) return fail(change.error());
  const auto here = [&](const kata::KataClass& kata) -> Result<std::optional<kata::Artifact>> {
    const auto found = fetched.find(kata.name);  // a class that is refused is not fetched
    return found == fetched.end() ? known(kata) : std::optional(found->second);
  };
  auto planned = kata::plan_kata(*session.host, *file, *devices, runtime->found_runtime,
                                 session.dry_run ? kata::ArtifactOf(known) : kata::ArtifactOf(here));
  if (!planned) return planned;
  kata::KataChange report = std::move(*planned);
  if (runtime->control) report.control = runtime->control->text();
  if (session.dry_run) {
    if (auto r = check_fetches(session, options, *file, report); !r) return fail(std::move(r).error());
    if (auto r = check_no_links(session, report); !r) return fail(std::move(r).error());
    foresee_refusal(session, options, *runtime, report);
    return report;
  }
  if (!is_text(session.output))  // people have read them already
    for (const auto& [name, artifact] : fetched)
      for (const std::string& note : artifact.notes)
        report.setup.notes.push_back(fmt::format("{}: {}", name, note));
  if (auto r = load_modules(session, options, *file); !r) return fail(std::move(r).error());
  if (auto r = kata::apply_kata(change_context(session, options, *runtime), *session.writer, report,
                                kata::artifacts_dirs_with(*session.host, file->artifacts_dir),
                                kata::Replaced::comes_back);
      !r)
    return fail(std::move(r).error());
  return report;
}

/// Absent: no class file is named.
Result<std::optional<kata::ClassFile>> read_classes_if_named(const KataOptions& options) {
  if (options.file.empty()) return std::optional<kata::ClassFile>();
  auto file = read_classes_for(options);
  if (!file) return fail(std::move(file).error());
  return std::optional(std::move(*file));
}

Result<kata::KataChange> uninstall(const Session& session, const KataOptions& options) {
  if (auto r = require_root(session); !r) return fail(std::move(r).error());
  const auto named = read_classes_if_named(options);
  if (!named) return fail(named.error());
  const auto& file = *named;
  auto runtime = kata_runtime(session, options, file ? &*file : nullptr);
  if (!runtime) return fail(std::move(runtime).error());
  const auto classes = kata::classes_here(*session.host);
  if (!classes) return fail(classes.error());
  auto here = kata::configured_runtimes(*session.host, runtime->found_runtime);
  if (!here) return fail(std::move(here).error());
  const auto state = runtime->asked->state();
  const std::vector<kata::KnownRuntime> none;
  const auto known = state ? state->runtimes.value_or(none) : none;
  const bool knows_ours = std::ranges::any_of(
      known, [](const kata::KnownRuntime& one) { return one.configuration.starts_with("/etc/ferry/kata/"); });
  if (here->empty() && !classes->empty() && knows_ours) {
    return fail(Errc::refused,
                fmt::format("{} knows runtimes of Ferry that are not in {}", runtime->found_runtime.text(),
                            runtime->found_runtime.place.configuration.string()),
                "name the class file that they were installed by (-f); take a copy of our section out of its "
                "other files; or restart it if they were removed without");
  }
  kata::LeavingClasses leaving{.classes = *classes, .handlers = {}, .others = {}};
  for (const kata::ConfiguredRuntime& configured : *here) leaving.handlers.push_back(configured.name);
  if (!session.dry_run) wait_for_users(session, options, *runtime->asked, leaving);
  const auto change = begin_change(session);
  if (!change) return fail(change.error());
  auto planned = kata::plan_no_kata(*session.host, runtime->found_runtime);
  if (!planned) return planned;
  kata::KataChange report = std::move(*planned);
  if (runtime->control) report.control = runtime->control->text();
  if (auto r = check_no_links(session, report); !r) return fail(std::move(r).error());
  if (session.dry_run) {
    foresee_refusal(session, options, *runtime, report);
    return report;
  }
  if (auto r = kata::check_control(*runtime, report.plan); !r) return fail(std::move(r).error());
  std::vector<std::filesystem::path> artifacts_dirs;
  if (!options.keep_artifacts) {
    auto folders = file ? Result<std::vector<std::filesystem::path>>(
                              kata::artifacts_dirs_with(*session.host, file->artifacts_dir))
                        : kata::remembered_artifacts_dirs(*session.host);
    if (!folders) return fail(std::move(folders).error());
    artifacts_dirs = std::move(*folders);
  }
  const auto done = kata::apply_kata(change_context(session, options, *runtime), *session.writer, report,
                                     artifacts_dirs, kata::Replaced::comes_back);
  if (!done) return fail(done.error());
  if (!*done || artifacts_dirs.empty()) return report;
  if (auto r = kata::forget_artifacts_dirs(*session.host, report.unreached); !r)
    return fail(std::move(r).error());
  return report;
}

/// Changes of the classes' files since their fetch. The set-up of the classes reports a class whose files are
/// not known.
Result<std::vector<std::string>> changed_files(const Session& session, const kata::ClassFile& file) {
  std::vector<std::string> out;
  for (const kata::KataClass& kata : file.classes) {
    const auto known = kata::known_artifact(*session.host, file, kata);
    if (!known) continue;
    const auto& artifact = *known;
    if (!artifact) continue;
    // Progress goes to stderr, since stdout is for data.
    auto changed = kata::changes_since_fetch(
        *session.host, *artifact,
        [lines = CheckProgressLines(artifact->name)](const kata::CheckProgress& progress) mutable {
          if (const auto line = lines.line(progress)) print_to_stderr("{}", *line);
        });
    if (!changed) return changed;
    std::ranges::move(*changed, std::back_inserter(out));
  }
  return out;
}

ExitStatus finish(const Session& session, const Result<kata::KataChange>& report) {
  if (!report) return complain(report.error());
  return print(session, show(session, *report));
}

}  // namespace

ExitStatus kata_install_verb(const Session& session, const KataOptions& options) {
  return finish(session, install(session, options));
}

bool kata_install_what_can_be(const Session& session, const KataOptions& options) {
  const auto report = install(session, options);
  finish(session, report);
  return report && kata::has_what_it_can(*report);
}

ExitStatus kata_uninstall_verb(const Session& session, const KataOptions& options) {
  return finish(session, uninstall(session, options));
}

ExitStatus kata_status_verb(const Session& session, const KataOptions& options) {
  const auto named = read_classes_if_named(options);
  if (!named) return complain(named.error());
  const auto& file = *named;
  auto runtime = kata_runtime(session, options, file ? &*file : nullptr);
  if (!runtime) return complain(runtime.error());
  auto configured = kata::configured_runtimes(*session.host, runtime->found_runtime);
  if (!configured) return complain(configured.error());
  const auto mode = confidential_mode(*session.host, options.node);
  if (!mode) return complain(mode.error());
  const auto state = runtime->asked->state();
  const auto pods = runtime->asked->pods();
  return print(session, show_status(runtime->found_runtime, *configured, state, pods, *mode));
}

ExitStatus kata_verify_verb(const Session& session, const KataOptions& options) {
  const auto file = read_some_classes(options);
  if (!file) return complain(file.error());
  auto runtime = kata_runtime(session, options, &*file);
  if (!runtime) return complain(runtime.error());
  const auto devices = kata_devices(session, options);
  if (!devices) return complain(devices.error());
  auto setup = kata::set_up(
      *session.host, *file, *devices,
      [&](const kata::KataClass& kata) { return kata::known_artifact(*session.host, *file, kata); },
      runtime->found_runtime.version_of);
  const auto changed = changed_files(session, *file);
  if (!changed) return complain(changed.error());
  // A changed configuration may be the reason why the set-up fails, so both are printed.
  if (!setup && changed->empty()) return complain(setup.error());
  const auto state = runtime->asked->state();
  if (!setup) {
    auto all = *changed;
    all.push_back(with_hint(setup.error()));
    return print(session, show_differences(all, state.has_value()));
  }
  auto plan = kata::plan_runtime(*session.host, runtime->found_runtime, setup->handlers);
  if (!plan) return complain(plan.error());
  std::vector<std::string> missing = differences(*setup, *plan, state);
  for (const kata::KataClassSetup& kata : setup->classes) {
    if (kata.artifact && !session.host->exists(kata.artifact->folder.relative_path()))
      missing.push_back(fmt::format("{} is not there", kata.artifact->folder.string()));
  }
  missing.insert(missing.end(), changed->begin(), changed->end());
  return print(session, show_differences(missing, state.has_value()));
}

ExitStatus kata_runtimeclass_verb(const Session& session, const KataOptions& options) {
  const auto file = read_classes_for(options);
  if (!file) return complain(file.error());
  std::vector<kata::RuntimeClass> all;
  for (const kata::KataClass& kata : file->classes)
    std::ranges::move(kata::runtime_classes(kata), std::back_inserter(all));
  return print(session, {.document = nlohmann::json::parse(kata::runtime_classes_json(all)),
                         .text = kata::runtime_classes_yaml(all)});
}

}  // namespace ferry::cli
