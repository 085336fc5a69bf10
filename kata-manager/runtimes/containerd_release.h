// SPDX-License-Identifier: Apache-2.0
// A containerd release, and how releases differ in their configuration. Measured on eleven releases, from
// 1.6.20 to main of August 2026 (tests/fixtures/containerd). Other releases count as the measured one
// before them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::kata {

/// Takes MAJOR.MINOR.PATCH from the start of a text. Absent: it does not begin so.
std::optional<std::array<unsigned, 3>> take_release_numbers(std::string_view& text);

struct ContainerdRelease {
  unsigned major_number = 0;
  unsigned minor_number = 0;
  unsigned patch = 0;
  bool final_one = true;  ///< false: alpha, beta or candidate, which sort before it
  auto operator<=>(const ContainerdRelease&) const = default;  // NOLINT(readability-implicit-bool-conversion)

  /// "1.7.24", "v2.2.2-k3s1", "containerd://2.0.0-rc.1" (a node's containerRuntimeVersion),
  /// "1.6.20~ds1-1+deb12u1". Errc::malformed_host: another text. Errc::unsupported: before 1.6, or a major
  /// release above 2.
  static Result<ContainerdRelease> parse(std::string_view text);
  std::string text() const;

  /// The highest `version` of a file.
  std::int64_t highest_version() const;
  /// True: later files are merged into a plugin's section by key. False: they replace the section.
  bool merges_sections() const { return major_number >= 2; }
  /// True: each file is migrated to the newest version by itself, before the merge.
  bool migrates_each_file() const { return *this >= ContainerdRelease{2, 3, 0}; }
  /// True: the daemon exits if a drop-in's version is above the main file's.
  bool refuses_higher_drop_ins() const { return migrates_each_file() && *this < ContainerdRelease{2, 4, 0}; }
  /// True: the release checks the version at all.
  bool checks_version() const { return *this >= ContainerdRelease{1, 6, 32}; }
  /// True: a pod's shim is the program in `runtime_path`. 1.6 reads and shows that key, but finds the
  /// program by `runtime_type` (seen with 1.6.20: its client does not pass the path to the task service).
  bool starts_shims_by_path() const { return *this >= ContainerdRelease{1, 7, 0}; }
  /// True: a runtime may have a snapshotter of its own.
  bool has_runtime_snapshotters() const { return *this >= ContainerdRelease{1, 7, 0}; }
  /// True: a relative import with a star is relative to its file. False: to the daemon's working directory,
  /// which for a service is "/".
  bool globs_beside_the_file() const { return *this >= ContainerdRelease{1, 6, 21}; }
};

}  // namespace ferry::kata
