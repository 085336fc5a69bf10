// SPDX-License-Identifier: Apache-2.0
// Runs containerd's own program with `--version` and `config dump`, which start nothing. Its answer checks
// the prediction, and includes the distribution's built-in values.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "common/result.h"
#include "hostfs/host_writer.h"
#include "kata-manager/containerd/containerd_plan.h"
#include "kata-manager/containerd/containerd_release.h"

namespace ferry::kata {

class ContainerdProgram {
 public:
  /// `writer` must outlive this object.
  ContainerdProgram(HostWriter& writer, std::filesystem::path program)
      : writer_(&writer), program_(std::move(program)) {}

  const std::filesystem::path& path() const { return program_; }

  /// Errors: as HostWriter::output() and ContainerdRelease::parse().
  Result<ContainerdRelease> release() const;

  /// Each plugin's section, built-in values included, as the program reads the files at `main`; absent: it
  /// cannot read them. Some faults that end a daemon are missing here; containerd_config.h has more.
  /// Errors: as HostWriter::output().
  Result<std::optional<TomlTable>> plugins(const std::filesystem::path& main) const;

 private:
  HostWriter* writer_;
  std::filesystem::path program_;
};

/// A difference between the program's reading and the plan; absent: Ferry's runtimes are as planned, and
/// the rest is unchanged. `before` and `after` are from plugins(). Without `before`, only Ferry's runtimes
/// are checked.
std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after, const RuntimePlan& plan,
                                     std::span<const RuntimeHandler> handlers,
                                     const ContainerdRelease& release);

}  // namespace ferry::kata
