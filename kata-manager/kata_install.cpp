// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_install.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace ferry {
namespace {

constexpr std::array kModules = {"vhost_vsock", "vhost_net"};

/// Whether what leaves may still be asked for: the daemon runs, and has not read its files. What these
/// runtimes are made of stays then, and goes with the next run.
bool still_known(ContainerRuntime& runtime, KataChange& change) {
  if (!change.outcome || !change.outcome->unproven || change.setup.gone.empty() || !runtime.state())
    return false;
  if (change.outcome->acted) return false;  // one that never says what it knows
  change.plan.notes.emplace_back(
      "Kata's files of what leaves stay until the container runtime has read its own; say this again then");
  return true;
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
  return {.files = change.plan.changes, .handlers = change.setup.handlers, .leaving = change.plan.leaving};
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
  if (still_known(*context.runtime, change)) return false;
  if (auto r = write_kata_files(*context.host, last); !r) return fail(std::move(r).error());
  if (!artifacts_dir) return true;
  for (const std::string& name : change.setup.gone) {
    if (auto r = remove_artifact(*context.host, *artifacts_dir, name); !r) return fail(std::move(r).error());
  }
  return true;
}

}  // namespace ferry
