// SPDX-License-Identifier: Apache-2.0
// Plans the classes of a class file for this host: which runtime handlers the container runtime must have,
// and Kata's configuration for each class.
//
//   /etc/ferry/kata/<class>/configuration.toml      a copy of the artifact's configuration
//   /etc/ferry/kata/<class>/config.d/60-ferry.toml  the settings of Ferry and of the class, which override it
//
// The copy does not lie beside the artifact's files: an artifact version never changes, and config.d counts
// for every configuration beside it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/configuration/kata_configuration.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {

/// A class as it will be set up on this host.
struct KataClassSetup {
  std::string name;
  std::vector<std::string> handlers;
  std::filesystem::path shim;
  std::filesystem::path configuration;
  std::optional<Artifact> artifact;  ///< absent: not fetched yet, so its configuration is unknown too
  std::optional<std::uint64_t> guest_memory_mib = {};
  /// Programs of the host that the shim starts as root, the hypervisor first. Empty: the configuration is
  /// not known.
  std::vector<std::filesystem::path> programs = {};
};

/// A class that this host cannot run, and the reason. The other classes are still set up, because one class
/// file may serve many hosts.
struct RefusedClass {
  std::string name;
  Error why;
};

struct KataSetup {
  std::vector<KataClassSetup> classes;  ///< in order of the file, without refused ones
  /// Confidential classes on a host without such VMs or GPUs, and classes that the host's Kata cannot run.
  std::vector<RefusedClass> refused;
  std::vector<RuntimeHandler> handlers;  ///< of all classes
  std::vector<FileChange> files;         ///< below /etc/ferry/kata; the removals for `gone` included
  std::vector<std::string> gone;         ///< classes that have a folder there but are not in the file
  std::vector<std::string> notes;
};

/// Writes nothing. `artifact_of` returns a class's artifact if it is on the host; `version_of` asks Kata's
/// shim for its release (kata_shim.h).
/// Errors: Errc::not_found: no shim; Errc::invalid_config and Errc::refused: as kata_drop_in(); Errc::refused
/// also as check_root_only(), for a folder of `file://`; read errors.
Result<KataSetup> set_up(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                         const std::function<Result<std::optional<Artifact>>(const KataClass&)>& artifact_of,
                         const VersionOf& version_of = {});

/// Names of the classes that have a folder below /etc/ferry/kata, sorted.
Result<std::vector<std::string>> classes_here(const HostFs& host);

/// Adds to `gone` and `files` the removal of each class that has files of Ferry here and is not in the setup.
Result<> add_removals(const HostFs& host, KataSetup& setup);

/// Makes file changes below /etc/ferry/kata, then removes empty folders up to and including /etc/ferry.
Result<> write_kata_files(HostFs& host, const std::vector<FileChange>& files);

}  // namespace ferry::kata
