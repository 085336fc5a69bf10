// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime_at_hand.h"

#include <utility>

#include <fmt/format.h>

#include "kata-manager/containerd_program.h"
#include "kata-manager/crio_plan.h"
#include "kata-manager/k0s_plan.h"

namespace ferry {
namespace {

ContainerdSetup setup_of(const RuntimeAtHand& runtime) {
  return {.release = runtime.release,
          .main = runtime.place.configuration,
          .main_is_rendered = runtime.place.rendered};
}

class Looking {
 public:
  Looking(const HostFs& host, HostWriter& writer, ContainerRuntime& running, RuntimePlace place)
      : host_(host), writer_(writer), running_(running) {
    out_.notes = std::move(place.notes);
    out_.place = std::move(place);
  }

  Result<RuntimeAtHand> look(const std::optional<std::string>& said) {
    if (out_.place.kind == RuntimeKind::crio) return std::move(out_);
    const auto by_program = ask_its_program();
    const auto by_itself = ask_the_running_one();
    if (said) {
      auto release = ContainerdRelease::parse(*said);
      if (!release) {
        Error error = std::move(release).error();
        error.code = make_error_code(Errc::usage);
        return fail(std::move(error));
      }
      out_.release = *release;
    } else if (by_program) {
      out_.release = *by_program;
    } else if (by_itself) {
      out_.release = *by_itself;
    } else {
      return fail(Errc::not_found, "which release of containerd this is, nobody tells: " + why_,
                  "say it: --containerd-version 1.7.24");
    }
    if (by_itself && *by_itself != out_.release) {
      out_.notes.push_back(fmt::format("containerd {} runs, and {} starts with its next restart",
                                       by_itself->text(), out_.release.text()));
    }
    return std::move(out_);
  }

 private:
  std::optional<ContainerdRelease> ask_its_program() {
    for (const auto& path : out_.place.programs) {
      if (!host_.exists(path.relative_path())) continue;
      auto release = ContainerdProgram(writer_, path).release();
      if (release) {
        out_.program = path;
        return *release;
      }
      why_ += (why_.empty() ? "" : "; ") + release.error().message;
    }
    return std::nullopt;
  }
  std::optional<ContainerdRelease> ask_the_running_one() {
    const auto state = running_.state();
    if (!state) {
      why_ += (why_.empty() ? "" : "; ") + state.error().message;
      return std::nullopt;
    }
    const auto release = ContainerdRelease::parse(state->version);
    if (release) return *release;
    why_ += (why_.empty() ? "" : "; ") + release.error().message;
    return std::nullopt;
  }

  const HostFs& host_;
  HostWriter& writer_;
  ContainerRuntime& running_;
  RuntimeAtHand out_;
  std::string why_;
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
  if (runtime.place.kind == RuntimeKind::crio) return plan_crio(runtime.place.configuration, files, handlers);
  if (runtime.place.kind == RuntimeKind::k0s)
    return plan_k0s(runtime.release, runtime.place.configuration, files, handlers);
  return plan_containerd(setup_of(runtime), files, handlers);
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
  // k0s takes its time to write what containerd reads: there is nothing to hold against anything yet.
  if (!runtime.program || runtime.place.kind == RuntimeKind::k0s) return {};
  const ContainerdProgram program(writer, *runtime.program);
  auto before = program.plugins(runtime.place.configuration);
  if (!before) return {};  // it tells its release, but no more: nothing to hold anything against
  return [program, before = *before, &runtime, &plan, handlers]() -> Result<std::optional<std::string>> {
    const auto after = program.plugins(runtime.place.configuration);
    if (!after) return fail(Error(after.error()));
    return unplanned(before, *after, plan, handlers);
  };
}

}  // namespace ferry
