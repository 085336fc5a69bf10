// SPDX-License-Identifier: Apache-2.0
// Programs of our own and of others, started with nothing of ours but their three streams: what a library has
// opened in this process is no child's to keep.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/result.h"

namespace ferry {

struct SpawnOptions {
  int in = -1;               ///< a descriptor of ours; -1: /dev/null
  int out = -1;              ///< as in
  int err = -1;              ///< as in
  bool environment = true;   ///< ours; false: none
  bool own_session = false;  ///< a Ctrl-C meant for us does not reach it
};

/// Starts `program`, looked for in PATH if its name is without '/', with `words` as its argv. Its process ID,
/// to be given to reap(); the errno when it could not be started.
Result<int> spawn(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const SpawnOptions& options);

/// Waits for a child's end: its exit status, or 128 + the number of the signal that ended it, as shells say
/// it.
int reap(int pid);

}  // namespace ferry
