// SPDX-License-Identifier: Apache-2.0
// The container runtime of this host with all that planning for it takes: containerd and CRI-O as one.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/containerd_plan.h"
#include "kata-manager/containerd_release.h"
#include "kata-manager/kata_shim.h"
#include "kata-manager/runtime_handler.h"
#include "kata-manager/runtime_place.h"

namespace ferry {

struct RuntimeAtHand {
  RuntimePlace place;
  ContainerdRelease release;  ///< of containerd; of CRI-O none is needed
  std::string release_by;     ///< who has told it: "/usr/bin/containerd, which containerd.service starts"
  /// The runtime's own program, where it can be asked what it makes of its files.
  std::optional<std::filesystem::path> program;
  std::string no_program;  ///< why there is none; empty: there is, or none is looked for
  std::vector<std::string> notes;
  VersionOf version_of = {};  ///< asks Kata's shims of this host

  /// "containerd 1.7.24", "cri-o"
  std::string text() const;
};

/// containerd's release is what `said` says, else what the program says that a restart starts: that of its
/// unit or, where that is not known, the one that runs now (proc). A program that only lies where
/// containerd's usually does counts where nobody answers, or where it is of the release that the running one
/// says of itself: it may be another one's, and the running one's own word counts then. Errors: as
/// find_runtime(); Errc::not_found, nobody tells containerd's release. `writer` must outlive what is
/// returned.
Result<RuntimeAtHand> runtime_at_hand(const HostFs& host, HostWriter& writer, ContainerRuntime& running,
                                      RuntimePlace place, const std::optional<std::string>& said);

/// As plan_containerd(), plan_crio() and plan_k0s(). Where the runtime's own program cannot be asked the
/// notes say that the plan is proven by our model alone.
Result<RuntimePlan> plan_runtime(const HostFs& host, const RuntimeAtHand& runtime,
                                 std::span<const RuntimeHandler> handlers);

/// As placed_in_containerd(), placed_in_crio() and placed_in_k0s().
Result<std::vector<PlacedRuntime>> placed_runtimes(const HostFs& host, const RuntimeAtHand& runtime);

/// For ChangeContext::contradiction: what the runtime's own program reads now is remembered, and what it
/// reads then held against it. Empty where it cannot be asked, or k0s has yet to write what it reads. The
/// arguments must outlive it.
std::function<Result<std::optional<std::string>>()> witness_of(HostWriter& writer,
                                                               const RuntimeAtHand& runtime,
                                                               const RuntimePlan& plan,
                                                               std::span<const RuntimeHandler> handlers);

}  // namespace ferry
