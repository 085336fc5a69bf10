// SPDX-License-Identifier: Apache-2.0
// Plans and applies the classes of a file as the runtime handlers of a host, for `ferry kata` and `ferry
// hostd`. Fetches nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/controller/found_runtime.h"
#include "kata-manager/controller/kata_setup.h"
#include "kata-manager/controller/runtime_change.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// The container runtime of a host, how Ferry queries it, and how Ferry makes it read its files.
struct KataRuntime {
  FoundRuntime found_runtime;
  std::unique_ptr<ContainerRuntime> asked;
  std::unique_ptr<RuntimeControl> control;  ///< nullptr: Ferry does not restart the runtime
  /// Why there is no control although one is needed: the runtime has no unit here. Matters only if it runs.
  std::optional<Error> no_control;
};

/// A plan and, once it is applied, its outcome.
struct KataChange {
  FoundRuntime runtime;
  KataSetup setup;
  RuntimePlan plan;
  std::string control = {};                    ///< "restart containerd.service"; empty: no restart
  std::optional<RuntimeOutcome> outcome = {};  ///< absent: not applied
  /// Why a run would be refused as a whole now; set for a plan that is not applied. Absent: it would not be,
  /// or that is not known.
  std::optional<Error> refusal = {};
  /// Folders from which no artifact was removed: they are read-only, or are not here. hostd's container may
  /// see only the present folder.
  std::vector<std::filesystem::path> unreached = {};
  std::string left = {};  ///< why Kata's files of leaving classes stay; empty: they do not
};

/// True if Kata's files of leaving classes stay although they should be gone. If the runtime has not read
/// its own files and no restart was asked for, the files stay as intended.
bool is_left_undone(const KataChange& change);

/// True if an installation leaves the host with all it can have: at least one class, and nothing of a
/// leaving class undone. A refused class does not count, because one file may serve many hosts.
bool has_what_it_can(const KataChange& change);

using ArtifactOf = std::function<Result<std::optional<Artifact>>(const KataClass&)>;

/// Plans that the host has the file's classes and no others of Ferry. Errors: as set_up() and
/// plan_runtime().
Result<KataChange> plan_kata(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                             const FoundRuntime& runtime, const ArtifactOf& artifact_of);

/// Plans that the host has no classes of Ferry. Errors: as plan_runtime() and add_removals().
Result<KataChange> plan_no_kata(const HostFs& host, const FoundRuntime& runtime);

/// The container runtime's part of a change. `change` must outlive the result.
RuntimeChange change_of(const KataChange& change);

/// Fails with `no_control` if the plan changes the files of a runtime that runs.
Result<> check_control(KataRuntime& runtime, const RuntimePlan& plan);

/// may_apply_change() with those checks of restart_check.h that start no program. The same errors.
Result<> may_apply_kata(const ChangeContext& context, const KataChange& change);

/// Loads vhost_vsock and vhost_net, which Kata's VMs need. `hint` is for an error without one.
Result<> load_kata_modules(HostWriter& writer, const std::string& hint);

/// Writes the configuration of arriving classes, makes the container runtime take the change over
/// (runtime_change.h), then removes the artifacts of leaving classes below `artifacts_dirs` (empty: the
/// artifacts stay; as do those in `change.unreached`), and their configuration. `replaced`: as
/// remove_artifact(). So each known handler and each sandbox has its configuration at all times. Files of a
/// leaving class stay until the next run in three cases: the runtime runs and has not read its files; it
/// knows the class by another program's file; a pod uses the class (kata_users.h). If the runtime's files are
/// rolled back, Kata's are, too.
///
/// The caller holds the node lock and planned `change` under it. Outcome and notes are added to `change`.
/// Returns true if all is done; false: `change.left` has the reason. Errors: as apply_change(); Errc::refused
/// before any write if another program uses leaving artifacts; write errors.
Result<bool> apply_kata(const ChangeContext& context, HostWriter& writer, KataChange& change,
                        const std::vector<std::filesystem::path>& artifacts_dirs,
                        Replaced replaced = Replaced::stays);

}  // namespace ferry::kata
