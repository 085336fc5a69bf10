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
#include "kata-manager/runtime_handler.h"
#include "kata-manager/runtime_place.h"

namespace ferry {

struct RuntimeAtHand {
  RuntimePlace place;
  ContainerdRelease release;                     ///< of containerd; of CRI-O none is needed
  std::optional<std::filesystem::path> program;  ///< of containerd, where it can be asked
  std::vector<std::string> notes;

  /// "containerd 1.7.24", "cri-o"
  std::string text() const;
};

/// containerd's release is what `said` says, else what its program says, which is the one that a restart
/// starts, else what the running one says.
/// Errors: as find_runtime(); Errc::not_found, nobody tells containerd's release.
Result<RuntimeAtHand> runtime_at_hand(const HostFs& host, HostWriter& writer, ContainerRuntime& running,
                                      RuntimePlace place, const std::optional<std::string>& said);

/// As plan_containerd(), plan_crio() and plan_k0s().
Result<RuntimePlan> plan_runtime(const HostFs& host, const RuntimeAtHand& runtime,
                                 std::span<const RuntimeHandler> handlers);

/// As placed_in_containerd(), placed_in_crio() and placed_in_k0s().
Result<std::vector<PlacedRuntime>> placed_runtimes(const HostFs& host, const RuntimeAtHand& runtime);

/// For ChangeContext::contradiction: what containerd's program reads now is remembered, and what it reads
/// then held against it. Empty where it cannot be asked, or k0s has yet to write what it reads. The arguments
/// must outlive it.
std::function<Result<std::optional<std::string>>()> witness_of(HostWriter& writer,
                                                               const RuntimeAtHand& runtime,
                                                               const RuntimePlan& plan,
                                                               std::span<const RuntimeHandler> handlers);

}  // namespace ferry
