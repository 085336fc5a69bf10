// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

/// The parts of a path below a tree's top, from inner_path(); empty: the top itself.
using InnerParts = std::vector<std::string>;

/// A folder for untrusted content. It writes through no link, and makes only files, folders and links,
/// within the limits. A file or link replaces an entry of the same name, but never a folder.
class SafeTree {
 public:
  /// `top`: the folder, open for reading.
  SafeTree(UniqueFd top, const ArtifactLimits& limits) : top_(std::move(top)), limits_(limits) {}

  // Each of these makes missing folders, with mode 0775 less the umask. Errc::refused: a limit, or an entry
  // on the path is no folder; other errors: errno.
  Result<> folder(const InnerParts& path);
  Result<UniqueFd> file(const InnerParts& path, mode_t mode);
  /// Errc::refused if link_stays_inside() is false.
  Result<> link(const InnerParts& path, const std::string& target);
  /// Makes a hard link to a file in this tree.
  Result<> another_name(const InnerParts& path, const InnerParts& of);
  /// Makes a hard link to a file outside the tree, on the same file system.
  Result<> adopt(const InnerParts& path, int from_folder, const std::string& from_name, std::uint64_t size);

  const ArtifactLimits& limits() const { return limits_; }

  /// Counts bytes before they are written. Errc::refused: they exceed the limit.
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

struct UnpackOptions {
  InnerParts below = {};  ///< entries must be below this folder; empty: anywhere in the tree
  bool allow_setuid = false;
};

/// Unpacks a tar (plain, gzip, xz or zstd) as a stream. Owners and times are dropped; a mode keeps the
/// owner's rights, and the others' without writing. If an entry is refused, the caller must discard the
/// tree, which has the entries before it. Errc::refused: an entry that leads out, a device, a set-user-ID
/// file, a limit. Errc::unsupported: an entry that removes one of another layer. Errc::malformed_host: an
/// unreadable archive.
Result<> unpack(int archive, SafeTree& into, const UnpackOptions& options);

}  // namespace ferry::kata
