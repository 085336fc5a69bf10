// SPDX-License-Identifier: Apache-2.0
// What a class file asks of this host, worked out: which runtimes the container runtime shall know, and
// Kata's configuration for each class.
//
//   /etc/ferry/kata/<class>/configuration.toml      a copy of the artifact's configuration
//   /etc/ferry/kata/<class>/config.d/60-ferry.toml  what Ferry and the class lay over it
//
// Not beside the artifact's files: a version of these is never changed, and config.d counts for every
// configuration beside it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifacts.h"
#include "kata-manager/class_file.h"
#include "kata-manager/file_change.h"
#include "kata-manager/kata_configuration.h"
#include "kata-manager/runtime_handler.h"

namespace ferry {

/// A class as it will be on this host.
struct KataClassSetup {
  std::string name;
  std::vector<std::string> handlers;
  std::filesystem::path shim;
  std::filesystem::path configuration;
  std::optional<Artifact> artifact;  ///< absent: not fetched yet, so its configuration is not known either
  std::optional<std::uint64_t> guest_memory_mib;
  /// The host's programs that the shim starts as root, the hypervisor first. Empty: the configuration is not
  /// known.
  std::vector<std::filesystem::path> programs = {};
};

/// A class that this host cannot have, and why. The others are set up without it: one file may be for many
/// hosts.
struct RefusedClass {
  std::string name;
  Error why;
};

struct KataSetup {
  std::vector<KataClassSetup> classes;  ///< in order of the file, those that are refused left out
  /// Confidential ones on a host that has no such VMs or GPUs, and those that the host's Kata cannot run.
  std::vector<RefusedClass> refused;
  std::vector<RuntimeHandler> handlers;  ///< of all of them
  std::vector<FileChange> files;  ///< below /etc/ferry/kata; those of classes that are no more among them
  std::vector<std::string> gone;  ///< classes that have a folder there, and are not in the file
  std::vector<std::string> notes;
};

/// Nothing is written. `artifact_of` gives a class's files where they are here, `version_of` the answer of
/// Kata's shim (kata_shim.h).
/// Errors: Errc::not_found, no shim; Errc::invalid_config, Errc::refused, as kata_drop_in(); those of
/// reading.
Result<KataSetup> set_up(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                         const std::function<Result<std::optional<Artifact>>(const KataClass&)>& artifact_of,
                         const VersionOf& version_of = {});

/// The classes that have a folder of ours, sorted.
Result<std::vector<std::string>> classes_here(const HostFs& host);

/// What removes the folder of a class, and all of ours in it.
Result<std::vector<FileChange>> removal_of(const HostFs& host, const std::string& name);

/// Carries file changes below /etc/ferry/kata out, and removes the folders that are empty then, /etc/ferry
/// among them.
Result<> write_kata_files(HostFs& host, const std::vector<FileChange>& files);

}  // namespace ferry
