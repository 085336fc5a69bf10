// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "common/result.h"

namespace ferry {

/// A name in an open directory, so that no link in the path is followed a second time.
struct AtomicTarget {
  int directory = -1;  ///< open for reading
  std::string name;
  int existing = -1;  ///< file that has the name now, O_PATH is enough; -1: none
  std::string path;   ///< for messages
};

/// Replaces the target's content whole or not at all: writes a new file beside it, syncs it, renames it and
/// syncs the directory. An existing file keeps its owner and mode; a new one gets `mode`. If the writer is
/// not root, another user's file becomes the writer's. A crash leaves at most a dot-file, which is ignored.
Result<> write_atomically(const AtomicTarget& target, std::string_view content, mode_t mode = 0644);

}  // namespace ferry
