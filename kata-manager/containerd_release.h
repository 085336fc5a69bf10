// SPDX-License-Identifier: Apache-2.0
// A containerd release, and in what releases differ about their configuration.
// Measured on eleven of them, 1.6.20 to a main of August 2026 (tests/fixtures/containerd); others are taken
// to be like the one before them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

struct ContainerdRelease {
  unsigned major_number = 0;
  unsigned minor_number = 0;
  unsigned patch = 0;
  bool final_one = true;  ///< false: an alpha, a beta or a candidate, which come before it
  auto operator<=>(const ContainerdRelease&) const = default;  // NOLINT(readability-implicit-bool-conversion)

  /// "1.7.24", "v2.2.2-k3s1", "containerd://2.0.0-rc.1" (a node's containerRuntimeVersion),
  /// "1.6.20~ds1-1+deb12u1". Errc::malformed_host otherwise, or where nothing is known of such a release:
  /// before 1.6, or a later major one than 2.
  static Result<ContainerdRelease> parse(std::string_view text);
  std::string text() const;

  /// The highest `version` that a file may have.
  std::int64_t highest_version() const;
  /// Whether later files are merged into a plugin's section, key by key; else they replace it.
  bool merges_sections() const { return major_number >= 2; }
  /// Whether each file is brought to the newest version by itself, before they are merged.
  bool migrates_each_file() const { return *this >= ContainerdRelease{2, 3, 0}; }
  /// Whether it does not start when a drop-in's version is above that of the main file.
  bool refuses_higher_drop_ins() const { return migrates_each_file() && *this < ContainerdRelease{2, 4, 0}; }
  /// Whether it looks at the version at all.
  bool checks_version() const { return *this >= ContainerdRelease{1, 6, 32}; }
  /// Whether it has heard of CDI (`enable_cdi`, `cdi_spec_dirs`).
  bool knows_cdi() const { return *this >= ContainerdRelease{1, 7, 0}; }
  /// Whether a pod's shim is the program that its runtime's `runtime_path` names. 1.6 reads that key, says
  /// that it has it, and looks for a program by `runtime_type` all the same (seen of 1.6.20: its client
  /// leaves the path out of what it asks the task service for).
  bool starts_shims_by_path() const { return *this >= ContainerdRelease{1, 7, 0}; }
  /// Whether the programs of the pods' network may lie in several folders (`cni.bin_dirs`).
  bool has_list_of_network_folders() const { return *this >= ContainerdRelease{2, 1, 0}; }
  /// Whether a runtime may have a snapshotter of its own.
  bool has_runtime_snapshotters() const { return *this >= ContainerdRelease{1, 7, 0}; }
  /// Whether a relative import with a star is looked for beside the file that has it; else below the daemon's
  /// working directory, which for a service is "/".
  bool globs_beside_the_file() const { return *this >= ContainerdRelease{1, 6, 21}; }
};

}  // namespace ferry
