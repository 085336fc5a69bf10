// SPDX-License-Identifier: Apache-2.0
// The model of how a containerd release merges its configuration files. By it Ferry chooses the place of its
// runtimes, and on a host without containerd's program it alone shows that nothing else changes.
//
// The model knows how files are imported, merged and migrated, which `version` a release refuses, and why CRI
// would have no default runtime. Other faults of a file, such as a value of the wrong type, are found by the
// trial start of the host's own containerd (controller/restart_check.h). The rules are those of the releases'
// code, checked against eleven builds with 78 configurations (tests/fixtures/containerd).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/containerd_release.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// The sections that configure CRI.
inline constexpr const char* kCriOfVersion1 = "cri";
inline constexpr const char* kCriOfVersion2 = "io.containerd.grpc.v1.cri";
inline constexpr const char* kCriRuntime = "io.containerd.cri.v1.runtime";  ///< from version 3 on
inline constexpr const char* kCriImages = "io.containerd.cri.v1.images";    ///< from version 3 on

/// A parsed configuration file.
struct ContainerdFile {
  std::filesystem::path path;
  TomlTable root;
  /// The file's `version`; 0: none.
  std::int64_t version() const;
};

/// The version of the last file that has one; 0: none has.
std::int64_t last_version(std::span<const ContainerdFile> files);

/// containerd's socket if neither its command nor its files name another.
inline constexpr const char* kContainerdSocket = "/run/containerd/containerd.sock";

/// The socket that the files name (`[grpc] address`, or that of version 4); absent: none, or they cannot be
/// read.
std::optional<std::filesystem::path> socket_in_files(const ConfigFiles& files,
                                                     const std::filesystem::path& main);

struct ContainerdOutcome {
  std::optional<Error> no_start;      ///< why the daemon would exit, as far as the model knows
  std::optional<Error> no_cri;        ///< why it would run without CRI, and so without pods; as above
  std::vector<ContainerdFile> files;  ///< the main file, then its imports, in order
  /// The section of CRI's runtimes: kCriOfVersion2 before 2.0, kCriRuntime since.
  std::string runtime_section;
  /// Each plugin's effective section by ID. CRI's default runtime is included although no file has it; other
  /// built-in values are not. Empty if the daemon does not start.
  TomlTable plugins;

  /// CRI's runtime handlers by name.
  const TomlTable& runtimes() const;
};

/// The main file and its imports, breadth first, each once, without `plugins`. Only a pattern with `*` may
/// match no file. After a file that is an error in `no_start` no other is read.
ContainerdOutcome read_containerd_files(const ContainerdRelease& release, const ConfigFiles& files,
                                        const std::filesystem::path& main);

/// "FILE:LINE" of each file that has these keys, from its root, and `element` in the list there, if it is
/// given.
std::vector<std::string> places_of(const ConfigFiles& files, const ContainerdOutcome& out,
                                   const TomlPath& keys, const std::string& element = {});

/// `main` is the path of the main file. A missing main file is an error in `no_start`, because a daemon is
/// given its path.
ContainerdOutcome predict_containerd(const ContainerdRelease& release, const ConfigFiles& files,
                                     const std::filesystem::path& main);

}  // namespace ferry::kata
