// SPDX-License-Identifier: Apache-2.0
// CRI-O's own program asked what it makes of its files: the witness beside what we have written. `crio
// config` reads and checks them, prints what they come to, and starts nothing. ABI: crio(8), `--config`,
// `--config-dir`, `config`. What is as it is built in stands there as a comment.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/runtime_handler.h"
#include "kata-manager/toml.h"

namespace ferry {

class CrioProgram {
 public:
  /// `writer` must outlive this.
  CrioProgram(HostWriter& writer, std::filesystem::path program)
      : writer_(&writer), program_(std::move(program)) {}

  const std::filesystem::path& path() const { return program_; }

  /// The table `crio` as it reads the main file beside the folder of drop-ins, and those; absent: it cannot
  /// read them, or refuses them. Errors: as HostWriter::output(); Errc::invalid_config, its answer is no
  /// TOML.
  Result<std::optional<TomlTable>> configuration(const std::filesystem::path& folder) const;

 private:
  HostWriter* writer_;
  std::filesystem::path program_;
};

/// What `crio config` has printed, as TOML: of its runtimes also those that stand there as comments. They are
/// comments while all of them are the built-in ones, and none is any more once one of ours is beside them.
std::string with_built_in_runtimes(std::string_view printed);

/// What the program reads after a change that it should not, or does not that it should; nothing: our
/// runtimes are there as they are written, those that leave are gone, and all else is as it was. Both as
/// CrioProgram::configuration() gave them; where it could not read what was there before, only ours are
/// looked at.
std::optional<std::string> unplanned(const std::optional<TomlTable>& before,
                                     const std::optional<TomlTable>& after,
                                     const std::vector<std::string>& leaving,
                                     std::span<const RuntimeHandler> handlers);

}  // namespace ferry
