// SPDX-License-Identifier: Apache-2.0
// The inputs of the kata verbs: a class file, this host's container runtime, the classes' files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/class_file.h"
#include "kata-manager/confidential_mode.h"
#include "kata-manager/kata_configuration.h"
#include "kata-manager/kata_install.h"

namespace ferry {

/// Reads the class file. Its warnings go to stderr.
Result<ClassFile> read_classes_for(const KataOptions& options);

/// The host's container runtime, and its restart or reload, as `file` and `options` ask. `file` nullptr: only
/// the options count.
Result<KataRuntime> kata_runtime(const Session& session, const KataOptions& options, const ClassFile* file);

/// The GPUs' mode of confidential computing, by the Node object in file `node`; unknown if `node` is empty.
Result<ConfidentialMode> confidential_mode(const std::filesystem::path& node);

/// The most devices that a pod here can get, and their mode.
Result<KataDevices> kata_devices(const Session& session, const KataOptions& options);

/// The credentials that registries get for a class. They are in the Secret that the class names if a folder
/// of Secrets is given, else in the general file. Empty: none. Errors: as read_pull_secret(); the file cannot
/// be read.
Result<std::string> credentials_of(const Session& session, const KataOptions& options, const ClassFile& file,
                                   const KataClass& kata);

/// Changes of a class's files since their fetch, as changes_since_fetch(). A long check prints progress to
/// stderr.
Result<std::vector<std::string>> check_files(const Session& session, const Artifact& artifact);

/// Fetches a class's files, or finds them on this host. A long fetch prints progress to stderr.
Result<Artifact> fetch_class(const Session& session, const KataOptions& options, const ClassFile& file,
                             const KataClass& kata);

}  // namespace ferry
