// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "kata-manager/artifacts/safe_tree.h"

namespace ferry::kata {

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
