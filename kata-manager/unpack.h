// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "kata-manager/safe_tree.h"

namespace ferry {

struct UnpackOptions {
  InnerParts below = {};  ///< every entry has to be below this; empty: anywhere in the tree
  bool allow_setuid = false;
};

/// Unpacks a tar, as it is or by gzip, xz or zstd, as a stream. Owners and times are not taken over; of modes
/// what the owner may, and others may read. An archive of which something is refused is refused whole: what
/// came before it is in the tree and has to be thrown away.
/// Errc::refused: an entry that leads out, a device, a set-user-ID file, a limit. Errc::unsupported: an entry
/// that removes one of another layer. Errc::malformed_host: it cannot be read.
Result<> unpack(int archive, SafeTree& into, const UnpackOptions& options);

}  // namespace ferry
