// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts.h"

namespace ferry {

/// The parts of a path below a tree's top, as inner_path() gives them; never empty save for the top itself.
using InnerParts = std::vector<std::string>;

/// A folder that is filled with what comes from outside: nothing is written through a link, nothing but
/// files, folders and links is made, and no more of them than the limits say. What is there already is
/// replaced by a file or a link of the same name; a folder never is.
class SafeTree {
 public:
  /// `top`: the folder, open for reading.
  SafeTree(UniqueFd top, const ArtifactLimits& limits) : top_(std::move(top)), limits_(limits) {}

  // Each of these makes the folders on the way, with mode 0775, less the umask. Errc::refused: a limit, or
  // something is there that is no folder; else an errno.
  Result<> folder(const InnerParts& path);
  Result<UniqueFd> file(const InnerParts& path, mode_t mode);
  /// Refused where link_stays_inside() says no.
  Result<> link(const InnerParts& path, const std::string& target);
  /// Another name of a file that is in this tree.
  Result<> another_name(const InnerParts& path, const InnerParts& of);
  /// Another name of a file that lies elsewhere on the same file system.
  Result<> adopt(const InnerParts& path, int from_folder, const std::string& from_name, std::uint64_t size);

  const ArtifactLimits& limits() const { return limits_; }

  /// Before so many bytes are written. Errc::refused: they are more than the limit.
  Result<> count_bytes(std::uint64_t bytes);

 private:
  Result<UniqueFd> open_folder(const InnerParts& path, std::size_t depth, bool make);
  Result<UniqueFd> parent_for_new(const InnerParts& path);
  Result<> count_entry();

  UniqueFd top_;
  ArtifactLimits limits_;
  std::uint64_t entries_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace ferry
