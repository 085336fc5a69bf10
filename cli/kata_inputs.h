// SPDX-License-Identifier: Apache-2.0
// What the kata verbs begin with: a class file, the container runtime that is here, the classes' files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/class_file.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/kata_configuration.h"
#include "kata-manager/runtime_at_hand.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

/// The class file; what was let pass is said on stderr.
Result<ClassFile> read_classes_for(const KataOptions& options);

/// The container runtime of the host, the way it is asked, and what makes it read its files.
struct KataRuntime {
  RuntimeAtHand at_hand;
  std::unique_ptr<ContainerRuntime> asked;
  std::unique_ptr<RuntimeControl> control;  ///< nullptr: nobody makes it, as it is wished
  /// Why there is no control although one is wished: it has no unit here. It matters only if it runs.
  std::optional<Error> no_control;
};
/// `file` may be nullptr: nothing is said of the runtime then but by the options.
Result<KataRuntime> kata_runtime(const Session& session, const KataOptions& options, const ClassFile* file);

/// What a pod here can be given at most.
Result<KataDevices> kata_devices(const Session& session);

/// Fetches a class's files, or finds them here; says how far it is on stderr when that takes long.
Result<Artifact> fetch_class(const Session& session, const KataOptions& options, const ClassFile& file,
                             const KataClass& kata);

/// What is known of a class's files without fetching them; absent: what the file names is not here. One from
/// a folder of this host has no digest.
Result<std::optional<Artifact>> known_artifact(const Session& session, const ClassFile& file,
                                               const KataClass& kata);

/// Below the host's root: the folder that artifacts were put into, for whoever takes them away without a
/// file.
Result<> remember_artifacts_dir(const Session& session, const std::filesystem::path& folder);
/// Absent: nothing was ever installed.
Result<std::optional<std::filesystem::path>> remembered_artifacts_dir(const Session& session);
Result<> forget_artifacts_dir(const Session& session);

}  // namespace ferry
