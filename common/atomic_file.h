// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "common/result.h"

namespace ferry {

/// A name in a directory that is open, so that no link on the way to it is followed a second time.
struct AtomicTarget {
  int directory = -1;  ///< open for reading
  std::string name;
  int existing = -1;  ///< the file that has the name now; O_PATH will do, -1: none
  std::string path;   ///< for messages
};

/// Replaces the target by `content`, whole or not at all: written beside it under a name of its own, synced,
/// renamed, the directory synced. An existing file keeps owner and mode; a new one gets `mode`. A file that
/// another user owns becomes the writer's where the writer is not root. A reader never sees half a file; a
/// crash leaves at most a dot-file that the next call ignores.
Result<> write_atomically(const AtomicTarget& target, std::string_view content, mode_t mode = 0644);

}  // namespace ferry
