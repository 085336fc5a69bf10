// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_install.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/kata_users.h"

namespace ferry {
namespace {

constexpr std::array kModules = {"vhost_vsock", "vhost_net"};

/// Why what leaves may still be asked for, or in use by what has begun since the look before. What these
/// runtimes are made of stays then, and goes with the next run.
Result<std::optional<std::string>> still_needed(const ChangeContext& context, const KataChange& change) {
  const auto& gone = change.setup.gone;
  if (gone.empty()) return std::optional<std::string>();
  const auto answer = context.runtime->state();
  const auto state = answer ? std::optional(*answer) : std::nullopt;
  // One that has been made to read them may be one that never says what it knows.
  if (state && change.outcome->unproven && !change.outcome->acted)
    return std::optional<std::string>("the container runtime has not read its own files yet");
  if (state) {
    if (const auto known = runtimes_of_classes(*state, gone); !known.empty())
      return std::optional(fmt::format("the container runtime knows {} with them by a file that is not ours",
                                       fmt::join(known, ", ")));
  }
  return who_has(*context.host, *context.runtime, state, gone, change.plan.leaving);
}

/// Who has the lock of the artifacts' folder removes them; absent: there are none.
Result<std::optional<UniqueFd>> lock_what_goes(const HostFs& host, const KataChange& change,
                                               const std::optional<std::filesystem::path>& artifacts_dir) {
  if (change.setup.gone.empty() || !artifacts_dir || !host.exists(artifacts_dir->relative_path()))
    return std::optional<UniqueFd>();
  auto lock = lock_artifacts(host, artifacts_dir->relative_path());
  if (!lock) return fail(std::move(lock).error());
  return std::optional(std::move(*lock));
}

}  // namespace

Result<KataChange> plan_kata(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                             const RuntimeAtHand& runtime, const ArtifactOf& artifact_of) {
  auto setup = set_up(host, file, devices, artifact_of);
  if (!setup) return fail(std::move(setup).error());
  auto plan = plan_runtime(host, runtime, setup->handlers);
  if (!plan) return fail(std::move(plan).error());
  return KataChange{.runtime = runtime, .setup = std::move(*setup), .plan = std::move(*plan)};
}

Result<KataChange> plan_no_kata(const HostFs& host, const RuntimeAtHand& runtime) {
  auto classes = classes_here(host);
  if (!classes) return fail(std::move(classes).error());
  auto plan = plan_runtime(host, runtime, {});
  if (!plan) return fail(std::move(plan).error());
  KataChange out{.runtime = runtime, .setup = {}, .plan = std::move(*plan)};
  for (const std::string& name : *classes) {
    auto removal = removal_of(host, name);
    if (!removal) return fail(std::move(removal).error());
    std::ranges::move(*removal, std::back_inserter(out.setup.files));
  }
  out.setup.gone = std::move(*classes);
  return out;
}

RuntimeChange change_of(const KataChange& change) {
  RuntimeChange out{.files = change.plan.changes,
                    .handlers = change.setup.handlers,
                    .leaving = change.plan.leaving,
                    .gone = change.setup.gone,
                    .staying = {}};
  for (const auto& [name, entry] : change.plan.after.runtimes()) out.staying.push_back(name);
  return out;
}

Result<> check_control(KataRuntime& runtime, const RuntimePlan& plan) {
  if (!runtime.no_control || plan.changes.empty()) return {};
  if (!runtime.asked->state()) return {};
  return fail(*runtime.no_control);
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

Result<bool> carry_out_kata(const ChangeContext& context, HostWriter& writer, KataChange& change,
                            const std::optional<std::filesystem::path>& artifacts_dir) {
  const auto lock = lock_what_goes(*context.host, change, artifacts_dir);  // before anything is written
  if (!lock) return fail(Error(lock.error()));
  // Kata's own files first: a handler that is known must work. Those of classes that leave go last.
  std::vector<FileChange> first;
  std::vector<FileChange> last;
  for (const FileChange& file : change.setup.files) (file.after ? first : last).push_back(file);
  if (auto r = write_kata_files(*context.host, first); !r) return fail(std::move(r).error());
  ChangeContext with_witness = context;
  with_witness.contradiction = witness_of(writer, change.runtime, change.plan, change.setup.handlers);
  if (!with_witness.contradiction && change.runtime.place.kind == RuntimeKind::containerd &&
      !change.setup.handlers.empty())
    change.plan.notes.emplace_back("containerd's own program could not be asked what it makes of its files");
  auto outcome = carry_out(with_witness, change_of(change));
  if (!outcome) return fail(std::move(outcome).error());
  change.outcome = std::move(*outcome);
  const auto needed = still_needed(context, change);
  if (!needed) return fail(Error(needed.error()));
  if (const auto& why = *needed) {
    change.plan.notes.push_back(
        fmt::format("Kata's files of what leaves stay: {}; say this again when that is over", *why));
    return false;
  }
  // A class that has a folder is looked for again: the folder last.
  if (*lock) {
    for (const std::string& name : change.setup.gone) {
      if (auto r = remove_locked_artifact(*context.host, *artifacts_dir, name); !r)
        return fail(std::move(r).error());
    }
  }
  if (auto r = write_kata_files(*context.host, last); !r) return fail(std::move(r).error());
  return true;
}

}  // namespace ferry
