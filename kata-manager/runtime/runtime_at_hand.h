// SPDX-License-Identifier: Apache-2.0
// This host's container runtime with all inputs of a plan, containerd and CRI-O alike.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/classes/runtime_handler.h"
#include "kata-manager/containerd/containerd_plan.h"
#include "kata-manager/containerd/containerd_release.h"
#include "kata-manager/kata/kata_shim.h"
#include "kata-manager/runtime/container_runtime.h"
#include "kata-manager/runtime/runtime_place.h"

namespace ferry::kata {

struct RuntimeAtHand {
  RuntimePlace place;
  ContainerdRelease release;  ///< containerd's; unused for CRI-O
  std::string release_by;     ///< its source: "/usr/bin/containerd, which containerd.service starts"
  /// The runtime's own program, if it can read the files for a check.
  std::optional<std::filesystem::path> program;
  std::string no_program;  ///< why there is none; empty: there is, or none is needed
  std::vector<std::string> notes;
  VersionOf version_of = {};  ///< asks this host's Kata shims

  /// "containerd 1.7.24", "cri-o"
  std::string text() const;
};

/// containerd's release is `said`, else that of the program which a restart starts: its unit's or, if that
/// is not known, the running one (/proc). A program at containerd's usual path counts only if the daemon
/// gives no release or the same one, because it may belong to another installation. Otherwise the daemon's
/// own answer counts. Errors: as find_runtime(); Errc::not_found: the release is unknown. `writer` must
/// outlive the result.
Result<RuntimeAtHand> runtime_at_hand(const HostFs& host, HostWriter& writer, ContainerRuntime& running,
                                      RuntimePlace place, const std::optional<std::string>& said);

/// Calls plan_containerd(), plan_crio() or plan_k0s(). If the runtime's program cannot be asked, a note
/// says that only Ferry's model proves the plan.
Result<RuntimePlan> plan_runtime(const HostFs& host, const RuntimeAtHand& runtime,
                                 std::span<const RuntimeHandler> handlers);

/// Calls placed_in_containerd(), placed_in_crio() or placed_in_k0s().
Result<std::vector<PlacedRuntime>> placed_runtimes(const HostFs& host, const RuntimeAtHand& runtime);

/// For ChangeContext::contradiction: compares the program's present reading of the files with a later one.
/// Empty: the program cannot be asked, or k0s writes the files only later. The arguments must outlive the
/// result.
std::function<Result<std::optional<std::string>>()> witness_of(HostWriter& writer,
                                                               const RuntimeAtHand& runtime,
                                                               const RuntimePlan& plan,
                                                               std::span<const RuntimeHandler> handlers);

}  // namespace ferry::kata
