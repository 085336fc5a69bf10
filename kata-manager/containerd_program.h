// SPDX-License-Identifier: Apache-2.0
// containerd's own program asked what it is, and what it makes of its files: the witness beside our model of
// it, with whatever a distribution has built into it. It is only asked, by `--version` and `config dump`, and
// starts nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/containerd_plan.h"
#include "kata-manager/containerd_release.h"

namespace ferry {

class ContainerdProgram {
 public:
  /// `writer` must outlive this.
  ContainerdProgram(HostWriter& writer, std::filesystem::path program)
      : writer_(&writer), program_(std::move(program)) {}

  const std::filesystem::path& path() const { return program_; }

  /// Errors as HostWriter::output() and ContainerdRelease::parse() have them.
  Result<ContainerdRelease> release() const;

  /// Every plugin's section as it reads the files at `main`, what is built in among them; absent: it cannot
  /// read them. Not every reason for which a daemon ends shows here: containerd_config.h knows more of them.
  /// Errors as HostWriter::output() has them.
  Result<std::optional<TomlTable>> plugins(const std::filesystem::path& main) const;

 private:
  HostWriter* writer_;
  std::filesystem::path program_;
};

/// What the program reads after a change that it should not, or does not that it should; nothing: our
/// runtimes are there as planned, and all else is as it was. Both as plugins() gave them; where it could not
/// read what was there before, only ours are looked at.
std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after, const RuntimePlan& plan,
                                     std::span<const RuntimeHandler> handlers,
                                     const ContainerdRelease& release);

}  // namespace ferry
