// SPDX-License-Identifier: Apache-2.0
// The inputs of the kata verbs: a class file, this host's container runtime, the classes' files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/verbs/verbs.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/confidential_mode.h"
#include "kata-manager/configuration/kata_configuration.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/controller/runtime_change.h"

namespace ferry::cli {

// Makes a container runtime read its files: by a restart or reload of a systemd unit, or by the
// administrator's command.

/// Restarts `unit`. Its KillMode decides whether that ends pods, since their shims are processes of the
/// service. The host's systemctl shows that mode, since systemd may not have read the present file. Without
/// systemctl the unit's files count.
std::unique_ptr<kata::RuntimeControl> restart_of_unit(const HostFs& host, HostWriter& writer,
                                                      const std::string& unit);

/// Makes `unit` read its configuration anew, which ends no pod.
std::unique_ptr<kata::RuntimeControl> reload_of_unit(const HostFs& host, const std::string& unit);

/// Runs a program of the host with its arguments. Only the administrator knows its effect on pods.
std::unique_ptr<kata::RuntimeControl> run_of_command(HostWriter& writer, std::vector<std::string> words);

/// Reads the class file. Its warnings go to stderr.
Result<kata::ClassFile> read_classes_for(const KataOptions& options);

/// The host's container runtime, and its restart or reload, as `file` and `options` ask. `file` nullptr: only
/// the options count.
Result<kata::KataRuntime> kata_runtime(const Session& session, const KataOptions& options,
                                       const kata::ClassFile* file);

/// The GPUs' mode of confidential computing: by their registers in hostd's status, else by the Node object in
/// file `node`; without both it is unknown.
Result<kata::ConfidentialMode> confidential_mode(const HostFs& host, const std::filesystem::path& node);

/// The most devices that a pod here can get, and their mode.
Result<kata::KataDevices> kata_devices(const Session& session, const KataOptions& options);

}  // namespace ferry::cli
