// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/runtime_at_hand.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/containerd/containerd_program.h"
#include "kata-manager/containerd/k0s_plan.h"
#include "kata-manager/containerd/running_containerd.h"
#include "kata-manager/crio/crio_plan.h"
#include "kata-manager/crio/crio_program.h"

namespace ferry::kata {
namespace {

ContainerdSetup setup_of(const RuntimeAtHand& runtime) {
  return {.release = runtime.release,
          .main = runtime.place.configuration,
          .main_is_rendered = runtime.place.rendered,
          .placeholders = runtime.place.placeholders};
}

std::string without_witness(const RuntimeAtHand& runtime) {
  const bool is_crio = runtime.place.kind == RuntimeKind::crio;
  return fmt::format(
      "this is proven by Ferry's model of {} alone: its own program could not be asked what it makes of the "
      "files ({})",
      is_crio ? "CRI-O" : "containerd " + runtime.release.text(),
      runtime.no_program.empty() ? "it is not known" : runtime.no_program);
}

std::function<Result<std::optional<std::string>>()> witness_of_crio(
    const CrioProgram& program, const RuntimeAtHand& runtime, const RuntimePlan& plan,
    std::span<const RuntimeHandler> handlers) {
  auto before = program.configuration(runtime.place.configuration);
  // A program that cannot read CRI-O's present files proves nothing: it may lack parts in its own root.
  if (!before || !*before) return {};
  return [program, before = *before, &runtime, &plan, handlers]() -> Result<std::optional<std::string>> {
    const auto after = program.configuration(runtime.place.configuration);
    if (!after) return fail(Error(after.error()));
    return unplanned(before, *after, plan.leaving, handlers);
  };
}

class Looking {
 public:
  Looking(const HostFs& host, HostWriter& writer, ContainerRuntime& running, RuntimePlace place)
      : host_(host), writer_(writer), running_(running) {
    out_.notes = std::move(place.notes);
    out_.place = std::move(place);
    out_.version_of = version_by(writer);
  }

  Result<RuntimeAtHand> look(const std::optional<std::string>& said) {
    if (out_.place.kind == RuntimeKind::crio) {
      find_program_of_crio();
      return std::move(out_);
    }
    const auto by_itself = ask_the_running_one();
    const auto by_program = ask_its_program(by_itself);
    if (said) {
      auto release = ContainerdRelease::parse(*said);
      if (!release) {
        Error error = std::move(release).error();
        error.code = make_error_code(Errc::usage);
        return fail(std::move(error));
      }
      out_.release = *release;
      out_.release_by = "--containerd-version";
    } else if (by_program) {
      out_.release = *by_program;
    } else if (by_itself) {
      out_.release = *by_itself;
      out_.release_by = "the running containerd itself";
    } else {
      return fail(Errc::not_found, "which release of containerd this is, nobody tells: " + why(),
                  "say it: --containerd-version 1.7.24");
    }
    if (by_itself && *by_itself != out_.release) {
      out_.notes.push_back(fmt::format("containerd {} runs, and {} starts with its next restart (by {})",
                                       by_itself->text(), out_.release.text(), out_.release_by));
    }
    return std::move(out_);
  }

 private:
  struct Candidate {
    std::filesystem::path path;
    std::string what;        // its origin, for people
    bool is_certain = true;  // false: may be another installation's
  };

  std::vector<Candidate> candidates() const {
    const RuntimePlace& place = out_.place;
    std::vector<Candidate> out;
    if (place.started) out.push_back({.path = *place.started, .what = "which its unit starts"});
    if (const auto running = running_containerd(host_, place); running && !place.started)
      out.push_back({.path = *running, .what = "which runs"});
    // Distributions of Kubernetes ship their own containerd.
    const bool is_usual = place.name == "containerd";
    for (const auto& path : place.programs) {
      if (std::ranges::find(out, path, &Candidate::path) != out.end()) continue;
      out.push_back({.path = path,
                     .what = is_usual ? "where containerd usually is" : "of " + place.name,
                     .is_certain = !is_usual});
    }
    return out;
  }

  std::optional<ContainerdRelease> ask_its_program(const std::optional<ContainerdRelease>& by_itself) {
    for (const Candidate& candidate : candidates()) {
      const std::string path = candidate.path.string();
      if (!host_.exists(candidate.path.relative_path())) {
        add_to(out_.no_program, "there is no " + path);
        continue;
      }
      auto release = ContainerdProgram(writer_, candidate.path).release();
      if (!release) {
        add_to(out_.no_program, release.error().message);
        continue;
      }
      if (!candidate.is_certain && by_itself && *by_itself != *release) {
        const std::string strays = fmt::format(
            "{} is containerd {}, and containerd {} runs by its own word: that program is not the one that "
            "runs",
            path, release->text(), by_itself->text());
        add_to(out_.no_program, strays);
        continue;
      }
      out_.program = candidate.path;
      out_.release_by = fmt::format("{}, {}", path, candidate.what);
      out_.no_program.clear();
      return *release;
    }
    return std::nullopt;
  }

  void find_program_of_crio() {
    for (const auto& path : out_.place.programs) {
      if (!host_.exists(path.relative_path())) {
        add_to(out_.no_program, "there is no " + path.string());
        continue;
      }
      out_.program = path;
      out_.no_program.clear();
      return;
    }
  }

  std::optional<ContainerdRelease> ask_the_running_one() {
    const auto state = running_.state();
    if (!state) {
      why_ = state.error().message;
      return std::nullopt;
    }
    const auto release = ContainerdRelease::parse(state->version);
    if (release) return *release;
    why_ = release.error().message;
    return std::nullopt;
  }

  static void add_to(std::string& list, const std::string& what) {
    list += (list.empty() ? "" : "; ") + what;
  }
  std::string why() const {
    return out_.no_program.empty() ? why_ : out_.no_program + (why_.empty() ? "" : "; ") + why_;
  }

  const HostFs& host_;
  HostWriter& writer_;
  ContainerRuntime& running_;
  RuntimeAtHand out_;
  std::string why_;  // why the running daemon gives no release
};

}  // namespace

std::string RuntimeAtHand::text() const {
  const std::string release_text = place.kind == RuntimeKind::crio ? "" : " " + release.text();
  if (place.name == "containerd" || place.kind == RuntimeKind::crio) return place.name + release_text;
  return "containerd" + release_text + " of " + place.name;
}

Result<RuntimeAtHand> runtime_at_hand(const HostFs& host, HostWriter& writer, ContainerRuntime& running,
                                      RuntimePlace place, const std::optional<std::string>& said) {
  return Looking(host, writer, running, std::move(place)).look(said);
}

Result<RuntimePlan> plan_runtime(const HostFs& host, const RuntimeAtHand& runtime,
                                 std::span<const RuntimeHandler> handlers) {
  const ConfigFiles files(host);
  const RuntimePlace& place = runtime.place;
  auto plan = place.kind == RuntimeKind::crio ? plan_crio(place.configuration, files, handlers)
              : place.kind == RuntimeKind::k0s
                  ? plan_k0s(runtime.release, place.configuration, files, handlers)
                  : plan_containerd(setup_of(runtime), files, handlers);
  // k0s writes containerd's file only later, so no program can check it.
  if (plan && !plan->changes.empty() && place.kind == RuntimeKind::k0s) {
    plan->notes.push_back(
        "nothing proves this before containerd reads it: k0s takes its drop-ins in by itself, at once");
  } else if (plan && !plan->changes.empty() && !runtime.program) {
    plan->notes.push_back(without_witness(runtime));
  }
  return plan;
}

Result<std::vector<PlacedRuntime>> placed_runtimes(const HostFs& host, const RuntimeAtHand& runtime) {
  const ConfigFiles files(host);
  if (runtime.place.kind == RuntimeKind::crio) return placed_in_crio(runtime.place.configuration, files);
  if (runtime.place.kind == RuntimeKind::k0s) return placed_in_k0s(runtime.place.configuration, files);
  return placed_in_containerd(setup_of(runtime), files);
}

std::function<Result<std::optional<std::string>>()> witness_of(HostWriter& writer,
                                                               const RuntimeAtHand& runtime,
                                                               const RuntimePlan& plan,
                                                               std::span<const RuntimeHandler> handlers) {
  // k0s writes containerd's file only later, so there is nothing to compare.
  if (!runtime.program || runtime.place.kind == RuntimeKind::k0s) return {};
  if (runtime.place.kind == RuntimeKind::crio)
    return witness_of_crio(CrioProgram(writer, *runtime.program), runtime, plan, handlers);
  const ContainerdProgram program(writer, *runtime.program);
  auto before = program.plugins(runtime.place.configuration);
  if (!before) return {};  // it gives its release, but cannot read the files
  return [program, before = *before, &runtime, &plan, handlers]() -> Result<std::optional<std::string>> {
    const auto after = program.plugins(runtime.place.configuration);
    if (!after) return fail(Error(after.error()));
    return unplanned(before, *after, plan, handlers, runtime.release);
  };
}

}  // namespace ferry::kata
