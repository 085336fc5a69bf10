// SPDX-License-Identifier: Apache-2.0
// What the kata verbs begin with: a class file, the container runtime that is here, the classes' files.
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

/// The class file; what was let pass is said on stderr.
Result<ClassFile> read_classes_for(const KataOptions& options);

/// The container runtime of the host, and what makes it read its files as the file and the options say.
/// `file` may be nullptr: nothing is said of the runtime then but by the options.
Result<KataRuntime> kata_runtime(const Session& session, const KataOptions& options, const ClassFile* file);

/// In which mode of confidential computing the GPUs are, by the Node object that is named; without one it is
/// unknown.
Result<ConfidentialMode> confidential_mode(const std::filesystem::path& node);

/// What a pod here can be given at most, in which mode.
Result<KataDevices> kata_devices(const Session& session, const KataOptions& options);

/// What registries are told of us for a class: the Secret that it names, where their folder is given, else
/// the credentials that count for all. Empty: nothing. Errors: as read_pull_secret(); the file cannot be
/// read.
Result<std::string> credentials_of(const Session& session, const KataOptions& options, const ClassFile& file,
                                   const KataClass& kata);

/// What of a class's files is not as it was fetched, as changes_since_fetch(); says how far it is on stderr
/// when that takes long.
Result<std::vector<std::string>> check_files(const Session& session, const Artifact& artifact);

/// Fetches a class's files, or finds them here; says how far it is on stderr when that takes long.
Result<Artifact> fetch_class(const Session& session, const KataOptions& options, const ClassFile& file,
                             const KataClass& kata);

}  // namespace ferry
