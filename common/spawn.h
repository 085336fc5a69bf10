// SPDX-License-Identifier: Apache-2.0
// Starts programs that inherit three streams and nothing else: no child keeps a descriptor that a library has
// opened in this process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"

namespace ferry {

struct SpawnOptions {
  int in = -1;               ///< a descriptor; -1: /dev/null
  int out = -1;              ///< like `in`
  int err = -1;              ///< like `in`
  bool environment = true;   ///< inherits ours; false: none
  bool own_session = false;  ///< a Ctrl-C in our terminal does not reach it
};

/// Starts `program`, looked up in PATH if its name has no '/', with `words` as its argv. Returns its process
/// ID, for reap(), or the errno of the start.
Result<int> spawn(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const SpawnOptions& options);

/// Waits for a child's end. Returns its exit status, or 128 + a signal's number, like shells.
int reap(int pid);

}  // namespace ferry
