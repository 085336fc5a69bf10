// SPDX-License-Identifier: Apache-2.0
// containerd's own program asked what it is, and what it makes of its files: the witness beside our model of
// it. It is only asked, by `--version` and `config dump`, and starts nothing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/containerd_config.h"
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

  /// Whether it reads the files at `main` as it was predicted: that they can be read at all, and each runtime
  /// and whatever else is in CRI's sections. Nothing: it does. Not every reason for which a daemon ends shows
  /// here (kata-manager/containerd_config.h knows more of them). Errors as HostWriter::output() has them.
  Result<std::optional<std::string>> contradiction(const ContainerdOutcome& predicted,
                                                   const std::filesystem::path& main) const;

 private:
  HostWriter* writer_;
  std::filesystem::path program_;
};

}  // namespace ferry
